// The command "tapeformer info": prints properties of the build and of the machine.
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "core/cuda/devices.h"
#include "core/system/log.h"
#include "core/system/machine.h"
#include "core/threads/default_threads.h"
#include "core/threads/threads.h"
#include "ops/linear.h"
#include "train/cli/commands.h"
#include "train/distributed/processes.h"

namespace tapeformer {
namespace {

struct CudaReport {
  std::string backend = "not built in", driver = "none";
  std::vector<std::string> architectures, devices = {"cpu"};
};

CudaReport make_cuda_report() {
  CudaReport report;
  if constexpr (kHasCuda) {
    report.backend =
        cuda::is_emulated() ? "emulated, for tests" : "built in, toolkit " + cuda::toolkit_version();
    report.driver = cuda::driver_version();
    report.architectures = cuda::compiled_architectures();
    for (const cuda::DeviceInfo& device : cuda::list_devices()) {
      const int index = static_cast<int>(report.devices.size()) - 1;
      const std::string problem = cuda::find_device_problem(index);
      report.devices.push_back(concat_text(
          cuda::is_emulated() ? "cuda-emulated" : "cuda:" + std::to_string(index), ": ", device.name,
          ", compute capability ", device.major, ".", device.minor, ", ", device.memory_bytes >> 20, " MiB",
          problem.empty() ? "" : "; cannot be used: " + problem));
    }
  }
  return report;
}

// Returns the programs that some commands start and that no folder of $PATH contains.
std::vector<std::string> list_missing_programs() {
  std::vector<std::string> missing = {"espeak-ng", "rsvg-convert"};
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    std::erase_if(missing,
                  [&](const std::string& name) { return access((folder + "/" + name).c_str(), X_OK) == 0; });
  return missing;
}

// Returns the reason for the number of threads of this process.
std::string describe_thread_count(const CommonOptions& common) {
  if (common.threads > 0) return "--threads";
  const DefaultThreadCount& alone = get_default_thread_count();
  if (alone.is_from_environment || !get_process_group_error().empty() ||
      init_process_group().communicator->size() == 1)
    return alone.reason;
  return "the share of this process";
}

}  // namespace

CommandSpec make_info_spec(const Arguments& /*words*/) {
  return {
      .summary = "Prints version, compiler, BLAS and threads, CUDA, devices, instruction sets and memory.",
      .details =
          "With --device and the name of a CUDA device, the command also computes a few matrix products "
          "there.\n"
          "It prints how many were timed, how many algorithms failed, and how many have no fused epilogue."};
}

int run_info(const CommandLine& line) {
  const BuildInfo build = get_build_info();
  const BlasInfo blas = get_blas_info();
  const MachineInfo machine = get_machine_info();
  if (!blas.uses_openmp())
    log_warning("this OpenBLAS uses ", blas.threading,
                " and not OpenMP, so its threads compete with the threads of Tapeformer; install "
                "libopenblas-openmp-dev and build again");
  if (const std::string advice = make_blas_hint(); !advice.empty()) log_warning(advice);
  if (get_process_group_error().empty())
    init_process_group_and_threads(line.common_options);
  else
    log_warning(get_process_group_error());
  const CudaReport cuda = make_cuda_report();
  Report report;
  report.add("version", build.version)
      .add("build_type", build.build_type)
      .add("compiler", build.compiler)
      .add("cpu_kernels", build.kernel_architecture)
      .add("cpu_kernel_choices", build.all_kernel_architectures)
      .add("vector_bytes", int64_t{build.vector_bytes})
      .add("compiled_for", build.instruction_set)
      .add("built_without", std::vector<std::string>{TAPEFORMER_LEFT_OUT})
      .add("missing_programs", list_missing_programs())
      .add("blas", blas.config)
      .add("blas_kernels", blas.core_type)
      .add("blas_threading", blas.threading)
      .add("cpu_products", get_cpu_gemm_library_name())
      .add("cpu_bfloat16_products", uses_bfloat16_instructions(kCpu))
      .add("threads", get_thread_count())
      .add("threads_reason", describe_thread_count(line.common_options))
      .add("processes", get_process_group_error().empty()
                            ? std::to_string(init_process_group().communicator->size())
                            : "1; other processes cannot be joined: " + get_process_group_error())
      .add("cuda", cuda.backend)
      .add("cuda_driver", cuda.driver)
      .add("cuda_architectures", cuda.architectures)
      .add("devices", cuda.devices)
      .add("processor", machine.processor_name)
      .add("processors", machine.processor_count)
      .add("processor_has", machine.instruction_set)
      .add("memory_bytes", machine.memory_bytes)
      .add("available_memory_bytes", machine.available_bytes);
  print_report(report, line.common_options);
  return 0;
}

}  // namespace tapeformer
