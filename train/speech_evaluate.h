// Evaluation of a speech model: loss and phone error rate on a part of a corpus.
#pragma once

#include <string>
#include <vector>

#include "data/phone_scoring.h"
#include "models/ctc_decoding.h"
#include "train/signals.h"
#include "train/speech_data.h"

namespace tapeformer {

struct SpeechEvaluationOptions {
  int64_t beam = 0;            // prefixes of a beam search; 0: the most probable class of every frame
  int64_t max_frames = 20000;  // of a batch
  int64_t max_batch = 0;       // utterances; 0: any number
  bool fold_timit = false;     // score 39 phones of TIMIT
};

struct SpeechEvaluation {
  std::string split;
  PhoneScore score;
  double nats_per_utterance = 0;  // mean CTC loss of those with frames enough for their labels
  int64_t infeasible = 0;         // the others: they are scored, but have no loss
  double seconds = 0;
  std::vector<ScoredUtterance> utterances;  // in the order of the corpus
};

// Throws Stopped if `stop` returns true before a batch.
// All usable utterances, without dropout, from short to long. In the dtype of the model.
SpeechEvaluation evaluate(const SpeechModel& model, const SpeechPart& part,
                          const SpeechEvaluationOptions& options, const StopCheck& stop = {});
// The options that follow from a config.
SpeechEvaluationOptions evaluation_options(const Config& config);

// Labels of every utterance of a batch.
std::vector<CtcLabels> decode(const SpeechOutput& output, int64_t beam);

}  // namespace tapeformer
