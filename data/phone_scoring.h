// How far a recognised sequence of phones is from what was said: edit distance, the phone error rate over a
// corpus, confusions, and files for NIST's sclite. Pure functions but for the files; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/phones.h"

namespace tapeformer {

// One column of an alignment. reference "": an insertion; hypothesis "": a deletion.
struct AlignedPhone {
  std::string reference, hypothesis;
  bool operator==(const AlignedPhone&) const = default;
};

// What an alignment minimises.
struct ErrorWeights {
  int64_t substitution = 1, deletion = 1, insertion = 1;
};
// The number of errors, as Kaldi's compute-wer counts (Levenshtein distance).
inline constexpr ErrorWeights kEqualWeights;
// The weights of NIST's sclite. Three substitutions cost as much as two deletions and two insertions, so that
// its alignment may have more errors than the smallest number.
inline constexpr ErrorWeights kScliteWeights{4, 3, 3};

// Returns an alignment of the smallest weighted sum of substitutions, deletions and insertions. Of several
// such, a match or substitution goes before a deletion, and a deletion before an insertion, counted from the
// end.
std::vector<AlignedPhone> align_phones(const Words& reference, const Words& hypothesis,
                                       const ErrorWeights& weights = kEqualWeights);

struct PhoneScore {
  int64_t substitutions = 0, deletions = 0, insertions = 0;
  int64_t reference = 0;                                              // phones
  int64_t utterances = 0, wrong = 0;                                  // with any error
  std::map<std::pair<std::string, std::string>, int64_t> confusions;  // errors only; "" as in AlignedPhone

  int64_t errors() const { return substitutions + deletions + insertions; }
  // errors / reference in percent; without reference phones 0 if there are no errors, else infinite.
  double error_rate() const;
  void add(const Words& reference, const Words& hypothesis);
  void add(const PhoneScore& other);
  // "%PER 18.42 [ 1330 / 7215, 173 ins, 401 del, 756 sub ]", as Kaldi's compute-wer prints words.
  std::string line() const;
  // The most frequent errors, most first: "ih -> ah", "ih -> (deleted)", "(inserted) -> ah".
  std::vector<std::pair<std::string, int64_t>> worst(size_t count) const;
};

// Two lines of phones one above the other, "***" where one has none.
std::string alignment_text(const std::vector<AlignedPhone>& alignment);

struct ScoredUtterance {
  std::string id;  // sclite takes what precedes the first _ or - as the speaker
  Words reference, hypothesis;
};

// ref.trn and hyp.trn in the folder: "phones … (id)" per utterance. Characters of phones that sclite reads as
// marks are written as = and two hex digits. sclite must be told (-s) that case matters.
void write_trn_files(const std::filesystem::path& folder, const std::vector<ScoredUtterance>& utterances);

}  // namespace tapeformer
