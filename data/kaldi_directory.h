// Data directories of Kaldi: wav.scp, segments, text, utt2spk or feats.scp, each "id value …" sorted by the
// bytes of the ids.
//
// Errors: DataError names every fault by file and line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus.h"

namespace tapeformer {

// A relative path in a list counts from the current directory, as in Kaldi, or else from the directory
// itself. Where feats.scp is, its features are used and wav.scp is not needed. Commands ("id command |") are
// refused unless they are allowed: a list of files must not run programs by itself. What `text` says are
// words; take_words_as_phones makes them labels. Faults of one utterance (no such file, an offset outside of
// its archive, an empty transcript) are none here: SpeechDataset names and leaves out what it cannot use.
Corpus read_kaldi_directory(const std::filesystem::path& folder, bool allow_commands = false);

// Returns all faults of the directory, including commands and faults of single utterances. If `contents` is
// true and the lists are consistent, computes the features of every utterance, too.
Faults kaldi_problems(const std::filesystem::path& folder, bool contents = true, bool allow_commands = false);

// Returns the same faults, with a check of the contents that several directories share.
class ContentCheck;
Faults kaldi_problems(const std::filesystem::path& folder, ContentCheck& check_one, bool allow_commands);

// For directories whose text is phones already.
void take_words_as_phones(Corpus& corpus);

// Writes wav.scp, text and utt2spk, sorted.
void write_kaldi_directory(const std::filesystem::path& folder, const Corpus& corpus);

}  // namespace tapeformer
