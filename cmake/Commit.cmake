# Writes HEADER with the constant kCommit: the commit of the repository SOURCE, "…-dirty" if its files differ from the
# commit, or "unknown" without a repository. Does not touch a header that is up to date.
cmake_minimum_required(VERSION 3.24)
find_package(Git QUIET)
set(commit unknown)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} describe --always --dirty --abbrev=10 --match=
    OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(status EQUAL 0 AND described)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#pragma once
inline constexpr char kCommit[] = \"@commit@\";
" @ONLY)
