# Finds the libraries for audio as the targets tapeformer::sndfile (audio files), tapeformer::samplerate (resampling)
# and tapeformer::kissfft (float32 Fourier transforms). Debian: libsndfile1-dev, libsamplerate0-dev, libkissfft-dev. The
# installed package contains this file, because programs that use the package link the same libraries.
find_library(SNDFILE_LIBRARY NAMES sndfile)
find_path(SNDFILE_INCLUDE sndfile.h)
find_library(SAMPLERATE_LIBRARY NAMES samplerate)
find_path(SAMPLERATE_INCLUDE samplerate.h)
find_library(KISSFFT_LIBRARY NAMES kissfft-float)
find_path(KISSFFT_INCLUDE kissfft/kiss_fft.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SpeechLibraries REQUIRED_VARS SNDFILE_LIBRARY SNDFILE_INCLUDE
  SAMPLERATE_LIBRARY SAMPLERATE_INCLUDE KISSFFT_LIBRARY KISSFFT_INCLUDE)
mark_as_advanced(SNDFILE_LIBRARY SNDFILE_INCLUDE SAMPLERATE_LIBRARY SAMPLERATE_INCLUDE KISSFFT_LIBRARY
                 KISSFFT_INCLUDE)

include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
if(SpeechLibraries_FOUND)
  foreach(library sndfile samplerate kissfft)
    string(TOUPPER ${library} upper)
    tapeformer_import_library(tapeformer::${library} "${${upper}_LIBRARY}" "${${upper}_INCLUDE}")
  endforeach()
endif()
