# Copies the public headers `headers`, and the headers that they include, from `source_dir` to `output_dir`. An include
# by path from the root of the tree, such as "core/tensor.h", becomes <tapeformer/core/tensor.h>.
cmake_minimum_required(VERSION 3.24)

file(REMOVE_RECURSE "${output_dir}")
set(copied)
while(headers)
  list(POP_FRONT headers header)
  if(header IN_LIST copied)
    continue()
  endif()
  list(APPEND copied ${header})
  file(READ "${source_dir}/${header}" text)
  string(REGEX REPLACE "(#include )\"([^\"\n]+)\"" "\\1<tapeformer/\\2>" text "${text}")
  file(WRITE "${output_dir}/${header}" "${text}")
  string(REGEX MATCHALL "#include <tapeformer/[^>\n]+>" includes "${text}")
  list(TRANSFORM includes REPLACE "#include <tapeformer/(.+)>" "\\1")
  list(APPEND headers ${includes})
endwhile()
