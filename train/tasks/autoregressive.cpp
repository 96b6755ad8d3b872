#include "train/tasks/autoregressive.h"

#include <algorithm>
#include <charconv>
#include <numbers>
#include <utility>

#include "data/text/prompts/prompt_dataset.h"
#include "models/distillation.h"
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/dataset_batches.h"
#include "train/tasks/text/description.h"
#include "train/tasks/text/scoring.h"

namespace tapeformer {
namespace {

constexpr char kCarried[] = "carried";

DistillationTarget parse_distillation_target(const std::string& name) {
  if (name == "heads") return DistillationTarget::heads;
  return name == "attention" ? DistillationTarget::attention : DistillationTarget::logits;
}

double convert_to_bits(double nats) {
  return nats / std::numbers::ln2;
}

std::vector<int64_t> list_sizes(const Tensor& tensor) {
  return tensor.defined() ? std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())
                          : std::vector<int64_t>();
}

std::shared_ptr<const Tokenizer> restore_tokenizer(const Config& config, const TaskEnvironment& environment,
                                                   const TrainingState& state, const std::string& path) {
  if (!is_text_dataset(config)) return nullptr;
  if (state.is_converted && state.task_json.empty()) return make_tokenizer(config, environment.data.data_dir);
  return parse_tokenizer(state.task_json, path,
                         parse_unknown_characters(config.data.get<std::string>("unknown_characters")));
}

// Returns the number of tokens in the option "context", which is not empty. Throws ConfigError unless
// the number is from 0 to `length` - 1.
int64_t parse_context_length(const std::string& text, int64_t length) {
  int64_t tokens = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens < 0 || tokens >= length)
    throw ConfigError(concat_text("the context \"", text,
                                  "\": expected \"carried\", or a number of tokens below "
                                  "data.sequence_length = ",
                                  length));
  return tokens;
}

std::string describe_windows(const TextDataset& text, const AttentionPattern& attention) {
  const int64_t length = text.info().length, context = text.eval_context();
  if (const int64_t memory = compute_max_input_memory_span(attention); memory > 0)
    return concat_text("segments of ", length, " predictions after a memory of at most ", memory,
                       " tokens; all predictions are scored");
  if (compute_max_memory_span(attention) > 0)
    return concat_text("segments of ", length,
                       " predictions after the state of the earlier segments; all predictions are scored");
  return concat_text("windows of ", length, " predictions, stride ", length - context,
                     context == 0 ? "; all predictions are scored"
                                  : concat_text("; the first ", context,
                                                " predictions of each window but the first are not scored"));
}

// Returns "" for other data sets than prompts.
std::string describe_prompts(const Dataset& set) {
  if (!dynamic_cast<const PromptDataset*>(&set)) return "";
  return concat_text("answers in windows of ", set.info().length, " predictions; prompts are not scored");
}

// `context` describes the context of the predictions of a text.
TaskEvaluation describe(const Evaluation& e, const std::string& context) {
  TaskEvaluation result{.example_count = e.example_count,
                        .selection_metric = e.nats_per_dim,
                        .metrics = {{"loss_nats", e.nats_per_dim}, {"bits_per_dim", e.bits_per_dim}},
                        .results = {{"nats_per_dim", e.nats_per_dim}, {"bits_per_dim", e.bits_per_dim}},
                        .summary = concat_text(e.nats_per_dim, " nats, ", e.bits_per_dim, " bits/dim")};
  const auto add = [&](const char* name, double value) {
    result.metrics.emplace_back(name, value);
    result.results.emplace_back(name, value);
  };
  if (const auto& text = e.text_score) {
    add("bits_per_byte", text->bits_per_byte());
    add("bits_per_character", text->bits_per_character());
    add("perplexity", text->perplexity());
    result.summary =
        concat_text(text->bits_per_byte(), " bits/byte, perplexity ", text->perplexity(), " per token");
    result.details.add("context", context)
        .add("tokens", text->token_count)
        .add("bytes", text->byte_count)
        .add("characters", text->character_count);
    add_unknown_tokens(*text, result.details);
  }
  if (e.accuracy) {
    add("accuracy", *e.accuracy);
    result.summary += concat_text(", accuracy ", 100 * *e.accuracy, " %");
  }
  return result;
}

// The options of evaluations of texts.
struct TextEvaluationOptions {
  std::string context;
};

OptionTable<TextEvaluationOptions> make_text_table() {
  OptionTable<TextEvaluationOptions> table;
  table
      .add("context", &TextEvaluationOptions::context,
           "tokens that each window repeats from the previous window and does not score, or \"carried\": "
           "one pass with the recurrent form in one stream or, with a batch size, in so many")
      .default_text = "data.eval_context";
  return table;
}

}  // namespace

AutoregressiveTask::AutoregressiveTask(const Config& config, const TaskEnvironment& environment)
    : Task(config), environment_(environment) {
  const auto dataset = open_training_set(config, environment);
  batches_ = std::make_unique<DatasetBatches>(config, dataset, environment.processes, count_unmasked_tokens);
  tokenizer_ = dataset->tokenizer();
  dataset_info_ = dataset->info();
  model_ = make_model(config, dataset_info_, environment.device);
  memory_ = model_->encoder.make_segment_memory(config.data.batch_size);
  if (memory_ && environment.processes.size() > 1) {
    const KeyProblem problem = make_memory_problem(
        make_attention_pattern(config),
        concat_text("needs a run with one process, not ", environment.processes.size()))[0];
    throw ConfigError(problem.key + ": " + problem.message);
  }
}

