// What reversible layers, recomputation and chunks cost in time and save in memory: training steps of small
// models that differ in nothing else.
#include <algorithm>
#include <ctime>

#include "core/allocator.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"

namespace tapeformer {
namespace {

constexpr int64_t kShallowest = 2;

enum class Form { stored, recompute, reversible };
constexpr Form kForms[] = {Form::stored, Form::recompute, Form::reversible};
constexpr const char* kNames[] = {"stored", "recompute", "reversible"};

struct Sample {
  double seconds = 0;   // median of a forward and backward pass
  double relative = 1;  // median over the repeats of its time over that of the first model
  int64_t peak = 0;     // highest bytes above parameters and their gradients
};

// A model whose training step can be run again and again.
class Step {
 public:
  Step(const AutoregressiveOptions& options, int64_t batch)
      : model_(options), batch_(random_batch(options, batch, 1)) {
    model_.initialize(1);
    run();  // makes the gradients, and fills the allocator's cache
  }

  void run() { backward(model_.loss(batch_, {.training = true, .seed = 1, .step = 1})); }

  int64_t peak() {
    const int64_t before = allocator().stats().active;
    allocator().reset_peak();
    run();
    return allocator().stats().peak - before;
  }

 private:
  AutoregressiveModel model_;
  Batch batch_;
};

// Seconds of the wall's clock, or of the processors' time, that one call takes.
template <class F>
double seconds_on(const std::string& clock, F&& f) {
  if (clock == "wall") return seconds_of(f);
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct Timing {
  int64_t repeats;
  std::string clock;
};

// The steps in turn, so that whatever else the machine does slows all of them.
std::vector<Sample> measure(const std::vector<AutoregressiveOptions>& models, int64_t batch,
                            const Timing& timing) {
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<Sample> samples;
  for (const AutoregressiveOptions& options : models) {
    steps.push_back(std::make_unique<Step>(options, batch));
    samples.push_back({.peak = steps.back()->peak()});
  }
  std::vector<std::vector<double>> times(models.size());
  for (int64_t repeat = 0; repeat < timing.repeats; ++repeat)
    for (size_t i = 0; i < steps.size(); ++i)
      times[i].push_back(seconds_on(timing.clock, [&] { steps[i]->run(); }));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].seconds = median(times[i]);
    std::vector<double> ratios;
    for (size_t repeat = 0; repeat < times[i].size(); ++repeat)
      ratios.push_back(times[i][repeat] / times[0][repeat]);
    samples[i].relative = median(ratios);
  }
  return samples;
}

AutoregressiveOptions in_form(AutoregressiveOptions options, Form form) {
  options.encoder.pre_norm = true;
  options.encoder.recompute = form == Form::recompute;
  options.encoder.reversible = form == Form::reversible;
  return options;
}

Report row_of(const char* form, int64_t layers, const Sample& sample) {
  return Report()
      .add("form", form)
      .add("layers", layers)
      .add("milliseconds", 1e3 * sample.seconds)
      .add("times_stored", sample.relative)
      .add("peak_bytes", sample.peak);
}

// Every form at doubling depths; adds the slope of the memory of each and its time at the largest depth.
std::vector<Report> depths(const ModelChoice& choice, int64_t deepest, const Timing& timing, Report& report) {
  std::vector<Report> rows;
  std::vector<Sample> first, last;
  for (int64_t layers = kShallowest; layers <= deepest; layers *= 2) {
    std::vector<AutoregressiveOptions> models;
    for (const Form form : kForms) models.push_back(in_form(choice.model, form));
    for (AutoregressiveOptions& model : models) model.encoder.layers = layers;
    last = measure(models, choice.batch, timing);
    if (first.empty()) first = last;
    for (size_t i = 0; i < last.size(); ++i) rows.push_back(row_of(kNames[i], layers, last[i]));
  }
  const int64_t added = rows.empty() ? 0 : std::get<int64_t>(rows.back().fields()[1].second) - kShallowest;
  for (size_t i = 0; i < last.size(); ++i) {
    if (added > 0)
      report.add(std::string(kNames[i]) + "_added_layer_bytes", (last[i].peak - first[i].peak) / added);
    report.add(std::string(kNames[i]) + "_times_stored", last[i].relative);
  }
  return rows;
}

// One of the two numbers of chunks at 1, 4 and 16, in a model whose memory is mostly what it cuts.
std::vector<Report> chunks(const AutoregressiveOptions& base, const char* what, Form form, int64_t batch,
                           const Timing& timing) {
  constexpr int64_t kCounts[] = {1, 4, 16};
  const bool loss = std::string(what) == "loss";
  std::vector<AutoregressiveOptions> models;
  for (const int64_t count : kCounts) {
    models.push_back(in_form(base, form));
    (loss ? models.back().loss_chunks : models.back().encoder.feedforward_chunks) = count;
  }
  const auto samples = measure(models, batch, timing);
  std::vector<Report> rows;
  for (size_t i = 0; i < samples.size(); ++i)
    rows.push_back(Report()
                       .add("chunked", what)
                       .add("form", kNames[static_cast<size_t>(form)])
                       .add("chunks", kCounts[i])
                       .add("milliseconds", 1e3 * samples[i].seconds)
                       .add("times_whole", samples[i].relative)
                       .add("peak_bytes", samples[i].peak)
                       .add("share_of_peak",
                            static_cast<double>(samples[i].peak) / static_cast<double>(samples[0].peak)));
  return rows;
}

Report run_reversible(const CommandLine& line) {
  const Timing timing{line.options.get<int64_t>("repeats"), line.options.get<std::string>("clock")};
  const auto deepest = line.options.get<int64_t>("deepest");
  const ModelChoice choice = choose_model(line, line.options.get<int64_t>("batch"));
  Report report;
  report.add("threads", threads()).add("attention", choice.model.encoder.attention);
  const std::vector<Report> rows = depths(choice, deepest, timing, report);
  AutoregressiveOptions wide = choice.model;
  wide.max_length *= line.options.get<int64_t>("lengthen");
  wide.encoder.feedforward *= line.options.get<int64_t>("widen");
  AutoregressiveOptions many = choice.model;
  many.max_length = wide.max_length;
  many.head = Head::categorical;
  many.vocabulary = line.options.get<int64_t>("vocabulary");
  std::vector<Report> chunked;
  for (const auto& part : {chunks(wide, "feed-forward", Form::reversible, choice.batch, timing),
                           chunks(wide, "feed-forward", Form::stored, choice.batch, timing),
                           chunks(many, "loss", Form::reversible, choice.batch, timing)})
    chunked.insert(chunked.end(), part.begin(), part.end());
  return report.add("depths", rows).add("chunks", chunked);
}

// The options of a model, with sizes that keep 32 stored layers small.
std::vector<OptionSpec> options() {
  std::vector<OptionSpec> list = model_option_specs();
  for (OptionSpec& option : list) {
    if (option.name == "layers") {
      option.default_value = int64_t{1};
      option.help = "encoder layers of the models with chunks";
    }
    if (option.name == "heads") option.default_value = int64_t{4};
    if (option.name == "feedforward") option.default_value = int64_t{512};
    if (option.name == "length") option.default_value = int64_t{512};
  }
  list.push_back({.name = "batch", .default_value = int64_t{2}, .help = "sequences", .min = 1, .max = 4096});
  list.push_back({.name = "deepest",
                  .default_value = int64_t{32},
                  .help = "layers of the deepest model; the others have 2, 4, …",
                  .min = kShallowest,
                  .max = 1024});
  list.push_back({.name = "lengthen",
                  .default_value = int64_t{4},
                  .help = "times the length of the models with chunks",
                  .min = 1,
                  .max = 1024});
  list.push_back({.name = "widen",
                  .default_value = int64_t{8},
                  .help = "times the hidden units of the models with feed-forward chunks",
                  .min = 1,
                  .max = 1024});
  list.push_back({.name = "vocabulary",
                  .default_value = int64_t{4096},
                  .help = "symbols of the models with loss chunks",
                  .min = 2,
                  .max = 1 << 20});
  list.push_back({.name = "clock",
                  .default_value = std::string("wall"),
                  .help = "wall, or cpu: the processors' time, for one thread on a busy machine",
                  .choices = {"wall", "cpu"}});
  list.push_back(
      {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1});
  return list;
}

}  // namespace

Benchmark reversible_benchmark() {
  return {
      .name = "reversible",
      .summary = "stored, recomputed and reversible layers at doubling depths, and chunks: time and memory",
      .options = options(),
      .run = run_reversible};
}

}  // namespace tapeformer
