# Finds SentencePiece as the target tapeformer::sentencepiece: tokenizers for texts. Debian: libsentencepiece-dev. The
# installed package contains this file, because programs that use the package link the same library.
find_library(SENTENCEPIECE_LIBRARY NAMES sentencepiece)
find_library(SENTENCEPIECE_TRAIN_LIBRARY NAMES sentencepiece_train)
find_path(SENTENCEPIECE_INCLUDE sentencepiece_trainer.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece REQUIRED_VARS SENTENCEPIECE_LIBRARY SENTENCEPIECE_TRAIN_LIBRARY
  SENTENCEPIECE_INCLUDE)
mark_as_advanced(SENTENCEPIECE_LIBRARY SENTENCEPIECE_TRAIN_LIBRARY SENTENCEPIECE_INCLUDE)

include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
if(SentencePiece_FOUND)
  tapeformer_import_library(tapeformer::sentencepiece "${SENTENCEPIECE_LIBRARY}" "${SENTENCEPIECE_INCLUDE}")
  set_target_properties(tapeformer::sentencepiece PROPERTIES INTERFACE_LINK_LIBRARIES "${SENTENCEPIECE_TRAIN_LIBRARY}")
endif()
