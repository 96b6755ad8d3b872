# Finds oneDNN (Debian: libdnnl-dev), version 2 or 3, as the target tapeformer::onednn. The installed package contains this
# file, because programs that use the package link the same library.
find_library(ONEDNN_LIBRARY NAMES dnnl)
find_path(ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
set(OneDNN_VERSION "")
set(version_header ${ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h)
if(EXISTS ${version_header})
  file(STRINGS ${version_header} version_lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" OneDNN_VERSION "${version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE OneDNN_VERSION VERSION_VAR OneDNN_VERSION)
mark_as_advanced(ONEDNN_LIBRARY ONEDNN_INCLUDE)

if(OneDNN_FOUND AND NOT TARGET tapeformer::onednn)
  add_library(tapeformer::onednn UNKNOWN IMPORTED)
  set_target_properties(tapeformer::onednn PROPERTIES IMPORTED_LOCATION "${ONEDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE}")
endif()
