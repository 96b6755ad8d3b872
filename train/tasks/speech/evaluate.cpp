#include "train/tasks/speech/evaluate.h"

#include <chrono>

#include "core/errors.h"
#include "data/catalogue.h"

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
  const int64_t batch = config.train.eval_batch_size;
  return {.beam = 0,
          .max_frames = config.data.max_frames,
          .max_batch = batch > 0 ? batch : config.data.batch_size,
          .fold_timit = known_set(config.data.dataset).format == DatasetFormat::timit};
}

namespace {

// Appends utterances that the model cannot process to the list of unprocessed utterances.
void add_unprocessed(const SpeechPart& part, const std::vector<int64_t>& indices, const std::string& reason,
                     SpeechEvaluation& result) {
  for (const int64_t i : indices)
    result.unprocessed.push_back({part.set->utterance(i).id, reason, part.set->frames(i),
                                  static_cast<int64_t>(part.set->reference(i).size())});
}

}  // namespace

SpeechEvaluation evaluate(const SpeechModel& model, const SpeechPart& part,
                          const SpeechEvaluationOptions& options, const StopCheck& stop) {
  const auto begin = std::chrono::steady_clock::now();
  const NoGrad no_grad;
  const SpeechDataset& set = *part.set;
  const DType dtype = model.head.weight.dtype();
  SpeechEvaluation result;
  result.split = part.split;
  const auto folded = [&](const Words& phones) {
    return options.fold_timit ? fold_timit(phones, PhoneSet::timit39) : phones;
  };
  for (int64_t i = 0; i < set.size(); ++i)
    result.utterances.push_back({set.utterance(i).id, folded(set.reference(i)), {}});
  double nats = 0;
  int64_t with_loss = 0;
  for (const auto& places : plan_batches(
           part.frames(),
           {.max_frames = options.max_frames, .max_batch = options.max_batch, .shuffle = false}, 0)) {
    throw_if_stopped(stop);
    std::vector<int64_t> indices;
    for (const int64_t place : places) indices.push_back(part.usable[static_cast<size_t>(place)]);
    const SpeechBatch batch = set.batch(indices);
    const SpeechOutput output = model.forward(batch.features.to(dtype), batch.lengths, {});
    const auto losses =
        ctc_loss(output.logits, output.lengths, batch.labels, batch.label_lengths, {.blank = kSpeechBlank})
            .losses.to_vector();
    const auto found = decode(output, options.beam);
    for (size_t b = 0; b < indices.size(); ++b) {
      if (set.has_loss(indices[b])) {
        nats += losses[b];
        ++with_loss;
      }
      ScoredUtterance& scored = result.utterances[static_cast<size_t>(indices[b])];
      scored.hypothesis = folded(set.phones().phones(found[b]));
      result.processed.add(scored.reference, scored.hypothesis);
    }
  }
  for (const ScoredUtterance& one : result.utterances) result.score.add(one.reference, one.hypothesis);
  add_unprocessed(part, part.too_long, "longer than model.max_frames", result);
  add_unprocessed(part, part.too_short, "shorter than a step of the model", result);
  result.without_loss = static_cast<int64_t>(part.usable.size()) - with_loss;
  if (with_loss > 0) result.nats_per_utterance = nats / static_cast<double>(with_loss);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

std::string processed_line(const SpeechEvaluation& evaluation) {
  if (evaluation.unprocessed.empty()) return "";
  const PhoneScore &all = evaluation.score, &processed = evaluation.processed;
  return concat_text(processed.line(), " without ", evaluation.unprocessed.size(), " of ", all.utterances,
                     " utterances (", all.reference - processed.reference, " of ", all.reference,
                     " phones) that the model cannot process");
}

}  // namespace tapeformer
