// Functions that read, check and write Kaldi data directories. A data directory contains the files wav.scp
// (recordings) or feats.scp (features), segments, text and utt2spk. Every line of a file has the form "id
// value …". The lines of a file are sorted by the bytes of their ids.
//
// Functions throw DataError with the file and line of every fault.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/content_check.h"

namespace tapeformer {

// Returns whether the folder contains wav.scp, feats.scp or text.
bool is_kaldi_directory(const std::filesystem::path& folder);

// Reads a data directory. Relative paths in the files of the directory are resolved against the current
// directory, as in Kaldi. Relative paths that do not exist in the current directory are resolved against
// `folder`. If feats.scp exists, wav.scp is not read. As in Kaldi, a line of `segments` can end with a
// channel, and a line of feats.scp with a range such as "[0:10]"; see parse_matrix_range(). The transcripts
// in the file `text` are stored as words, even if they consist of phones.
//
// Throws DataError for commands ("id command |") unless `allow_commands` is true. Does not throw for a
// missing recording or archive, an offset outside of an archive, or an empty transcript; SpeechDataset
// reports these faults.
Corpus read_kaldi_directory(const std::filesystem::path& folder, bool allow_commands = false);

// Returns all faults of the directory, including the faults that `content_check` finds in the recordings and
// features. Commands in wav.scp are reported as faults unless `allow_commands` is true. If several
// directories share `content_check`, their features must have the same number of dimensions.
Faults find_kaldi_faults(const std::filesystem::path& folder, UtteranceChecker& content_check,
                         bool allow_commands);

// Copies the words of each utterance to its phones, for directories whose text consists of phones.
void copy_words_to_phones(Corpus& corpus);

// Writes the files wav.scp, text and utt2spk. The lines of each file are sorted by id. The file `text`
// contains the phones of each utterance, or the words if an utterance has no phones.
void write_kaldi_directory(const std::filesystem::path& folder, const Corpus& corpus);

}  // namespace tapeformer
