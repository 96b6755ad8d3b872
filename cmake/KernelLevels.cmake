# Builds of the CPU kernels for several processors. tapeformer_core is a shared library for TAPEFORMER_ARCH. For each level in
# TAPEFORMER_LEVELS, lib/glibc-hwcaps/LEVEL contains another copy, which differs only in the CPU kernels. The dynamic loader
# of glibc 2.33 and later selects the copy for the processor. Without TAPEFORMER_LEVELS, the libraries are static, and this
# file only sets compile and link options.
set(library_folder ${PROJECT_BINARY_DIR}/lib)

# The check of the processor must run on every processor, so it is compiled for all x86-64 processors.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set_source_files_properties(core/base/instruction_set.cpp core/cpu/processor_check.cpp TARGET_DIRECTORY tapeformer_core PROPERTIES
    COMPILE_OPTIONS "-march=x86-64;-mtune=generic" SKIP_PRECOMPILE_HEADERS ON)
endif()
list(JOIN TAPEFORMER_LEVELS " " levels)
if(levels)
  string(PREPEND levels "${TAPEFORMER_ARCH} ")
endif()
# Only one file gets the version, so that a new version does not compile the others again.
set_source_files_properties(core/system/machine.cpp TARGET_DIRECTORY tapeformer_core PROPERTIES COMPILE_DEFINITIONS
  "TAPEFORMER_ARCHITECTURES=\"${levels}\";TAPEFORMER_VERSION=\"${PROJECT_VERSION}\";TAPEFORMER_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\"")
set_source_files_properties(core/cpu/compiled_for.cpp TARGET_DIRECTORY tapeformer_core PROPERTIES
  COMPILE_DEFINITIONS "TAPEFORMER_ARCHITECTURE=\"${architecture}\"")

if(NOT TAPEFORMER_LEVELS)
  # No code calls the check of the processor, so -u is necessary to link it.
  target_link_options(tapeformer_core INTERFACE LINKER:-u,tapeformer_require_instruction_set)
  return()
endif()

if(TAPEFORMER_ARCH STREQUAL native)
  message(FATAL_ERROR "TAPEFORMER_LEVELS needs TAPEFORMER_ARCH with the lowest level, such as x86-64-v2, not native")
endif()

# -Bsymbolic-functions binds calls to the functions of the same copy, because the program may contain inline functions that
# are compiled for another level.
function(tapeformer_core_library target folder)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME tapeformer_core SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LIBRARY_OUTPUT_DIRECTORY ${library_folder}/${folder} INSTALL_RPATH_USE_LINK_PATH ON)
  target_link_options(${target} PRIVATE LINKER:-Bsymbolic-functions)
endfunction()

# Gives a target the properties of tapeformer_core, so that it compiles sources in the same way.
function(tapeformer_like_core target level)
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_LIBRARIES LINK_OPTIONS)
    get_target_property(value tapeformer_core ${property})
    if(value)
      set_target_properties(${target} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES TAPEFORMER_LEVEL ${level} POSITION_INDEPENDENT_CODE ON)
endfunction()

# tapeformer_core consists of its own objects and the kernels of TAPEFORMER_ARCH. The copies for other levels consist of the
# same objects and other kernels.
get_target_property(other_sources tapeformer_core SOURCES)
set(kernels ${other_sources})
list(FILTER kernels INCLUDE REGEX "/(core|ops)/cpu/")
list(FILTER other_sources EXCLUDE REGEX "/(core|ops)/cpu/")
foreach(level ${TAPEFORMER_ARCH} ${TAPEFORMER_LEVELS})
  add_library(tapeformer_kernels_${level} OBJECT ${kernels})
  tapeformer_like_core(tapeformer_kernels_${level} ${level})
  set_target_properties(tapeformer_kernels_${level} PROPERTIES UNITY_BUILD_UNIQUE_ID kGrain)  # the name of many constants
  target_precompile_headers(tapeformer_kernels_${level} PRIVATE ${TAPEFORMER_STANDARD_HEADERS})
endforeach()
set_target_properties(tapeformer_core PROPERTIES SOURCES "${other_sources};$<TARGET_OBJECTS:tapeformer_kernels_${TAPEFORMER_ARCH}>")
foreach(level ${TAPEFORMER_LEVELS})
  set(target tapeformer_core_${level})
  add_library(${target} SHARED $<TARGET_OBJECTS:tapeformer_kernels_${level}> $<TARGET_OBJECTS:tapeformer_core>)
  tapeformer_like_core(${target} ${level})
  tapeformer_core_library(${target} glibc-hwcaps/${level})
  add_dependencies(tapeformer_cli ${target})
endforeach()
tapeformer_core_library(tapeformer_core "")
