// Evaluation of a speech model: loss and phone error rate on a part of a corpus. The phone error rate
// includes all utterances, so that models are comparable: the phones of an utterance that the model cannot
// process count as deletions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/speech/phones/phone_scoring.h"
#include "models/speech/ctc_decoding.h"
#include "train/distributed/communicator.h"
#include "train/signals.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {

struct SpeechEvaluationOptions {
  int64_t beam_size = 0;           // number of prefixes in a beam search; 0: greedy decoding
  int64_t max_frames = 20000;      // BucketPlanOptions::max_batch_length of the evaluation batches
  int64_t max_batch_size = 0;      // maximum number of utterances in a batch; 0: no limit
  bool fold_timit_phones = false;  // whether to map the phones to the 39 TIMIT phones before scoring
};

struct UnprocessedUtterance {
  std::string id, reason;
  int64_t frame_count = 0, phone_count = 0;
};

struct SpeechEvaluation {
  PhoneScore score;            // score of all utterances
  PhoneScore processed_score;  // score without the unprocessed utterances
  std::vector<UnprocessedUtterance> unprocessed;
  // The mean CTC loss of the utterances that have a loss, or std::nullopt if there are none. An utterance has
  // no loss if it has fewer steps than its labels need, or if one of its phones does not occur in training.
  // `score` includes the utterances without a loss.
  std::optional<double> mean_ctc_loss;
  int64_t utterance_without_loss_count = 0;  // processed utterances that have no loss
  std::vector<ScoredUtterance> utterances;   // all utterances in the order of the corpus
};

// Evaluates all utterances of the part, in the dtype of the model and without dropout. The batches are
// distributed among the processes. All processes return the same result, which does not depend on the number
// of processes.
//
// Throws StoppedError if `stop` returns true before a batch. Each process calls `stop` the same number of
// times.
SpeechEvaluation evaluate(const SpeechModel& model, const SpeechPart& part,
                          const SpeechEvaluationOptions& options, const StopCheck& stop = {},
                          Communicator& processes = *get_single_process_communicator());
SpeechEvaluationOptions make_speech_evaluation_options(const Config& config);

// Returns a text with the phone error rate of the processed utterances, and the numbers of utterances and
// phones that the model cannot process. Returns "" if the model processes all utterances.
std::string describe_processed_score(const SpeechEvaluation& evaluation);

// Returns the decoded labels of each utterance of a batch. `beam_size` is the number of prefixes in a beam
// search. If `beam_size` is 0, uses greedy decoding.
std::vector<CtcLabels> decode_labels(const SpeechOutput& output, int64_t beam_size);

}  // namespace tapeformer
