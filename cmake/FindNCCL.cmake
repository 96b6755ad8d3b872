# Finds NCCL in the CUDA toolkit or the system folders (Debian: libnccl-dev), as the target tapeformer::nccl. The installed
# package contains this file, because programs that use the package link the same library.
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
tapeformer_header_version(${NCCL_INCLUDE}/nccl.h NCCL_ NCCL_VERSION)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE NCCL_VERSION VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE NCCL_LIBRARY)

if(NCCL_FOUND)
  tapeformer_import_library(tapeformer::nccl "${NCCL_LIBRARY}" "${NCCL_INCLUDE}")
endif()
