# Finds OpenBLAS as the target tapeformer::openblas. Prefers the build that uses OpenMP's threads (Debian:
# libopenblas-openmp-dev). The installed package contains this file, because its users link the same library.
find_library(OPENBLAS_LIBRARY NAMES openblas PATH_SUFFIXES openblas-openmp)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-openmp openblas)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLASWithOpenMP REQUIRED_VARS OPENBLAS_LIBRARY OPENBLAS_INCLUDE)
mark_as_advanced(OPENBLAS_LIBRARY OPENBLAS_INCLUDE)

if(OpenBLASWithOpenMP_FOUND AND NOT TARGET tapeformer::openblas)
  add_library(tapeformer::openblas UNKNOWN IMPORTED)
  set_target_properties(tapeformer::openblas PROPERTIES IMPORTED_LOCATION "${OPENBLAS_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${OPENBLAS_INCLUDE}")
endif()
