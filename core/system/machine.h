// Facts about the build and the computer, for reports of benchmarks and errors. Each call reads the values
// again. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace tapeformer {

struct BuildInfo {
  std::string version, build_type, compiler;
  std::string instruction_set;  // instruction set of the compiled code: "avx2 fma avx512f …"
};
BuildInfo build_info();

struct BlasInfo {
  std::string config;     // name, version and build options as reported by OpenBLAS
  std::string kernels;    // the processor type of the selected kernels
  std::string threading;  // "openmp", "pthreads" or "sequential"
  int threads = 0;
  // Returns true for the OpenMP build of OpenBLAS, which shares its thread pool with this library. Other
  // builds start a second pool that competes for the cores.
  bool shares_threads() const { return threading == "openmp"; }
};
BlasInfo blas_info();

struct MachineInfo {
  std::string processor;                     // model name; empty if the system does not report it
  int processors = 0;                        // number of processors available to this process
  std::string instruction_set;               // extensions of the compiled code that the processor supports
  int64_t memory = 0, available_memory = 0;  // bytes
};
MachineInfo machine_info();

// Returns the bytes that this process may allocate: the free memory of the computer, or the limit of the
// control group if that is less.
int64_t available_memory();

// Returns the peak resident memory of this process in bytes.
int64_t peak_resident_bytes();

}  // namespace tapeformer
