# Finds oneDNN (Debian: libdnnl-dev), version 2 or 3, as the target tapeformer::onednn. The installed package contains this
# file, because programs that use the package link the same library.
find_library(ONEDNN_LIBRARY NAMES dnnl)
find_path(ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
tapeformer_header_version(${ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h DNNL_VERSION_ OneDNN_VERSION)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE OneDNN_VERSION VERSION_VAR OneDNN_VERSION)
mark_as_advanced(ONEDNN_LIBRARY ONEDNN_INCLUDE)

if(OneDNN_FOUND)
  tapeformer_import_library(tapeformer::onednn "${ONEDNN_LIBRARY}" "${ONEDNN_INCLUDE}")
endif()
