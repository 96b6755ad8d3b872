# Finds SentencePiece as the target tapeformer::sentencepiece: tokenizers for texts. Debian: libsentencepiece-dev. The
# installed package contains this file, because its users link the same library.
find_library(SENTENCEPIECE_LIBRARY NAMES sentencepiece)
find_library(SENTENCEPIECE_TRAIN_LIBRARY NAMES sentencepiece_train)
find_path(SENTENCEPIECE_INCLUDE sentencepiece_trainer.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece REQUIRED_VARS SENTENCEPIECE_LIBRARY SENTENCEPIECE_TRAIN_LIBRARY
  SENTENCEPIECE_INCLUDE)
mark_as_advanced(SENTENCEPIECE_LIBRARY SENTENCEPIECE_TRAIN_LIBRARY SENTENCEPIECE_INCLUDE)

if(SentencePiece_FOUND AND NOT TARGET tapeformer::sentencepiece)
  add_library(tapeformer::sentencepiece UNKNOWN IMPORTED)
  set_target_properties(tapeformer::sentencepiece PROPERTIES IMPORTED_LOCATION "${SENTENCEPIECE_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SENTENCEPIECE_INCLUDE}" INTERFACE_LINK_LIBRARIES "${SENTENCEPIECE_TRAIN_LIBRARY}")
endif()
