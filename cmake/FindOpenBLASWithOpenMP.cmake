# Finds OpenBLAS as the target tapeformer::openblas. Prefers the build that uses OpenMP's threads (Debian:
# libopenblas-openmp-dev). The installed package contains this file, because programs that use the package link the same
# library.
find_library(OPENBLAS_LIBRARY NAMES openblas PATH_SUFFIXES openblas-openmp)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-openmp openblas)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLASWithOpenMP REQUIRED_VARS OPENBLAS_LIBRARY OPENBLAS_INCLUDE)
mark_as_advanced(OPENBLAS_LIBRARY OPENBLAS_INCLUDE)

include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
if(OpenBLASWithOpenMP_FOUND)
  tapeformer_import_library(tapeformer::openblas "${OPENBLAS_LIBRARY}" "${OPENBLAS_INCLUDE}")
endif()
