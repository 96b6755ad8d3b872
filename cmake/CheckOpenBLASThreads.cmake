# Checks that OpenBLAS uses the threads of OpenMP. Otherwise, its threads and those of this program compete for the processors.
function(check_openblas_threads)
  set(program ${PROJECT_BINARY_DIR}/openblas_threads.cpp)
  file(WRITE ${program} [[
extern "C" int openblas_get_parallel();
int main() {
  constexpr int kOpenMP = 2;
  return openblas_get_parallel() == kOpenMP ? 0 : 1;
}
]])
  try_run(tapeformer_openblas_exit tapeformer_openblas_compiled ${PROJECT_BINARY_DIR}/openblas_threads ${program}
    LINK_LIBRARIES tapeformer::openblas CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  if(tapeformer_openblas_compiled AND tapeformer_openblas_exit EQUAL 1)
    message(WARNING
      "OpenBLAS (${OPENBLAS_LIBRARY}) starts threads of its own, which compete with those of this program. Install an OpenBLAS "
      "with OpenMP (Debian: libopenblas-openmp-dev) and name it with -DOPENBLAS_LIBRARY=PATH.")
  endif()
endfunction()

if(NOT CMAKE_CROSSCOMPILING AND NOT DEFINED TAPEFORMER_OPENBLAS_CHECKED)
  check_openblas_threads()
  set(TAPEFORMER_OPENBLAS_CHECKED TRUE CACHE INTERNAL "The check of the threads of OpenBLAS has run")
endif()
