// Information about the build and the computer, for reports of benchmarks and errors. Each call reads the
// values again. The functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace tapeformer {

struct BuildInfo {
  std::string version, build_type, compiler;
  std::string kernel_architecture;  // value of -march for the CPU kernels
  // Values of -march for which the CPU kernels were compiled, separated by spaces. The dynamic loader selects
  // the kernels for one of the values. If the kernels were compiled for only one value, the string is empty.
  std::string all_kernel_architectures;
  std::string instruction_set;  // extensions that the kernels can use: "avx2 fma …"
  int vector_bytes = 0;         // length of the vectors in the kernels, in bytes
};
BuildInfo get_build_info();

struct BlasInfo {
  std::string config;     // name, version and build options as reported by OpenBLAS
  std::string core_type;  // processor type for which OpenBLAS selected its kernels, for example "Haswell"
  std::string threading;  // "openmp", "pthreads" or "sequential"
  int thread_count = 0;
  // Returns whether OpenBLAS uses the threads of OpenMP. If OpenBLAS creates its own threads instead,
  // Tapeformer cannot limit their number, and these threads compete with the threads of Tapeformer.
  bool uses_openmp() const { return threading == "openmp"; }
};
BlasInfo get_blas_info();

// If OpenBLAS uses kernels for AVX2 or less on a processor with AVX-512, returns a message that tells the
// user how to change the environment variable OPENBLAS_CORETYPE. Otherwise returns "". OpenBLAS reads this
// variable when the program starts, and selects its kernels accordingly.
std::string make_blas_hint();

struct MachineInfo {
  std::string processor_name;   // model name; empty if the system does not report it
  int processor_count = 0;      // number of processors available to this process
  std::string instruction_set;  // extensions of the processor: "avx2 avx512f amx_int8 …"
  int64_t memory_bytes = 0, available_bytes = 0;
};
MachineInfo get_machine_info();

int64_t get_peak_resident_bytes();

}  // namespace tapeformer
