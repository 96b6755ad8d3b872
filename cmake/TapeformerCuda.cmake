# The CUDA backend. TAPEFORMER_CUDA=ON compiles kernels for devices, EMULATED for an emulation on the CPU, and OFF
# leaves them out. AUTO means ON if nvcc is found, else EMULATED if tests are built and Boost.Context is found, else
# OFF. Sets tapeformer_cuda_mode to DEVICE, EMULATED or OFF, and defines tapeformer_cuda_sources(file…), which adds
# sources to tapeformer_core unless the mode is OFF.
set(TAPEFORMER_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON, OFF or EMULATED (on the CPU, for tests)")
set_property(CACHE TAPEFORMER_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
# Machine code for Ampere, Ada, Hopper and Blackwell, and PTX of Ampere for other devices.
set(TAPEFORMER_CUDA_ARCHITECTURES "80;86-real;89-real;90a-real;100-real"
    CACHE STRING "Architectures of devices, in the format of CMAKE_CUDA_ARCHITECTURES")

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
set(reason "left out: TAPEFORMER_CUDA=OFF")
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

# tapeformer_gencode(VARIABLE architecture…): sets VARIABLE to nvcc's options for architectures such as 80, 86-real and
# 90a-real. If an architecture has another form, sets it to an empty list. nvcc takes longer to parse sources for an
# architecture than to generate its machine code. Machine code of a -real architecture is therefore generated from the
# PTX of the first architecture in the list that is not newer. Therefore, kernels must not use instructions that only
# newer architectures have, such as the instructions of 90a.
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
    elseif(name STREQUAL number AND NOT DEFINED first)  # PTX of 90a runs only on devices of 90a
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
  set(CMAKE_CUDA_ARCHITECTURES ${TAPEFORMER_CUDA_ARCHITECTURES})  # enable_language() checks the compiler with this list
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc 12 has this option; CMake 3.25 does not know it
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

# Adds sources to tapeformer_core unless the mode is OFF.
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
    if(CMAKE_BUILD_TYPE STREQUAL Release)  # shortens the build; only tests run these kernels
      # Headers that are precompiled with -O3 cannot be used with -O1: g++ 13 and later refuse them.
      set_source_files_properties(${ARGN} TARGET_DIRECTORY tapeformer_core PROPERTIES COMPILE_OPTIONS -O1
        SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endif()
endfunction()

# Same as tapeformer_cuda_sources for small files. nvcc compiles them as one file, because headers dominate the
# compile time of each file.
function(tapeformer_cuda_sources_together name)
  if(tapeformer_cuda_mode STREQUAL DEVICE)
    tapeformer_cuda_file(${name} ${ARGN})
    set(ARGN ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu)
  endif()
  tapeformer_cuda_sources(${ARGN})
endfunction()

# Compiles the double-precision instances, TAPEFORMER_DOUBLE(…), of files that the functions above compile without these
# instances. Only tests run kernels in double, so their PTX is enough: the driver compiles it for the device.
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

# Writes NAME.cu, which includes the files.
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
  # The host code of these files only launches kernels, so -O1 suffices.
  target_compile_options(tapeformer_core PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-O1>")
endif()
