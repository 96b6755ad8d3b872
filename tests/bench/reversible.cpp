// A benchmark of techniques that reduce the memory of training: reversible layers, recomputation, and the
// processing of feed-forward blocks and losses in chunks. The benchmark compares the time and memory of
// forward and backward passes of small models that differ only in these techniques.
#include <algorithm>
#include <ctime>

#include "core/allocator.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"

namespace tapeformer {
namespace {

constexpr int64_t kMinLayers = 2;

enum class Form { stored, recompute, reversible };
constexpr Form kForms[] = {Form::stored, Form::recompute, Form::reversible};
constexpr const char* kFormNames[] = {"stored", "recompute", "reversible"};

struct Sample {
  double seconds = 0;   // median time of a forward and backward pass
  double relative = 1;  // time divided by the time of the first model, median over the repeats
  int64_t peak = 0;     // peak memory in bytes, without parameters and their gradients
};

// A forward and backward pass of a model in training on a fixed batch, without an optimizer.
class Step {
 public:
  Step(const AutoregressiveModelOptions& options, int64_t batch)
      : model_(options), batch_(make_random_batch(options, batch, 1)) {
    model_.initialize(1);
    // Two passes run before all measurements, because the first two passes allocate memory for the gradients.
    // Later passes add to the gradients in place.
    for (int pass = 0; pass < 2; ++pass) run();
  }

  void run() { backward(model_.compute_loss(batch_, {.training = true, .seed = 1, .step = 1})); }

  int64_t peak() {
    const int64_t before = get_device_allocator().stats().active_bytes;
    get_device_allocator().reset_peak();
    run();
    return get_device_allocator().stats().peak_bytes - before;
  }

