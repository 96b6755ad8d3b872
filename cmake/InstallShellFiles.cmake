# Writes the manual pages of `tapeformer` and its commands and the completion for shells, all printed by the program, to
# `output_dir` with the layout of share/. Does nothing if the program cannot run here, as after cross compiling.
cmake_minimum_required(VERSION 3.24)

file(REMOVE_RECURSE "${output_dir}")
file(MAKE_DIRECTORY "${output_dir}/man/man1" "${output_dir}/bash-completion/completions" "${output_dir}/zsh/vendor-completions")
execute_process(COMMAND "${tapeformer}" completion words help "" OUTPUT_VARIABLE names RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0)
  message(STATUS "No manual pages and completion: ${tapeformer} does not run on this machine")
  return()
endif()

# write(FILE word…): writes what the program prints.
function(write file)
  execute_process(COMMAND "${tapeformer}" ${ARGN} OUTPUT_FILE "${output_dir}/${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()
write(man/man1/tapeformer.1 help --man)
string(REGEX MATCHALL "[a-z][^\n]*" names "${names}")
foreach(name ${names})
  write(man/man1/tapeformer-${name}.1 help --man ${name})
endforeach()
write(bash-completion/completions/tapeformer completion bash)
write(zsh/vendor-completions/_tapeformer completion zsh)

find_program(GZIP gzip)
file(GLOB pages "${output_dir}/man/man1/*.1")
if(GZIP)
  execute_process(COMMAND ${GZIP} -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
