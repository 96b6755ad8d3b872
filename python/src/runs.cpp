// Trained models: tapeformer._core.Run. tapeformer/_model.py documents the functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/options/option_names.h"
#include "data/text/unknown_tokens.h"
#include "models/generation.h"
#include "python/src/arrays.h"
#include "python/src/tensor_access.h"
#include "train/build.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/examples.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/speech/transcribe.h"
#include "train/tasks/text/scoring.h"
#include "train/tasks/translation/task.h"
#include "train/tasks/translation/translator.h"

namespace tapeformer::python {
namespace {

using Texts = std::vector<std::string>;

// Arguments of a generation of tokens.
struct DrawingOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  uint64_t seed = 0;
  std::string mode = "auto";

  GenerationOptions read(const AutoregressiveModel& model) const {
    GenerationOptions options;
    check(temperature >= 0 && std::isfinite(temperature), "generate", "temperature must be at least 0, not ",
          temperature);
    options.seed = seed;
    options.sampling = {.greedy = temperature == 0,
                        .temperature = temperature == 0 ? 1 : temperature,
                        .top_k = top_k,
                        .top_p = top_p};
    const std::string reason = describe_unsupported(model.options().encoder.attention, "recurrent form",
                                                    &AttentionCapabilities::recurrent);
    if (mode == "recurrent" && !reason.empty()) throw ConfigError(reason + "; use the mode \"recompute\"");
    if (mode != "auto" && mode != "recurrent" && mode != "recompute")
      throw ConfigError("mode must be \"auto\", \"recurrent\" or \"recompute\", not \"" + mode + "\"");
    if (mode == "recompute" || !reason.empty()) options.mode = GenerationMode::recompute;
    return options;
  }
};

class Run {
 public:
  Run(const std::string& path, const std::string& checkpoint, const Texts& settings, const std::string& data)
      : loaded_(load_task({.path = path,
                           .checkpoint_name = checkpoint,
                           .config_settings = settings,
                           // Without settings of data, evaluate() reports missing data.
                           .purpose = std::any_of(settings.begin(), settings.end(),
                                                  [](const std::string& x) { return x.starts_with("data."); })
                                          ? ConfigPurpose::evaluation
                                          : ConfigPurpose::generation,
                           .data = data.c_str()})) {}

  const Config& config() const { return loaded_.config(); }
  std::string checkpoint() const { return loaded_.checkpoint_folder.string(); }
  int64_t step() const { return loaded_.step; }

  nb::dict parameters() const {
    nb::dict result;
    for (const auto& [name, tensor] : loaded_.task->model().parameters())
      result[name.c_str()] = to_numpy(detach(tensor).clone());
    return result;
  }

  Tensor compute_token_logits(const Tensor& tokens, const Tensor& lengths) const {
    if (takes_features()) throw nb::type_error("the model takes features: expected floats, not integers");
    const ComputeScope compute;
    const NoGradScope no_grad;
    if (const auto* const model = dynamic_cast<const Classifier*>(&loaded_.task->model()))
      return model->forward(tokens, lengths, {});
    check(!lengths.defined(), "logits",
          "an autoregressive model takes no lengths: padding after a sequence does "
          "not change its logits");
    return language_model().forward(tokens, {.is_prefix = true});
  }
  Tensor compute_feature_logits(const Tensor& features, const Tensor& lengths) const {
    if (!takes_features()) throw nb::type_error("the model takes tokens: expected integers, not floats");
    const ComputeScope compute;
    const NoGradScope no_grad;
    if (const auto* const model = dynamic_cast<const SetTransformer*>(&loaded_.task->model()))
      return model->forward(features, lengths, {});
    const auto& task = loaded_.as<SpeechTask>();
    const Tensor all = Tensor::full({features.size(0)}, static_cast<double>(features.size(1)), DType::int64);
    return task.model().forward(features, lengths.defined() ? lengths : all, {}).logits;
  }

  double compute_loss(const Batch& batch) const {
    const ComputeScope compute;
    const NoGradScope no_grad;
    const Module& model = loaded_.task->model();
    if (const auto* const example_model = dynamic_cast<const ExampleModel*>(&model))
      return example_model->compute_loss(batch, {}).item();
    if (const auto* const translation = dynamic_cast<const TranslationModel*>(&model))
      return translation->compute_loss(batch, {}).item();
    check(!batch.lengths.defined() && !batch.labels.defined(), "loss",
          "an autoregressive model takes no lengths and no labels");
    check(batch.tokens.rank() == 2 && batch.tokens.size(0) > 0 && batch.tokens.size(1) > 1, "loss",
          "expected tokens (batch, length + 1) of at least two tokens, not ", batch.tokens.shape());
    return language_model().compute_scores(batch).loss_nats;
  }

