# Installs a build, and tests the installed programs, headers and libraries.
# cmake -DBUILD_DIR=… -DSOURCE_DIR=… -DWORK_DIR=… -DGENERATOR=… -DCONFIG=… -DCOMPILER=… -DFLAGS=… -P
# install_test.cmake
cmake_minimum_required(VERSION 3.24)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nfailed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Moves the installation, because it must not depend on its path.
file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${WORK_DIR}/first)
file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)
set(prefix ${WORK_DIR}/prefix)

# Checks that no internal headers are installed, and that the installed headers compile.
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/tapeformer/*.h)
list(LENGTH headers count)
if(count LESS 60)
  message(FATAL_ERROR "only ${count} headers were installed")
endif()
set(internal ${headers})
list(FILTER internal INCLUDE REGEX
  "^tapeformer/(core/(cpu|cuda|emulation)|ops/(cpu|cuda|detail)|train/(bench|report|reproduce)/|train/cli/)")
list(REMOVE_ITEM internal tapeformer/train/cli/run.h)
if(internal)
  message(FATAL_ERROR "internal headers were installed: ${internal}")
endif()
list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>\n")
list(JOIN headers "" includes)
file(WRITE ${WORK_DIR}/all_headers.cpp "${includes}\nint main() {}\n")

# build(FOLDER setting…): configures and builds a project that uses the package.
function(build folder)
  get_filename_component(name ${folder} NAME)
  run(${CMAKE_COMMAND} -S ${folder} -B ${WORK_DIR}/${name} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=${CONFIG}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${prefix} ${ARGN})
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/${name} --config ${CONFIG})
endfunction()
build(${SOURCE_DIR}/tests/install/headers -DALL_HEADERS=${WORK_DIR}/all_headers.cpp)
build(${SOURCE_DIR}/tests/install/consumer)
run(${WORK_DIR}/consumer/consumer)
if(NOT output STREQUAL "5 7 9 gradient 1 1 1\n")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()

# Settings of a model that trains within a second.
set(tiny)
foreach(setting train.steps=1 data.batch_size=1 data.eval_limit=1 model.layers=1 model.head_dim=2 model.feedforward=8)
  list(APPEND tiny --set ${setting})
endforeach()

# Builds and runs the examples of docs/library.md.
build(${SOURCE_DIR}/docs/examples)
run(${WORK_DIR}/examples/xor)
if(NOT output MATCHES "predictions\n\\[\\[0\\.0[0-9]+\\],\n \\[0\\.9[0-9]+\\],\n \\[0\\.9[0-9]+\\],\n \\[0\\.0[0-9]+\\]\\] \\(4, 1\\) float32\n")
  message(FATAL_ERROR "xor printed: ${output}")
endif()
run(${WORK_DIR}/examples/copy)
if(NOT output MATCHES "accuracy (1|0\\.9[0-9]*)\n")
  message(FATAL_ERROR "copy printed: ${output}")
endif()
run(${prefix}/bin/tapeformer train copy/linear --run-dir ${WORK_DIR}/run --threads 1 ${tiny})
run(${WORK_DIR}/examples/sample ${WORK_DIR}/run)
if(NOT output MATCHES "step-00000001: [0-9]+ parameters, linear attention\n\\[\\[0, .*\\] \\(4, [0-9]+\\)")
  message(FATAL_ERROR "sample printed: ${output}")
endif()

# Trains and evaluates a model with an attention kind that an example registers. Checks that an error in an option of
# the kind is reported.
set(sliding_window ${WORK_DIR}/examples/sliding_window)
run(${sliding_window} train ${SOURCE_DIR}/docs/examples/sliding_window.toml --run-dir ${WORK_DIR}/window --threads 1
  ${tiny})
run(${sliding_window} eval ${WORK_DIR}/window --limit 1 --threads 1 --json)
if(NOT output MATCHES "\"nats_per_dim\":[0-9.]+")
  message(FATAL_ERROR "sliding_window eval printed: ${output}")
endif()
run(${sliding_window} train --help attention)
if(NOT output MATCHES "sliding_window" OR NOT output MATCHES "number of tokens")
  message(FATAL_ERROR "sliding_window --help printed: ${output}")
endif()
execute_process(COMMAND ${sliding_window} train ${SOURCE_DIR}/docs/examples/sliding_window.toml
  --run-dir ${WORK_DIR}/wrong --set attention.windw=3
  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
if(NOT status EQUAL 2 OR NOT output MATCHES "did you mean attention.window")
  message(FATAL_ERROR "sliding_window with a wrong option printed: ${output}")
endif()

run(${sliding_window} test-attention sliding_window --set attention.window=3 --json)
if(NOT output MATCHES "\"failures\":0")
  message(FATAL_ERROR "sliding_window test-attention printed: ${output}")
endif()

# Trains and evaluates with a data set and an optimizer that an example registers, and checks their help and errors.
set(parts ${WORK_DIR}/examples/parts)
run(${parts} train ${SOURCE_DIR}/docs/examples/parts.toml --run-dir ${WORK_DIR}/parts --threads 1 ${tiny})
run(${parts} eval ${WORK_DIR}/parts --limit 1 --threads 1 --json)
if(NOT output MATCHES "\"nats_per_dim\":[0-9.]+")
  message(FATAL_ERROR "parts eval printed: ${output}")
endif()
run(${parts} train --help half)
if(NOT output MATCHES "number of symbols before the reversal" OR NOT output MATCHES "the data set \"reversal\"")
  message(FATAL_ERROR "parts --help printed: ${output}")
endif()
execute_process(COMMAND ${parts} train ${SOURCE_DIR}/docs/examples/parts.toml --run-dir ${WORK_DIR}/wrong
  --set optimizer.momentum=0.5 RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
if(NOT status EQUAL 2 OR NOT output MATCHES "belongs to the optimizers \"sgd\" and \"muon\"")
  message(FATAL_ERROR "parts with an option of another optimizer printed: ${output}")
endif()

# Trains, resumes and evaluates a model of a type that an example registers.
set(bigram ${WORK_DIR}/examples/bigram)
run(${bigram} train ${SOURCE_DIR}/docs/examples/bigram.toml --run-dir ${WORK_DIR}/bigram --threads 1)
run(${bigram} train ${SOURCE_DIR}/docs/examples/bigram.toml --run-dir ${WORK_DIR}/bigram --threads 1 --resume
  --set train.steps=110)
run(${bigram} eval ${WORK_DIR}/bigram --threads 1 --json)
if(NOT output MATCHES "\"nats_per_token\":1\\.[0-9]+")
  message(FATAL_ERROR "bigram eval printed: ${output}")
endif()

run(${prefix}/bin/tapeformer --version)
if(NOT output MATCHES "^tapeformer [0-9]+\\.[0-9]+")
  message(FATAL_ERROR "tapeformer --version printed: ${output}")
endif()

foreach(file man/man1/tapeformer-train.1 bash-completion/completions/tapeformer zsh/vendor-completions/_tapeformer)
  file(GLOB found ${prefix}/share/${file}*)
  if(NOT found)
    message(FATAL_ERROR "share/${file} was not installed")
  endif()
endforeach()

# Checks that `reproduce` reads the installed configs from any current folder.
file(MAKE_DIRECTORY ${WORK_DIR}/elsewhere)
set(command ${prefix}/bin/tapeformer reproduce copy-convergence --threads 1 --json ${tiny})
run(${CMAKE_COMMAND} -E chdir ${WORK_DIR}/elsewhere ${command})
if(NOT output MATCHES "\"name\":\"lsh-4\"")
  message(FATAL_ERROR "reproduce printed: ${output}")
endif()
file(APPEND ${prefix}/share/tapeformer/configs/copy/softmax.toml "[nonsense]\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E chdir ${WORK_DIR}/elsewhere ${command}
  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
if(status EQUAL 0 OR NOT output MATCHES "prefix/share/tapeformer/configs/copy/softmax.toml.*nonsense")
  message(FATAL_ERROR "reproduce did not read the installed configs: ${output}")
endif()
file(REMOVE_RECURSE ${WORK_DIR})
