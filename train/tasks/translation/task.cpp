#include "train/tasks/translation/task.h"

#include "data/text/unknown_tokens.h"
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/dataset_batches.h"
#include "train/tasks/text/description.h"
#include "train/tasks/translation/evaluate.h"

namespace tapeformer {
namespace {

// The names of TranslationEvaluation::scores in metrics and results.
constexpr const char* kScoreNames[] = {"bleu", "bleu_lower_case", "bleu_intl", "chrf2"};

TaskEvaluation describe(const TranslationEvaluation& e, const BeamSearchOptions& search) {
  TaskEvaluation result{.selection_metric = e.nats_per_token,
                        .metrics = {{"loss_nats", e.nats_per_token}},
                        .results = {{"nats_per_token", e.nats_per_token},
                                    {"beam", search.beam_size},
                                    {"length_penalty", search.length_penalty}},
                        .summary = concat_text(e.nats_per_token, " nats per token")};
  std::vector<std::string> signatures;
  for (size_t i = 0; i < e.scores.size(); ++i) {
    const CorpusScore& score = e.scores[i];
    result.results.emplace_back(kScoreNames[i], score.value);
    result.metrics.emplace_back(kScoreNames[i], score.value);
    result.headline += score.text + "  " + score.signature + "\n";
    signatures.push_back(score.signature);
  }
  result.summary +=
      concat_text(", BLEU ", e.scores.front().value, ", chrF2 ", e.scores.back().value,
                  search.beam_size == 1 ? ", greedy decoding" : concat_text(", beam ", search.beam_size));
  result.metrics.emplace_back("beam", search.beam_size);
  result.details.add("tokens", e.token_count).add("cut_pairs", e.cut_pair_count);
  warn_of_unknown_text(e.unknown_count, "the translations");
  if (e.unknown_count > 0) result.details.add("unknown_tokens", e.unknown_count);
  result.details.add("sentences_per_second", e.sentences_per_second).add("signatures", signatures);
  return result;
}

// The options of evaluations of translations.
struct TranslationTaskOptions {
  int64_t beam = 4;
  double length_penalty = 0.6;
};

OptionTable<TranslationTaskOptions> make_translation_option_table() {
  OptionTable<TranslationTaskOptions> table;
  table.add("beam", &TranslationTaskOptions::beam, "hypotheses of a beam search; 0: the most probable token")
      .require_range(0, kMaxBeamSize);
  table
      .add("length-penalty", &TranslationTaskOptions::length_penalty,
           "alpha of the length penalty; see \"translate\"")
      .require_range(0, 10);
  return table;
}

}  // namespace

TranslationTask::TranslationTask(const Config& config, const TaskEnvironment& environment)
    : Task(config), environment_(environment) {
  const auto dataset = open_training_set(config, environment);
  tokenizer_ = dataset->tokenizer();
  make_model(dataset->info());
  batches_ = std::make_unique<DatasetBatches>(config, dataset, environment.processes, count_unmasked_tokens);
}

TranslationTask::TranslationTask(const Config& config, const TaskEnvironment& environment,
                                 const TrainingState& state, const std::string& state_path)
    : Task(config),
      environment_(environment),
      tokenizer_(parse_tokenizer(state.task_json, state_path, UnknownCharacters::token)) {
  make_model(get_dataset_info(config, tokenizer_));
}

void TranslationTask::make_model(const DatasetInfo& data) {
  auto options = read_options<TranslationModelOptions>(config());
  options.vocabulary_size = data.vocabulary;
  options.max_length = data.model_length();
  model_ = build_model<TranslationModel>(config(), environment_.device, options);
}

std::string TranslationTask::metadata_json() const {
  return to_json(*tokenizer_);
}

std::vector<SubjectOptions> TranslationTask::list_evaluation_options() {
  return {{"translations", make_translation_option_table().specs()}};
}

std::unique_ptr<Evaluator> TranslationTask::open_evaluation(const EvaluationOptions& options) const {
  const TranslationTaskOptions own = options.is_during_training
                                         ? TranslationTaskOptions{.beam = 0, .length_penalty = 0}
                                         : options.read_task_options(make_translation_option_table());
  TranslatorOptions translator;
  translator.search.beam_size = std::max<int64_t>(own.beam, 1);
  translator.search.length_penalty = own.length_penalty;
  translator.batch_sentences = options.batch_size > 0 ? options.batch_size : config().train.eval_batch_size;
  return std::make_unique<DatasetEvaluator>(
      open_evaluation_set(config(), environment_, tokenizer_, options.split, options.limit),
      [this, translator](const Dataset& dataset, const StopCheck& stop) {
        return describe(evaluate(*model_, dynamic_cast<const TranslationDataset&>(dataset), translator, stop,
                                 environment_.processes),
                        translator.search);
      });
}

BatchLoss TranslationTask::compute_loss(const StepBatch& batch, const ForwardContext& context) {
  const Batch& pairs = batch.examples;
  return {model_->compute_loss(pairs, context), static_cast<int64_t>(count_unmasked_tokens(pairs))};
}

}  // namespace tapeformer
