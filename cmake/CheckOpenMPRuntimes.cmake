# Checks that OpenBLAS and this program share one pool of threads. OpenBLAS is usually linked to libgomp, and programs
# compiled by clang to libomp. If the loader finds libomp first, libomp also serves the calls to libgomp; otherwise, two
# pools compete for the processors. The check runs both in one process and counts the threads.
function(check_openmp_runtimes)
  set(program ${PROJECT_BINARY_DIR}/openmp_runtimes.cpp)
  file(WRITE ${program} [[
#include <omp.h>

#include <filesystem>
#include <iterator>
#include <vector>

extern "C" {
void openblas_set_num_threads(int);
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc);
}

int main() {
  constexpr int kThreads = 3, kSize = 512;
  omp_set_num_threads(kThreads);
  openblas_set_num_threads(kThreads);
  int started = 0;
#pragma omp parallel reduction(+ : started)
  started += 1;
  const std::vector<float> a(kSize * kSize, 1.0F);
  std::vector<float> c(kSize * kSize);
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  cblas_sgemm(kRowMajor, kNoTranspose, kNoTranspose, kSize, kSize, kSize, 1, a.data(), kSize, a.data(), kSize, 0, c.data(),
              kSize);
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks)) > started ? 1 : 0;
}
]])
  try_run(tapeformer_openmp_exit tapeformer_openmp_compiled ${PROJECT_BINARY_DIR}/openmp_runtimes ${program}
    LINK_LIBRARIES OpenMP::OpenMP_CXX tapeformer::openblas CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  if(tapeformer_openmp_compiled AND tapeformer_openmp_exit EQUAL 1)
    message(WARNING
      "OpenBLAS (${OPENBLAS_LIBRARY}) and the OpenMP of ${CMAKE_CXX_COMPILER_ID} (${OpenMP_CXX_LIBRARIES}) start separate "
      "pools of threads in one process, which compete for the processors. Install an OpenBLAS that uses the same OpenMP "
      "library (Debian and g++: libopenblas-openmp-dev) and name it with -DOPENBLAS_LIBRARY=PATH, or compile with g++.")
  endif()
endfunction()

if(NOT CMAKE_CROSSCOMPILING AND NOT DEFINED TAPEFORMER_OPENMP_CHECKED)
  check_openmp_runtimes()
  set(TAPEFORMER_OPENMP_CHECKED TRUE CACHE INTERNAL "The check of OpenMP runtimes has run")
endif()