  nb::dict evaluate(const std::string& split, int64_t limit) const {
    const DataConfig& data = config().data;
    if (data.has("path") && data.get<std::string>("path").empty())
      throw ConfigError(name_option("TextOptions::path") +
                        ": the run names no data; name them when it is loaded");
    const TaskEvaluation result = [&] {
      const ComputeScope compute;
      return loaded_.task->open_evaluation({.split = split, .limit = limit})->evaluate();
    }();
    nb::dict report = to_dict(result.results);
    report["split"] = nb::cast(result.split);
    report["examples"] = nb::cast(result.example_count);
    return report;
  }

  std::vector<int64_t> encode(const std::string& text) const {
    return encode_text(tokenizer(), text, "the text");
  }
  nb::bytes decode(const std::vector<int64_t>& tokens) const {
    for (const int64_t token : tokens)
      check(token >= 0 && token < tokenizer().vocabulary_size(), "decode", "token ", token,
            " is not in the vocabulary of ", tokenizer().vocabulary_size(), " tokens");
    const std::string text = tokenizer().decode(tokens);
    return nb::bytes(text.data(), text.size());
  }

  // Returns the drawn tokens, without the stop token that ends them. The start tokens of the tokenizer
  // precede the prompt.
  std::vector<int64_t> generate_tokens(const std::vector<int64_t>& own_prompt, int64_t length, int64_t window,
                                       const DrawingOptions& drawing) const {
    const std::span<const int32_t> starts = tokenizer().start_tokens(), stops = tokenizer().stop_tokens();
    std::vector<int64_t> prompt(starts.begin(), starts.end());
    prompt.insert(prompt.end(), own_prompt.begin(), own_prompt.end());
    check(!prompt.empty(), "generate", "the prompt is empty, expected at least one token");
    check(length >= 1, "generate", "length must be at least 1, not ", length);
    check(window >= 0, "generate", "window must be at least 0, not ", window);
    const AutoregressiveModel& model = language_model();
    const ComputeScope compute;
    GenerationOptions options = drawing.read(model);
    options.undrawn_tokens = list_tokens_without_text(tokenizer());
    TokenStream stream(model, options, 1, static_cast<int64_t>(prompt.size()) + length - 1,
                       window > 0 ? window : get_default_window(model));
    for (const int64_t token : prompt) stream.append(token);
    std::vector<int64_t> drawn;
    while (static_cast<int64_t>(drawn.size()) < length) {
      const int64_t token = stream.draw().front();
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
      drawn.push_back(token);
    }
    return drawn;
  }

  Tensor generate_sequences(const Tensor& prefix, int64_t length, const DrawingOptions& drawing) const {
    const AutoregressiveModel& model = language_model();
    const ComputeScope compute;
    for (int64_t i = 0; i < prefix.numel(); ++i)
      check(prefix.data<int64_t>()[i] >= 0 && prefix.data<int64_t>()[i] < model.options().vocabulary_size,
            "generate", "token ", prefix.data<int64_t>()[i], " is not in the vocabulary of ",
            model.options().vocabulary_size, " tokens");
    return generate(model, prefix.to(DType::uint8), length, drawing.read(model));
  }
  int64_t sequence_length() const { return loaded_.as<AutoregressiveTask>().dataset_info().length + 1; }

  nb::list score_lines(const Texts& lines) const {
    const LineScorer scorer(language_model(), tokenizer());
    const std::vector<TextScore> scores = [&] {
      const ComputeScope compute;
      std::vector<TextScore> scored;
      for (const std::string& line : lines)
        scored.push_back(scorer.score(line, concat_text("line ", scored.size() + 1)));
      return scored;
    }();
    nb::list result;
    for (const TextScore& score : scores) {
      nb::dict row;
      row["log_probability"] = -score.nats;
      row["tokens"] = score.token_count;
      row["bytes"] = score.byte_count;
      row["bits_per_byte"] = score.bits_per_byte();
      result.append(row);
    }
    return result;
  }
  nb::list score_pairs(const Texts& sources, const Texts& targets) const {
    const auto& task = loaded_.as<TranslationTask>();
    check(sources.size() == targets.size(), "score", sources.size(), " lines and ", targets.size(),
          " translations");
    const std::vector<ScoredTarget> scores = [&] {
      const ComputeScope compute;
      return score_targets(task.model(), *task.tokenizer(), sources, targets, {"lines", "translations"});
    }();
    nb::list result;
    for (const ScoredTarget& one : scores) {
      nb::dict row;
      row["log_probability"] = one.log_probability;
      row["tokens"] = one.token_count;
      result.append(row);
    }
    return result;
  }

