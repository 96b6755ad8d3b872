#include "train/speech_evaluate.h"

#include <chrono>

namespace tapeformer {

std::vector<CtcLabels> decode(const SpeechOutput& output, int64_t beam) {
  if (beam == 0) return ctc_greedy(output.logits, output.lengths, kSpeechBlank);
  std::vector<CtcLabels> result;
  for (auto& hypotheses :
       ctc_beam_search(output.logits, output.lengths, {.blank = kSpeechBlank, .beam = beam}))
    result.push_back(hypotheses.empty() ? CtcLabels{} : std::move(hypotheses.front().labels));
  return result;
}

SpeechEvaluationOptions evaluation_options(const Config& config) {
  return {.beam = 0,
          .max_frames = config.data.max_frames,
          .max_batch = config.train.eval_batch_size,
          .fold_timit = config.data.dataset == "timit"};
}

SpeechEvaluation evaluate(const SpeechModel& model, const SpeechPart& part,
                          const SpeechEvaluationOptions& options, const StopCheck& stop) {
  const auto begin = std::chrono::steady_clock::now();
  const NoGrad no_grad;
  const SpeechDataset& set = *part.set;
  const DType dtype = model.head.weight.dtype();
  SpeechEvaluation result;
  result.split = part.split;
  result.utterances.resize(part.usable.size());
  const auto names = [&](const CtcLabels& labels) {
    const Words phones = set.phones().phones(labels);
    return options.fold_timit ? fold_timit(phones, PhoneSet::timit39) : phones;
  };
  double nats = 0;
  int64_t feasible = 0;
  for (const auto& places : plan_batches(
           part.frames(),
           {.max_frames = options.max_frames, .max_batch = options.max_batch, .shuffle = false}, 0)) {
    throw_if_stopped(stop);
    std::vector<int64_t> indices;
    for (const int64_t place : places) indices.push_back(part.usable[static_cast<size_t>(place)]);
    const SpeechBatch batch = set.batch(indices);
    const SpeechOutput output = model.forward(batch.features.to(dtype), batch.lengths, {});
    const CtcLoss loss =
        ctc_loss(output.logits, output.lengths, batch.labels, batch.label_lengths, {.blank = kSpeechBlank});
    for (const double one : loss.losses.to_vector()) nats += one;
    result.infeasible += loss.infeasible;
    feasible += static_cast<int64_t>(indices.size()) - loss.infeasible;
    const auto found = decode(output, options.beam);
    for (size_t b = 0; b < indices.size(); ++b)
      result.utterances[static_cast<size_t>(places[b])] = {set.utterance(indices[b]).id,
                                                           names(set.labels(indices[b])), names(found[b])};
  }
  for (const ScoredUtterance& one : result.utterances) result.score.add(one.reference, one.hypothesis);
  result.nats_per_utterance = feasible > 0 ? nats / static_cast<double>(feasible) : 0;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tapeformer