AutoregressiveTask::AutoregressiveTask(const Config& config, const TaskEnvironment& environment,
                                       const TrainingState& state, const std::string& state_path)
    : Task(config),
      environment_(environment),
      tokenizer_(restore_tokenizer(config, environment, state, state_path)),
      dataset_info_(get_dataset_info(config, tokenizer_)),
      model_(make_model(config, dataset_info_, environment.device)) {}

std::string AutoregressiveTask::subject() const {
  if (tokenizer_) return "text";
  return dataset_info_.channels > 0 ? "images" : "symbols";
}

std::shared_ptr<const Dataset> AutoregressiveTask::open_split(const std::string& split,
                                                              std::optional<int64_t> limit) const {
  return open_evaluation_set(config(), environment_, tokenizer_, split, limit);
}

std::string AutoregressiveTask::metadata_json() const {
  return tokenizer_ ? to_json(*tokenizer_) : "";
}

std::vector<SubjectOptions> AutoregressiveTask::list_evaluation_options() {
  return {{"text", make_text_table().specs()}};
}

std::unique_ptr<Evaluator> AutoregressiveTask::open_evaluation(const EvaluationOptions& options) const {
  const std::string context = options.read_task_options(make_text_table()).context;
  if (!context.empty() && !config().data.has("eval_context"))
    throw ConfigError(concat_text("the context \"", context, "\": the data set \"", config().data.dataset,
                                  "\" is no continuous text"));
  if (context == kCarried) {
    const int64_t streams = std::max<int64_t>(options.batch_size, 1), limit = options.limit.value_or(0);
    return std::make_unique<DatasetEvaluator>(
        open_split(options.split, 0), [this, streams, limit](const Dataset& set, const StopCheck& stop) {
          const auto& text = dynamic_cast<const TextDataset&>(set);
          const Evaluation e = evaluate_recurrent(*model_, text, streams, limit, stop);
          return describe(e, concat_text("state carried through ", e.example_count, " parts of the split"));
        });
  }
  Config with_context = config();
  if (!context.empty())
    with_context.data.options.set("eval_context", parse_context_length(context, dataset_info_.length));
  const int64_t batch_size = choose_batch_size(config(), options);
  return std::make_unique<DatasetEvaluator>(
      open_evaluation_set(with_context, environment_, tokenizer_, options.split, options.limit),
      [this, batch_size, seed = options.seed](const Dataset& set, const StopCheck& stop) {
        const auto* const text = dynamic_cast<const TextDataset*>(&set);
        return describe(
            evaluate(*model_, set, batch_size, 0, seed, stop, environment_.processes),
            text ? describe_windows(*text, model_->options().encoder.attention) : describe_prompts(set));
      });
}

// If the batch has a mask and the loss has several chunks, the host computes the weight of each chunk from
// the mask. A CUDA graph does not capture computations on the host.
std::optional<BatchLayout> AutoregressiveTask::make_graph_layout(const StepBatch& batch) const {
  const Batch& examples = batch.examples;
  if (examples.mask.defined() && model_->options().loss_chunks > 1) return std::nullopt;
  BatchLayout layout{.token_shape = list_sizes(examples.tokens), .mask_shape = list_sizes(examples.mask)};
  if (memory_)
    layout.memory_token_count =
        std::min(batch.preceding_token_count, compute_max_memory_span(model_->options().encoder.attention));
  return layout;
}

void AutoregressiveTask::set_teacher(std::shared_ptr<const Task> teacher) {
  const DistillationTarget target = parse_distillation_target(config().distill.target);
  auto task = std::dynamic_pointer_cast<const AutoregressiveTask>(std::move(teacher));
  const auto require = [](bool condition, const char* message) {
    if (!condition) throw ConfigError(std::string("distill.teacher: ") + message);
  };
  require(task != nullptr, "the teacher has another type of model");
  require(
      task->metadata_json() == metadata_json() && task->dataset_info().vocabulary == dataset_info_.vocabulary,
      "the teacher has other tokens");
  require(task->model().options().max_length >= model_->options().max_length,
          "the teacher reads shorter sequences");
  require(!memory_ && !task->model().encoder.make_segment_memory(1),
          "models with a segment memory cannot be distilled");
  try {
    check_distillation(task->model().options(), model_->options(), target);
  } catch (const ConfigError& error) {
    require(false, error.what());
  }
  teacher_ = std::move(task);
}

BatchLoss AutoregressiveTask::compute_loss(const StepBatch& batch, const ForwardContext& context) {
  const Batch& examples = batch.examples;
  ForwardContext with_memory = context;
  with_memory.memory = memory_.get();
  if (memory_) memory_->start_segment(batch.preceding_token_count);
  return {teacher_ ? compute_distillation_loss(teacher_->model(), *model_,
                                               parse_distillation_target(config().distill.target), examples,
                                               with_memory)
                   : model_->compute_loss(examples, with_memory),
          examples.tokens.size(0) * (examples.tokens.size(1) - 1)};
}

void AutoregressiveTask::add_metrics(double loss, MetricRecord& record) const {
  if (!teacher_) record.emplace_back("bits_per_dim", convert_to_bits(loss));
}

double AutoregressiveTask::compute_progress_bits_per_dim(double loss) const {
  const bool is_shown = !teacher_ && model_->options().head == OutputHead::logistic_mixture;
  return is_shown ? convert_to_bits(loss) : -1;
}

}  // namespace tapeformer
