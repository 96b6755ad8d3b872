# Options with the values AUTO, ON and OFF, which select optional libraries.

# Fails if the value of TAPEFORMER_${option} is invalid.
function(tapeformer_check_choice option)
  if(NOT TAPEFORMER_${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TAPEFORMER_${option} must be AUTO, ON or OFF, not ${TAPEFORMER_${option}}")
  endif()
endfunction()

# Finds a package, with the arguments in ARGN. Fails if the package is missing and TAPEFORMER_${option} is ON. A macro
# is used, because find_package() sets variables of the caller.
macro(tapeformer_find_optional option package debian)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND AND TAPEFORMER_${option} STREQUAL ON)
    message(FATAL_ERROR "TAPEFORMER_${option}=ON, but ${package} was not found. Debian: ${debian}")
  endif()
endmacro()
