# The CUDA backend: for devices where nvcc is found, emulated on the CPU for the tests where it is not.
# Sets tapeformer_cuda_mode to DEVICE, EMULATED or OFF and defines tapeformer_cuda_sources(file…), which adds
# sources to the library in the modes that have a backend.
set(TAPEFORMER_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON, OFF or EMULATED (on the CPU, for tests)")
set_property(CACHE TAPEFORMER_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
# Machine code for Ampere, Ada, Hopper and Blackwell, and PTX of the oldest for all others.
set(TAPEFORMER_CUDA_ARCHITECTURES "80;86-real;89-real;90a-real;100-real" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES")

if(NOT TAPEFORMER_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "TAPEFORMER_CUDA is ${TAPEFORMER_CUDA}, not AUTO, ON, OFF or EMULATED")
endif()
if(TAPEFORMER_CUDA MATCHES "^(AUTO|ON)$")
  find_program(TAPEFORMER_NVCC NAMES $ENV{CUDACXX} nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
endif()
if(TAPEFORMER_CUDA MATCHES "^(AUTO|EMULATED)$")
  find_package(boost_context CONFIG QUIET)
endif()

set(tapeformer_cuda_mode OFF)
set(reason "left out, as TAPEFORMER_CUDA says")
if(TAPEFORMER_CUDA STREQUAL ON AND NOT TAPEFORMER_NVCC)
  message(FATAL_ERROR "TAPEFORMER_CUDA=ON, but nvcc is not found: install the CUDA toolkit, or name the compiler "
                      "with -DTAPEFORMER_NVCC=/path/to/nvcc")
elseif(TAPEFORMER_CUDA STREQUAL EMULATED AND NOT boost_context_FOUND)
  message(FATAL_ERROR "TAPEFORMER_CUDA=EMULATED needs Boost.Context (Debian: libboost-context-dev)")
elseif(TAPEFORMER_CUDA MATCHES "^(AUTO|ON)$" AND TAPEFORMER_NVCC)
  set(tapeformer_cuda_mode DEVICE)
elseif(TAPEFORMER_CUDA STREQUAL EMULATED OR (TAPEFORMER_CUDA STREQUAL AUTO AND TAPEFORMER_TESTS AND boost_context_FOUND))
  set(tapeformer_cuda_mode EMULATED)
  set(reason "emulated on the CPU for the tests")
elseif(TAPEFORMER_CUDA STREQUAL AUTO)
  set(reason "left out: nvcc is not found")
endif()

# tapeformer_gencode(VARIABLE architecture…): nvcc's options for architectures such as 80, 86-real and 90a-real;
# empty for lists with other words. Reading the sources for an architecture takes longer than making its
# machine code: where only that is asked for, it is made from the PTX of the first architecture of the list that
# has PTX for later ones. So no kernel may count on what only a later one has, such as the instructions of 90a.
function(tapeformer_gencode result)
  set(options "")
  foreach(word IN LISTS ARGN)
    if(NOT word MATCHES "^([0-9]+)([af]?)(-real|-virtual)?$")
      set(${result} "" PARENT_SCOPE)
      return()
    endif()
    set(number ${CMAKE_MATCH_1})
    set(name "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    set(kind "${CMAKE_MATCH_3}")
    set(source ${name})
    if(kind STREQUAL -real AND DEFINED first AND number GREATER_EQUAL first)
      set(source ${first})
    elseif(name STREQUAL number AND NOT DEFINED first)  # PTX of 90a is for 90a only
      set(first ${number})
    endif()
    if(NOT kind STREQUAL -virtual)
      list(APPEND options -gencode=arch=compute_${source},code=sm_${name})
    endif()
    if(NOT kind STREQUAL -real)
      list(APPEND options -gencode=arch=compute_${name},code=compute_${name})
    endif()
  endforeach()
  set(${result} "${options}" PARENT_SCOPE)
endfunction()

if(tapeformer_cuda_mode STREQUAL DEVICE)
  set(CMAKE_CUDA_COMPILER ${TAPEFORMER_NVCC})
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${TAPEFORMER_CUDA_ARCHITECTURES})  # of the compiler check
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc has it since 12.0, which CMake 3.25 has not heard of
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  tapeformer_gencode(gencode ${TAPEFORMER_CUDA_ARCHITECTURES})
  if(gencode)
    set_target_properties(tapeformer_core PROPERTIES CUDA_ARCHITECTURES OFF)
  else()
    set_target_properties(tapeformer_core PROPERTIES CUDA_ARCHITECTURES "${TAPEFORMER_CUDA_ARCHITECTURES}")
  endif()
  find_package(CUDAToolkit REQUIRED)
  set(reason "nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${TAPEFORMER_CUDA_ARCHITECTURES}")
endif()
message(STATUS "CUDA backend: ${reason}")

function(tapeformer_cuda_sources)
  if(tapeformer_cuda_mode STREQUAL OFF)
    return()
  endif()
  target_sources(tapeformer_core PRIVATE ${ARGN})
  list(FILTER ARGN INCLUDE REGEX "\\.cu$")
  if(tapeformer_cuda_mode STREQUAL DEVICE)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY tapeformer_core PROPERTIES
      COMPILE_DEFINITIONS TAPEFORMER_ONLY_FLOAT COMPILE_OPTIONS "${gencode}")
  elseif(tapeformer_cuda_mode STREQUAL EMULATED)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY tapeformer_core PROPERTIES LANGUAGE CXX)
    if(CMAKE_BUILD_TYPE STREQUAL Release)  # they are tested, not timed
      set_source_files_properties(${ARGN} TARGET_DIRECTORY tapeformer_core PROPERTIES COMPILE_OPTIONS -O1)
    endif()
  endif()
endfunction()

# The same for small files, which nvcc reads as one: most of the time that they take goes into the headers.
function(tapeformer_cuda_sources_together name)
  if(NOT tapeformer_cuda_mode STREQUAL DEVICE)
    tapeformer_cuda_sources(${ARGN})
    return()
  endif()
  tapeformer_cuda_file(${name} ${ARGN})
  tapeformer_cuda_sources(${CMAKE_CURRENT_BINARY_DIR}/${name}.cu)
endfunction()

# What files that are added by the functions above have in TAPEFORMER_DOUBLE(…), which is left out there. Kernels in
# double are there for the tests, so that PTX is enough, of which the driver makes what a device needs.
function(tapeformer_cuda_double name)
  if(NOT tapeformer_cuda_mode STREQUAL DEVICE)
    return()
  endif()
  tapeformer_cuda_file(${name} ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu)
  target_sources(tapeformer_core PRIVATE ${source})
  set_source_files_properties(${source} TARGET_DIRECTORY tapeformer_core PROPERTIES COMPILE_DEFINITIONS TAPEFORMER_ONLY_DOUBLE)
  if(gencode)
    set_source_files_properties(${source} TARGET_DIRECTORY tapeformer_core PROPERTIES
      COMPILE_OPTIONS -gencode=arch=compute_80,code=compute_80)
  endif()
endfunction()

# Writes a file that includes others.
function(tapeformer_cuda_file name)
  list(TRANSFORM ARGN PREPEND "#include \"${CMAKE_CURRENT_SOURCE_DIR}/")
  list(TRANSFORM ARGN APPEND "\"\n")
  list(JOIN ARGN "" includes)
  file(CONFIGURE OUTPUT ${name}.cu CONTENT "${includes}" @ONLY)
endfunction()

if(tapeformer_cuda_mode STREQUAL OFF)
  return()
endif()
target_compile_definitions(tapeformer_core PUBLIC TAPEFORMER_CUDA)
if(tapeformer_cuda_mode STREQUAL EMULATED)
  target_compile_definitions(tapeformer_core PRIVATE TAPEFORMER_CUDA_EMULATED)
  target_link_libraries(tapeformer_core PRIVATE Boost::context)
else()
  target_link_libraries(tapeformer_core PRIVATE CUDA::cudart_static CUDA::cublas CUDA::cublasLt)
  # What the host does in these files is to launch kernels, for which -O1 of its compiler is enough.
  target_compile_options(tapeformer_core PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-O1>")
endif()
