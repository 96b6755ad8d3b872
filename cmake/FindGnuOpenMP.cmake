# Finds libgomp as the target tapeformer::openmp. Debian's OpenBLAS and oneDNN use libgomp, and two OpenMP runtimes in one
# process compete for the processors and abort, so programs that clang compiles use libgomp, too. With clang, `omp simd` is the
# only directive that has an effect, and omp.h comes from clang (Debian: libomp-dev). The installed package contains this file.
include(FindPackageHandleStandardArgs)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  find_package(OpenMP QUIET COMPONENTS CXX)
  set(GOMP_LIBRARY ${OpenMP_CXX_LIBRARIES})
else()
  file(GLOB gomp_folders /usr/lib/gcc/*/*)
  find_library(GOMP_LIBRARY NAMES gomp libgomp.so.1 HINTS ${gomp_folders})
  mark_as_advanced(GOMP_LIBRARY)
endif()
find_package_handle_standard_args(GnuOpenMP REQUIRED_VARS GOMP_LIBRARY)

if(GnuOpenMP_FOUND AND NOT TARGET tapeformer::openmp)
  add_library(tapeformer::openmp INTERFACE IMPORTED)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_link_libraries(tapeformer::openmp INTERFACE OpenMP::OpenMP_CXX)
  else()
    target_compile_options(tapeformer::openmp INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp-simd>)
    target_link_libraries(tapeformer::openmp INTERFACE ${GOMP_LIBRARY})
  endif()
endif()
