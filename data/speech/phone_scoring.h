// Scoring of recognised phones against a reference: alignments, the phone error rate of a corpus, confusions,
// and files for NIST's sclite. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/speech/phones.h"

namespace tapeformer {

// One column of an alignment. reference "": an insertion; hypothesis "": a deletion.
struct AlignedPhone {
  std::string reference, hypothesis;
  bool operator==(const AlignedPhone&) const = default;
};

// The weights of the errors whose sum an alignment minimises.
struct ErrorWeights {
  int64_t substitution = 1, deletion = 1, insertion = 1;
};
// Equal weights: the sum is the number of errors (Levenshtein distance), as in Kaldi's compute-wer.
inline constexpr ErrorWeights kEqualWeights;
// The weights of NIST's sclite. With these weights, an alignment may have more errors than the minimum.
inline constexpr ErrorWeights kScliteWeights{4, 3, 3};

// Returns an alignment with the smallest weighted sum of substitutions, deletions and insertions. If there
// are several such alignments, the choice from the end prefers a match or substitution to a deletion, and a
// deletion to an insertion.
std::vector<AlignedPhone> align_phones(const Words& reference, const Words& hypothesis,
                                       const ErrorWeights& weights = kEqualWeights);

struct PhoneScore {
  int64_t substitutions = 0, deletions = 0, insertions = 0;
  int64_t reference = 0;                                              // phones
  int64_t utterances = 0, wrong = 0;                                  // with any error
  std::map<std::pair<std::string, std::string>, int64_t> confusions;  // errors only; "" as in AlignedPhone

  int64_t errors() const { return substitutions + deletions + insertions; }
  // Returns errors / reference in percent. If `reference` is 0, returns 0 without errors, else infinity.
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
