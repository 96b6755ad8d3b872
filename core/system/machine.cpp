#include "core/system/machine.h"

#include <cblas.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

#include "core/host_memory.h"

namespace tapeformer {
namespace {

void append_word(std::string& list, const char* word, bool present) {
  if (!present) return;
  if (!list.empty()) list += ' ';
  list += word;
}

std::string compiled_instruction_set() {
  std::string list;
#ifdef __SSE4_2__
  append_word(list, "sse4.2", true);
#endif
#ifdef __AVX__
  append_word(list, "avx", true);
#endif
#ifdef __AVX2__
  append_word(list, "avx2", true);
#endif
#ifdef __FMA__
  append_word(list, "fma", true);
#endif
#ifdef __AVX512F__
  append_word(list, "avx512f", true);
#endif
#ifdef __AVX512BW__
  append_word(list, "avx512bw", true);
#endif
#ifdef __ARM_NEON
  append_word(list, "neon", true);
#endif
  return list;
}

std::string processor_instruction_set() {
  std::string list;
#if defined(__x86_64__) || defined(__i386__)
  append_word(list, "sse4.2", __builtin_cpu_supports("sse4.2"));
  append_word(list, "avx", __builtin_cpu_supports("avx"));
  append_word(list, "avx2", __builtin_cpu_supports("avx2"));
  append_word(list, "fma", __builtin_cpu_supports("fma"));
  append_word(list, "avx512f", __builtin_cpu_supports("avx512f"));
  append_word(list, "avx512bw", __builtin_cpu_supports("avx512bw"));
#elif defined(__ARM_NEON)
  append_word(list, "neon", true);
#endif
  return list;
}

// Returns the value of the first line of a file that starts with `key`: the text after the colon and the
// blanks.
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

BuildInfo build_info() {
#ifdef __clang__
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  const std::string type = TAPEFORMER_BUILD_TYPE;
  return {TAPEFORMER_VERSION, type.empty() ? "none" : type, compiler, compiled_instruction_set()};
}

BlasInfo blas_info() {
  const int parallel = openblas_get_parallel();
  return {openblas_get_config(), openblas_get_corename(),
          parallel == OPENBLAS_OPENMP   ? "openmp"
          : parallel == OPENBLAS_THREAD ? "pthreads"
                                        : "sequential",
          openblas_get_num_threads()};
}

MachineInfo machine_info() {
  MachineInfo info;
  info.processor = value_of("/proc/cpuinfo", "model name");
  info.processors = omp_get_num_procs();
  info.instruction_set = processor_instruction_set();
  info.memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  info.available_memory = available_memory();
  return info;
}

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace tapeformer
