# Programs that count the memory accesses of emulated kernels (core/access_log.h). With TAPEFORMER_COUNT_ACCESSES, the
# kernels are compiled a second time and call a function before each access. tapeformer_counts_accesses(target) links these
# kernels to a program. The option has no effect without the emulation, and with compilers other than g++: the counts depend
# on how the compiler divides accesses.
option(TAPEFORMER_COUNT_ACCESSES "Build programs that count the memory accesses of emulated kernels" OFF)
set(tapeformer_counts_accesses FALSE)
if(NOT TAPEFORMER_COUNT_ACCESSES OR NOT tapeformer_cuda_mode STREQUAL EMULATED OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  return()
endif()
if(TAPEFORMER_SANITIZE)
  message(FATAL_ERROR "TAPEFORMER_COUNT_ACCESSES uses the instrumentation of ThreadSanitizer: set TAPEFORMER_SANITIZE to \"\"")
endif()
set(tapeformer_counts_accesses TRUE)

# Options of instrumented files. -fsanitize=thread inserts the calls. Accesses keep the width that the source states,
# because the scalar replacement of aggregates, vectorisation and unrolling are off. Calls are not tail calls, so the return
# address of a hook identifies the access. -g1 maps it to a source line.
set(tapeformer_instrument_options -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -Wno-tsan -O1 -g1
    -fno-tree-sra -fno-optimize-sibling-calls)

add_library(tapeformer_counted_kernels OBJECT)
target_link_libraries(tapeformer_counted_kernels PRIVATE tapeformer_core tapeformer_flags)
target_compile_definitions(tapeformer_counted_kernels PRIVATE TAPEFORMER_CUDA_EMULATED TAPEFORMER_ONLY_FLOAT)
target_compile_options(tapeformer_counted_kernels PRIVATE ${tapeformer_instrument_options}
  -Wno-subobject-linkage)  # files that include others use names of anonymous namespaces
set_target_properties(tapeformer_counted_kernels PROPERTIES UNITY_BUILD OFF)

# The objects come before the libraries on the command line of the linker, so the linker does not extract the same kernels
# from tapeformer_core. The double-precision instances come from tapeformer_core and are not counted.
function(tapeformer_counts_accesses target)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:tapeformer_counted_kernels>)
endfunction()
