// Data directories of Kaldi: wav.scp, segments, text, utt2spk or feats.scp, each "id value …" sorted by the
// bytes of the ids.
//
// Throws DataError with the file and line of every fault.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/corpus.h"

namespace tapeformer {

// Reads a data directory. Relative paths are resolved in the current directory, as in Kaldi, else in
// `folder`. If feats.scp exists, wav.scp is not read. Commands ("id command |") are refused unless
// `allow_commands` is true, so that a list cannot run programs by itself. The contents of `text` are words;
// take_words_as_phones makes them labels. Faults of single utterances (a missing file, an offset outside of
// the archive, an empty transcript) do not throw; SpeechDataset reports them and leaves the utterances out.
Corpus read_kaldi_directory(const std::filesystem::path& folder, bool allow_commands = false);

// Returns all faults of the directory, including commands and faults of single utterances. If `contents` is
// true and the lists are consistent, computes the features of every utterance, too.
Faults kaldi_problems(const std::filesystem::path& folder, bool contents = true, bool allow_commands = false);

// Returns the same faults, with a check of the contents that several directories share.
class ContentCheck;
Faults kaldi_problems(const std::filesystem::path& folder, ContentCheck& check_one, bool allow_commands);

// Uses the words as phones, for directories whose text contains phones.
void take_words_as_phones(Corpus& corpus);

// Writes wav.scp, text and utt2spk, sorted.
void write_kaldi_directory(const std::filesystem::path& folder, const Corpus& corpus);

}  // namespace tapeformer
