# Finds NCCL in the CUDA toolkit or the system folders (Debian: libnccl-dev), as the target tapeformer::nccl. The installed
# package contains this file, because programs that use the package link the same library.
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
set(NCCL_VERSION "")
if(EXISTS ${NCCL_INCLUDE}/nccl.h)
  file(STRINGS ${NCCL_INCLUDE}/nccl.h version_lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION "${version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE NCCL_VERSION VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE NCCL_LIBRARY)

if(NCCL_FOUND AND NOT TARGET tapeformer::nccl)
  add_library(tapeformer::nccl UNKNOWN IMPORTED)
  set_target_properties(tapeformer::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE}")
endif()
