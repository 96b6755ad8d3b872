# Functions for the Find modules. The installed package contains this file.

# Sets RESULT to the version MAJOR.MINOR.PATCH in a header with lines "#define PREFIXMAJOR 1". If there is no header, sets it
# to "".
function(tapeformer_header_version header prefix result)
  set(${result} "" PARENT_SCOPE)
  if(EXISTS ${header})
    file(STRINGS ${header} lines REGEX "define ${prefix}(MAJOR|MINOR|PATCH)[ \t]")
    string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" version "${lines}")
    set(${result} "${version}" PARENT_SCOPE)
  endif()
endfunction()

# Adds an imported target for a library and its include folder, unless the target exists.
function(tapeformer_import_library target library include)
  if(NOT TARGET ${target})
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${include}")
  endif()
endfunction()
