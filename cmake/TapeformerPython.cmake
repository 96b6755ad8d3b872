# The extension module of the Python package. Sets tapeformer_python to whether it is built. TAPEFORMER_PYTHON=AUTO builds it if
# nanobind is found: from PyPI (pip install nanobind) for the interpreter Python_EXECUTABLE, or from Debian (nanobind-dev).
set(TAPEFORMER_PYTHON OFF CACHE STRING "Extension module of the Python package (AUTO, ON, OFF)")
include(OptionalLibrary)
tapeformer_check_choice(PYTHON)

set(tapeformer_python OFF)
if(NOT TAPEFORMER_PYTHON STREQUAL OFF)
  find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
  if(Python_FOUND AND NOT nanobind_DIR)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(Python_FOUND)
    find_package(nanobind CONFIG QUIET)
  endif()
  if(nanobind_FOUND)
    set(tapeformer_python ON)
    message(STATUS "Python: extension module for ${Python_EXECUTABLE} ${Python_VERSION}")
  elseif(TAPEFORMER_PYTHON STREQUAL ON)
    message(FATAL_ERROR "TAPEFORMER_PYTHON=ON needs the headers of Python and nanobind for ${Python_EXECUTABLE} (Debian: "
                        "python3-dev nanobind-dev; PyPI: nanobind)")
  endif()
endif()
