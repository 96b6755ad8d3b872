// Lengths in the headers of recordings. Internal to data/audio.
//
// libsndfile reads truncated WAV, AU, SPHERE and Ogg files up to their end without an error, so
// read_sound_header() compares the sizes in the header with the size of the file.
#pragma once

#include <cstdint>
#include <optional>

#include "data/audio/sound_bytes.h"

namespace tapeformer {

enum class SoundContainer { wav, au, sphere, ogg, other };

struct SoundHeader {
  SoundContainer container = SoundContainer::other;
  // Offset of the end of the samples. std::nullopt: the header does not contain the length, so the samples
  // extend to the end of the file or pipe.
  std::optional<int64_t> end = {};
  // Whether a WAV contains PCM, floating-point, A-law or mu-law samples.
  bool is_uncompressed_wav = false;
};

// Reads the header of a recording. If the header of a WAV or AU recording does not contain the length,
// replaces bytes of the header, so that libsndfile reads up to the end.
//
// Throws DataError if the source is an empty or truncated file, has several Ogg streams one after the other,
// or is compressed with shorten. Does not detect truncated FLAC files, because their decoder reports them.
SoundHeader read_sound_header(SoundBytes& bytes);

}  // namespace tapeformer
