// tapeformer info: what the program was built from and what it runs on.
#include "core/log.h"
#include "core/machine.h"
#include "core/threads.h"
#include "train/commands/commands.h"

namespace tapeformer {

int run_info(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "info",
       .summary = "Prints version, compiler, BLAS and threads, CUDA, devices, instruction sets and memory.",
       .positionals = {},
       .options = {}},
      arguments);
  if (!line) return 0;
  const BuildInfo build = build_info();
  const BlasInfo blas = blas_info();
  const MachineInfo machine = machine_info();
  if (!blas.shares_threads())
    log_warning("this OpenBLAS uses ", blas.threading,
                " and not OpenMP, so its threads compete with ours for the processors; install "
                "libopenblas-openmp-dev and build again");
  Report report;
  report.add("version", build.version)
      .add("build_type", build.build_type)
      .add("compiler", build.compiler)
      .add("compiled_for", build.instruction_set)
      .add("blas", blas.config)
      .add("blas_kernels", blas.kernels)
      .add("blas_threading", blas.threading)
      .add("threads", threads())
      .add("cuda", kHasCuda ? "built in" : "not built in")
      .add("cuda_architectures", std::vector<std::string>{})
      .add("devices", std::vector<std::string>{"cpu"})
      .add("processor", machine.processor)
      .add("processors", machine.processors)
      .add("processor_has", machine.instruction_set)
      .add("memory_bytes", machine.memory)
      .add("available_memory_bytes", machine.available_memory);
  print_report(report, line->common);
  return 0;
}

}  // namespace tapeformer
