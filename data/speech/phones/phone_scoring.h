// Scoring of recognised phones: alignments with a reference, the phone error rate of a corpus, confusions,
// and files for NIST's sclite. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/speech/phones/phones.h"

namespace tapeformer {

// A pair of aligned phones. If `reference` is empty, the pair is an insertion. If `hypothesis` is empty, the
// pair is a deletion.
struct AlignedPhone {
  std::string reference, hypothesis;
  bool operator==(const AlignedPhone&) const = default;
};

// Weights of the errors in align_phones().
struct ErrorWeights {
  int64_t substitution = 1, deletion = 1, insertion = 1;
};
// Equal weights for all errors, as in Kaldi's compute-wer. An alignment with equal weights has the smallest
// possible number of errors.
inline constexpr ErrorWeights kEqualWeights;
// The weights of errors in sclite. An alignment with the weights of sclite can have more errors than with
// equal weights.
inline constexpr ErrorWeights kScliteWeights{4, 3, 3};

// Returns an alignment with the smallest sum of error weights. If there are several such alignments, the
// alignment is chosen from the end of the sequences to their start: a match or a substitution is preferred to
// a deletion, and a deletion is preferred to an insertion.
std::vector<AlignedPhone> align_phones(const Words& reference, const Words& hypothesis,
                                       const ErrorWeights& weights = kEqualWeights);

struct PhoneScore {
  int64_t substitution_count = 0, deletion_count = 0, insertion_count = 0;
  int64_t reference_count = 0;  // number of phones in the references
  int64_t utterance_count = 0;
  int64_t wrong_utterance_count = 0;  // number of utterances with errors
  // Number of errors for each pair (reference phone, hypothesis phone). The reference phone of an insertion
  // and the hypothesis phone of a deletion are empty.
  std::map<std::pair<std::string, std::string>, int64_t> confusions;

  int64_t error_count() const { return substitution_count + deletion_count + insertion_count; }
  // Returns error_count() / reference_count in percent. If `reference_count` is 0, returns 0 if there are no
  // errors, else infinity.
  double error_rate_percent() const;
  void add(const Words& reference, const Words& hypothesis);
  void add(const PhoneScore& other);
  // Returns a line such as "%PER 18.42 [ 1330 / 7215, 173 ins, 401 del, 756 sub ]", the format of
  // compute-wer.
  std::string format_line() const;
  // Returns the `count` most frequent errors in decreasing order of frequency: "ih -> ah", "ih -> (deleted)",
  // "(inserted) -> ah".
  std::vector<std::pair<std::string, int64_t>> find_most_frequent_errors(size_t count) const;
};

// Returns the alignment as two lines, with "***" for insertions and deletions.
std::string format_alignment(const std::vector<AlignedPhone>& alignment);

struct ScoredUtterance {
  std::string id;  // sclite uses the part before the first _ or - as the speaker
  Words reference, hypothesis;
};

// Returns the contents of ref.trn and hyp.trn, with a line "phones … (id)" per utterance. Characters with a
// special meaning in sclite are written as = and two hexadecimal digits. Run sclite with the option -s,
// because the names of phones are case-sensitive.
std::pair<std::string, std::string> format_trn(const std::vector<ScoredUtterance>& utterances);

}  // namespace tapeformer