 private:
  AutoregressiveModel model_;
  Batch batch_;
};

// Returns the seconds of one call of f: the wall-clock time if `clock` is "wall", and otherwise the processor
// time.
template <class F>
double measure_call_on_clock(const std::string& clock, F&& f) {
  if (clock == "wall") return measure_call_seconds(f);
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct Timing {
  int64_t repeats;
  std::string clock;
};

// Returns the results for each model. Each repeat runs all models in turn, so that other load on the machine
// affects all models.
std::vector<Sample> measure(const std::vector<AutoregressiveModelOptions>& models, int64_t batch,
                            const Timing& timing) {
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<Sample> samples;
  for (const AutoregressiveModelOptions& options : models) {
    steps.push_back(std::make_unique<Step>(options, batch));
    samples.push_back({.peak = steps.back()->peak()});
  }
  std::vector<std::vector<double>> times(models.size());
  for (int64_t repeat = 0; repeat < timing.repeats; ++repeat)
    for (size_t i = 0; i < steps.size(); ++i)
      times[i].push_back(measure_call_on_clock(timing.clock, [&] { steps[i]->run(); }));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].seconds = compute_median(times[i]);
    std::vector<double> ratios;
    for (size_t repeat = 0; repeat < times[i].size(); ++repeat)
      ratios.push_back(times[i][repeat] / times[0][repeat]);
    samples[i].relative = compute_median(ratios);
  }
  return samples;
}

AutoregressiveModelOptions convert_to_form(AutoregressiveModelOptions options, Form form) {
  options.encoder.pre_norm = true;
  options.encoder.recompute = form == Form::recompute;
  options.encoder.reversible = form == Form::reversible;
  return options;
}

Report make_row(const char* form, int64_t layers, const Sample& sample) {
  return Report()
      .add("form", form)
      .add("layers", layers)
      .add("milliseconds", 1e3 * sample.seconds)
      .add("times_stored", sample.relative)
      .add("peak_bytes", sample.peak);
}

// Measures each form at doubling depths and returns one row per form and depth. For each form, adds two
// results to `report`: the memory per added layer, and the time at the largest depth relative to the form
// "stored".
std::vector<Report> measure_depths(const BenchmarkedModel& choice, int64_t deepest, const Timing& timing,
                                   Report& report) {
  std::vector<Report> rows;
  std::vector<Sample> first, last;
  for (int64_t layers = kMinLayers; layers <= deepest; layers *= 2) {
    std::vector<AutoregressiveModelOptions> models;
    for (const Form form : kForms) models.push_back(convert_to_form(choice.model, form));
    for (AutoregressiveModelOptions& model : models) model.encoder.layers = layers;
    last = measure(models, choice.batch_size, timing);
    if (first.empty()) first = last;
    for (size_t i = 0; i < last.size(); ++i) rows.push_back(make_row(kFormNames[i], layers, last[i]));
  }
  const int64_t added = rows.empty() ? 0 : std::get<int64_t>(rows.back().fields()[1].second) - kMinLayers;
  for (size_t i = 0; i < last.size(); ++i) {
    if (added > 0)
      report.add(std::string(kFormNames[i]) + "_added_layer_bytes", (last[i].peak - first[i].peak) / added);
    report.add(std::string(kFormNames[i]) + "_times_stored", last[i].relative);
  }
  return rows;
}

// Measures the model `base`, converted to `form`. `part` is the part of the model that is computed in chunks,
// "feed-forward" or "loss". The measurements use 1, 4 and 16 chunks.
std::vector<Report> measure_chunks(const AutoregressiveModelOptions& base, const char* part, Form form,
                                   int64_t batch, const Timing& timing) {
  constexpr int64_t kCounts[] = {1, 4, 16};
  const bool loss = std::string(part) == "loss";
  std::vector<AutoregressiveModelOptions> models;
  for (const int64_t count : kCounts) {
    models.push_back(convert_to_form(base, form));
    (loss ? models.back().loss_chunks : models.back().encoder.feedforward_chunks) = count;
  }
  const auto samples = measure(models, batch, timing);
  std::vector<Report> rows;
  for (size_t i = 0; i < samples.size(); ++i)
    rows.push_back(Report()
                       .add("chunked", part)
                       .add("form", kFormNames[static_cast<size_t>(form)])
                       .add("chunks", kCounts[i])
                       .add("milliseconds", 1e3 * samples[i].seconds)
                       .add("times_whole", samples[i].relative)
                       .add("peak_bytes", samples[i].peak)
                       .add("share_of_peak",
                            static_cast<double>(samples[i].peak) / static_cast<double>(samples[0].peak)));
  return rows;
}

Report run_reversible(const BenchmarkArguments& arguments) {
  const Timing timing{arguments.options.get<int64_t>("repeats"), arguments.options.get<std::string>("clock")};
  const auto deepest = arguments.options.get<int64_t>("deepest");
  const BenchmarkedModel choice = choose_model(arguments, arguments.options.get<int64_t>("batch"));
  Report report;
  report.add("threads", get_thread_count()).add("attention", join_kind_names(choice.model.encoder.attention));
  const std::vector<Report> rows = measure_depths(choice, deepest, timing, report);
  AutoregressiveModelOptions wide = choice.model;
  wide.max_length *= arguments.options.get<int64_t>("lengthen");
  wide.encoder.feedforward *= arguments.options.get<int64_t>("widen");
  AutoregressiveModelOptions many = choice.model;
  many.max_length = wide.max_length;
  many.head = OutputHead::categorical;
  many.vocabulary_size = arguments.options.get<int64_t>("vocabulary");
  std::vector<Report> chunked;
  for (const auto& part : {measure_chunks(wide, "feed-forward", Form::reversible, choice.batch_size, timing),
                           measure_chunks(wide, "feed-forward", Form::stored, choice.batch_size, timing),
                           measure_chunks(many, "loss", Form::reversible, choice.batch_size, timing)})
    chunked.insert(chunked.end(), part.begin(), part.end());
  return report.add("depths", rows).add("chunks", chunked);
}

// Returns the options of the benchmark. The default sizes of the models are small, because the deepest model
// has 32 layers by default.
std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> list = make_model_option_specs();
  for (OptionSpec& option : list) {
    if (option.name == "layers") {
      option.default_value = int64_t{1};
      option.help = "encoder layers of the models with chunks";
    }
    if (option.name == "heads") option.default_value = int64_t{4};
    if (option.name == "feedforward") option.default_value = int64_t{512};
    if (option.name == "length") option.default_value = int64_t{512};
  }
  list.push_back({.name = "batch",
                  .default_value = int64_t{2},
                  .help = "sequences",
                  .min = 1,
                  .max = 4096,
                  .used_if = kWithoutConfig});
  list.push_back({.name = "deepest",
                  .default_value = int64_t{32},
                  .help = "layers of the deepest model; the other models have 2, 4, … layers",
                  .min = kMinLayers,
                  .max = 1024});
  list.push_back({.name = "lengthen",
                  .default_value = int64_t{4},
                  .help = "factor on the length of the models with chunks",
                  .min = 1,
                  .max = 1024});
  list.push_back({.name = "widen",
                  .default_value = int64_t{8},
                  .help = "factor on the hidden dimensions of the models with feed-forward chunks",
                  .min = 1,
                  .max = 1024});
  list.push_back({.name = "vocabulary",
                  .default_value = int64_t{4096},
                  .help = "symbols of the models with loss chunks",
                  .min = 2,
                  .max = 1 << 20});
  list.push_back({.name = "clock",
                  .default_value = std::string("wall"),
                  .help = "clock; cpu is the processor time, for one thread on a busy machine",
                  .choices = {"wall", "cpu"}});
  list.push_back(
      {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1});
  return list;
}

}  // namespace

Benchmark make_reversible_benchmark() {
  return {
      .name = "reversible",
      .summary = "stored, recomputed and reversible layers at doubling depths, and chunks: time and memory",
      .options = make_options(),
      .run = run_reversible};
}

}  // namespace tapeformer
