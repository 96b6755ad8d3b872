#include "core/system/machine.h"

#include <cblas.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include "core/base/environment.h"
#include "core/base/host_memory.h"
#include "core/cpu/compiled_for.h"

namespace tapeformer {
namespace {

// Returns the text after the colon in the first line that starts with `key`. Lines without text after the
// colon are skipped. Returns "" if no line matches.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t first = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (first != std::string::npos) return line.substr(first);
  }
  return "";
}

}  // namespace

std::string format_extensions(ExtensionSet set) {
  std::string names;
  for (int i = 0; i < kExtensionCount; ++i)
    if (set >> i & 1) names += (names.empty() ? "" : " ") + std::string(kExtensionNames[i]);
  return names;
}

BuildInfo get_build_info() {
#ifdef __clang__
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  const std::string type = TAPEFORMER_BUILD_TYPE;
  BuildInfo info;
  info.version = TAPEFORMER_VERSION;
  info.build_type = type.empty() ? "none" : type;
  info.compiler = compiler;
  info.kernel_architecture = cpu::kCompiledArchitecture;
  info.all_kernel_architectures = TAPEFORMER_ARCHITECTURES;
  info.instruction_set = format_extensions(cpu::kCompiledExtensions);
  info.vector_bytes = cpu::kCompiledVectorBytes;
  return info;
}

BlasInfo get_blas_info() {
  const int parallel = openblas_get_parallel();
  return {openblas_get_config(), openblas_get_corename(),
          parallel == OPENBLAS_OPENMP   ? "openmp"
          : parallel == OPENBLAS_THREAD ? "pthreads"
                                        : "sequential",
          openblas_get_num_threads()};
}

std::string make_blas_hint() {
  constexpr std::string_view kNarrow[] = {"Haswell",     "Zen",        "Excavator",
                                          "Steamroller", "Piledriver", "Bulldozer",
                                          "Sandybridge", "Nehalem",    "Prescott"};
  const std::string kernels = openblas_get_corename();
  if ((make_extension_set("avx512f avx512bw avx512cd avx512dq avx512vl") & ~detect_processor_extensions()) !=
      0)
    return "";
  if (std::find(std::begin(kNarrow), std::end(kNarrow), kernels) == std::end(kNarrow)) return "";
  const char* const variable = get_environment_variable("OPENBLAS_CORETYPE");
  return "OpenBLAS uses its kernels for " + kernels + ", but this processor has AVX-512: " +
         (variable ? std::string("unset the environment variable OPENBLAS_CORETYPE, which is ") + variable
                   : "set the environment variable OPENBLAS_CORETYPE=SkylakeX");
}

MachineInfo get_machine_info() {
  MachineInfo info;
  info.processor_name = value_of("/proc/cpuinfo", "model name");
  info.processor_count = omp_get_num_procs();
  info.instruction_set = format_extensions(detect_processor_extensions());
  info.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  info.available_bytes = get_available_memory();
  return info;
}

int64_t get_peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace tapeformer
