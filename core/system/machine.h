// What the program was built from and what it runs on: for `info`, for benchmarks and for error reports.
// Plain values, read anew at every call; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace tapeformer {

struct BuildInfo {
  std::string version, build_type, compiler;
  std::string instruction_set;  // of the compiled code: "avx2 fma avx512f …"
};
BuildInfo build_info();

struct BlasInfo {
  std::string config;     // name, version and build options in OpenBLAS's own words
  std::string kernels;    // the processor whose kernels it chose
  std::string threading;  // "openmp", "pthreads" or "sequential"
  int threads = 0;
  // Only the OpenMP build shares its threads with ours; others start a second pool that competes for the
  // cores.
  bool shares_threads() const { return threading == "openmp"; }
};
BlasInfo blas_info();

struct MachineInfo {
  std::string processor;                     // model name; empty where the system does not tell
  int processors = 0;                        // that this process may use
  std::string instruction_set;               // that the processor has, among those of BuildInfo
  int64_t memory = 0, available_memory = 0;  // bytes
};
MachineInfo machine_info();

// Bytes that this process may take: what the machine has free, or the limit of its control group if that is
// less.
int64_t available_memory();

// The most memory that this process ever held, in bytes.
int64_t peak_resident_bytes();

}  // namespace tapeformer
