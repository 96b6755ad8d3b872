# Checks that FindOneDNN.cmake does not find oneDNN in a folder without its headers.
list(APPEND CMAKE_MODULE_PATH ${SOURCE_DIR}/cmake)
set(ONEDNN_LIBRARY ${SOURCE_DIR}/missing/libdnnl.so)
set(ONEDNN_INCLUDE ${SOURCE_DIR}/missing)
find_package(OneDNN QUIET)
if(NOT DEFINED OneDNN_FOUND OR OneDNN_FOUND)
  message(FATAL_ERROR "OneDNN_FOUND is \"${OneDNN_FOUND}\" without headers")
endif()
