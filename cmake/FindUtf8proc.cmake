# Finds utf8proc as the target tapeformer::utf8proc: properties of Unicode characters. Debian: libutf8proc-dev. The installed
# package contains this file, because programs that use the package link the same library.
find_library(UTF8PROC_LIBRARY NAMES utf8proc)
find_path(UTF8PROC_INCLUDE utf8proc.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Utf8proc REQUIRED_VARS UTF8PROC_LIBRARY UTF8PROC_INCLUDE)
mark_as_advanced(UTF8PROC_LIBRARY UTF8PROC_INCLUDE)

include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
if(Utf8proc_FOUND)
  tapeformer_import_library(tapeformer::utf8proc "${UTF8PROC_LIBRARY}" "${UTF8PROC_INCLUDE}")
endif()
