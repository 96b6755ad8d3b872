#include "train/tasks/speech/evaluate.h"

#include <map>
#include <sstream>

#include "core/base/errors.h"
#include "data/batches/bucket_plan.h"
#include "train/distributed/gather.h"
#include "train/evaluate.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {

std::vector<CtcLabels> decode_labels(const SpeechOutput& output, int64_t beam_size) {
  if (beam_size == 0) return ctc_greedy_decode(output.logits, output.lengths, kSpeechBlank);
  std::vector<CtcLabels> result;
  for (auto& hypotheses :
       ctc_beam_search(output.logits, output.lengths, {.blank = kSpeechBlank, .beam_size = beam_size}))
    result.push_back(hypotheses.empty() ? CtcLabels{} : std::move(hypotheses.front().labels));
  return result;
}

SpeechEvaluationOptions make_speech_evaluation_options(const Config& config) {
  const int64_t batch = config.train.eval_batch_size;
  const SpeechCorpus corpus(config);
  return {.beam_size = 0,
          .max_frames = corpus.options().max_frames,
          .max_batch_size = batch > 0 ? batch : config.data.batch_size,
          .fold_timit_phones = corpus.has_phone_set()};
}

namespace {

void add_unprocessed(const SpeechPart& part, const std::vector<int64_t>& indices, const std::string& reason,
                     SpeechEvaluation& result) {
  for (const int64_t i : indices)
    result.unprocessed.push_back({part.utterances->utterance(i).id, reason, part.utterances->frame_count(i),
                                  static_cast<int64_t>(part.utterances->reference_phones(i).size())});
}

using LabelsOfUtterances = std::map<int64_t, CtcLabels>;

// Gathers the decoded labels of all processes. `own` contains the labels that this process has decoded.
LabelsOfUtterances gather_labels(Communicator& processes, const LabelsOfUtterances& own) {
  if (processes.size() == 1) return own;
  std::string text;
  for (const auto& [index, labels] : own) {
    text += std::to_string(index) + " " + std::to_string(labels.size()) + " ";
    for (const int64_t label : labels) text += std::to_string(label) + " ";
  }
  LabelsOfUtterances all;
  for (const std::string& gathered : all_gather_texts(processes, text)) {
    std::istringstream numbers(gathered);
    for (int64_t index = 0, count = 0; numbers >> index >> count;) {
      CtcLabels& labels = all[index];
      labels.resize(static_cast<size_t>(count));
      for (int64_t& label : labels) numbers >> label;
    }
  }
  return all;
}

// Scores the decoded labels of all utterances. The labels of an utterance that was not decoded count as
// deletions.
SpeechEvaluation score(const SpeechPart& part, const SpeechEvaluationOptions& options,
                       const LabelsOfUtterances& decoded) {
  const SpeechDataset& set = *part.utterances;
  SpeechEvaluation result;
  const auto folded = [&](const Words& phones) {
    return options.fold_timit_phones ? map_timit_phone(phones, PhoneSet::timit39) : phones;
  };
  for (int64_t i = 0; i < set.size(); ++i) {
    ScoredUtterance one{set.utterance(i).id, folded(set.reference_phones(i)), {}};
    if (const auto found = decoded.find(i); found != decoded.end()) {
      one.hypothesis = folded(set.phone_table().phones(found->second));
      result.processed_score.add(one.reference, one.hypothesis);
    }
    result.score.add(one.reference, one.hypothesis);
    result.utterances.push_back(std::move(one));
  }
  add_unprocessed(part, part.too_long_indices, "longer than model.max_frames", result);
  add_unprocessed(part, part.too_short_indices, "shorter than a step of the model", result);
  return result;
}

struct LossSums {
  double nats = 0, utterances = 0;  // of the utterances that have a loss
};

}  // namespace

SpeechEvaluation evaluate(const SpeechModel& model, const SpeechPart& part,
                          const SpeechEvaluationOptions& options, const StopCheck& stop,
                          Communicator& processes) {
  const NoGradScope no_grad;
  const SpeechDataset& set = *part.utterances;
  const auto batches = plan_batches(
      part.lengths(),
      {.max_batch_length = options.max_frames, .max_examples = options.max_batch_size, .shuffle = false}, 0);
  const NamedBatchSums<LossSums> losses(std::ssize(batches));
  LabelsOfUtterances decoded;
  const auto score_batch = [&](int64_t number) {
    const std::vector<int64_t> indices = part.find(batches[static_cast<size_t>(number)]);
    const Batch batch = set.batch(indices);
    const SpeechOutput output = model.forward(batch.elements, batch.lengths, {});
    const auto nats =
        ctc_loss(output.logits, output.lengths, batch.labels, batch.label_lengths, {.blank = kSpeechBlank})
            .losses.to_vector();
    const auto labels = decode_labels(output, options.beam_size);
    LossSums sums;
    for (size_t b = 0; b < indices.size(); ++b) {
      decoded[indices[b]] = labels[b];
      if (!set.is_alignable(indices[b])) continue;
      sums.nats += nats[b];
      sums.utterances += 1;
    }
    losses.set(number, sums);
  };
  visit_own_batches(std::ssize(batches), processes.rank(), processes.size(), stop, score_batch);
  const LossSums total = losses.total(processes);
  SpeechEvaluation result = score(part, options, gather_labels(processes, decoded));
  result.utterance_without_loss_count =
      static_cast<int64_t>(part.usable_indices.size()) - static_cast<int64_t>(total.utterances);
  if (total.utterances > 0) result.mean_ctc_loss = total.nats / total.utterances;
  return result;
}

std::string describe_processed_score(const SpeechEvaluation& evaluation) {
  if (evaluation.unprocessed.empty()) return "";
  const PhoneScore &all = evaluation.score, &processed = evaluation.processed_score;
  return concat_text(processed.format_line(), " without ", evaluation.unprocessed.size(), " of ",
                     all.utterance_count, " utterances (", all.reference_count - processed.reference_count,
                     " of ", all.reference_count, " phones) that the model cannot process");
}

}  // namespace tapeformer