  nb::list translate(const Texts& lines, int64_t beam, double length_penalty, int64_t hypotheses,
                     int64_t max_length) const {
    const auto& task = loaded_.as<TranslationTask>();
    TranslatorOptions options;
    options.search = {beam, length_penalty, hypotheses, max_length};
    Translator translator(task.model(), task.tokenizer(), options);
    const std::vector<std::vector<TranslatedText>> translations = [&] {
      const ComputeScope compute;
      return translator.translate(lines);
    }();
    nb::list result;
    for (const auto& line : translations) {
      nb::list rows;
      for (const TranslatedText& one : line)
        rows.append(nb::make_tuple(one.text, one.score, one.log_probability));
      result.append(rows);
    }
    return result;
  }

  Texts transcribe_file(const std::string& path, int64_t beam) const {
    const auto& task = loaded_.as<SpeechTask>();
    const ComputeScope compute;
    return transcribe(task, path, beam).phones;
  }

 private:
  bool takes_features() const {
    const std::string subject = loaded_.task->subject();
    return subject == "sets" || subject == "speech";
  }
  const AutoregressiveModel& language_model() const { return loaded_.as<AutoregressiveTask>().model(); }
  const Tokenizer& tokenizer() const {
    if (const auto* const task = dynamic_cast<const TranslationTask*>(loaded_.task.get()))
      return *task->tokenizer();
    require_subject(*loaded_.task, {"text"}, "This function");
    return *loaded_.as<AutoregressiveTask>().tokenizer();
  }

  LoadedTask loaded_;
};

Tensor copy_or_none(const std::optional<IntegerArray>& array) {
  return array ? copy_array(*array) : Tensor();
}

}  // namespace

void bind_runs(nb::module_& m) {
  using Lengths = std::optional<IntegerArray>;
  nb::class_<DrawingOptions>(m, "DrawingOptions")
      .def("__init__", [](DrawingOptions* self, double temperature, int64_t top_k, double top_p,
                          uint64_t seed, const std::string& mode) {
        new (self) DrawingOptions{temperature, top_k, top_p, seed, mode};
      });
  nb::class_<Run>(m, "Run")
      .def(nb::init<const std::string&, const std::string&, const Texts&, const std::string&>(),
           nb::call_guard<GilRelease>())
      .def_prop_ro("config", [](const Run& run) { return run.config(); })
      .def_prop_ro("checkpoint", &Run::checkpoint)
      .def_prop_ro("step", &Run::step)
      .def_prop_ro("sequence_length", &Run::sequence_length)
      .def("parameters", &Run::parameters)
      .def(
          "token_logits",
          [](const Run& run, const IntegerArray& tokens, const Lengths& lengths) {
            return to_numpy(run.compute_token_logits(copy_array(tokens), copy_or_none(lengths)));
          },
          nb::arg("tokens"), nb::arg("lengths").none())
      .def(
          "feature_logits",
          [](const Run& run, const FloatArray& features, const Lengths& lengths) {
            return to_numpy(run.compute_feature_logits(copy_array(features), copy_or_none(lengths)));
          },
          nb::arg("features"), nb::arg("lengths").none())
      .def(
          "token_loss",
          [](const Run& run, const IntegerArray& tokens, const Lengths& lengths, const Lengths& labels) {
            return run.compute_loss({.tokens = copy_array(tokens),
                                     .lengths = copy_or_none(lengths),
                                     .labels = copy_or_none(labels)});
          },
          nb::arg("tokens"), nb::arg("lengths").none(), nb::arg("labels").none())
      .def("evaluate", &Run::evaluate)
      .def("encode", &Run::encode)
      .def("decode", &Run::decode)
      .def("generate_tokens", &Run::generate_tokens)
      .def("generate_sequences",
           [](const Run& run, const IntegerArray& prefix, int64_t length, const DrawingOptions& drawing) {
             return to_numpy(run.generate_sequences(copy_array(prefix), length, drawing));
           })
      .def("score_lines", &Run::score_lines)
      .def("score_pairs", &Run::score_pairs)
      .def("translate", &Run::translate)
      .def("transcribe", &Run::transcribe_file);
}

}  // namespace tapeformer::python
