// A benchmark of a training step of a speech model with utterances of doubling lengths and a fixed number of
// frames per step. Features and labels are random, because the time does not depend on their values.
#include <algorithm>

#include "core/allocator.h"
#include "core/base/errors.h"
#include "core/random/rng.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"
#include "train/build.h"
#include "train/optimization/optimizer.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {
namespace {

constexpr int64_t kDims = 40, kPhones = 39;
constexpr int64_t kFramesPerLabel = 8;  // about 12 phones per second at 100 frames per second

SpeechMetadata make_random_metadata() {
  Words phones;
  for (int64_t i = 0; i < kPhones; ++i) phones.push_back("p" + std::to_string(i));
  return {kDims, PhoneTable(phones), std::nullopt};
}

Batch make_random_utterances(int64_t batch, int64_t frames, uint64_t seed) {
  const RandomStream stream(seed, "speech-step");
  const int64_t labels = std::max<int64_t>(frames / kFramesPerLabel, 1);
  Batch result{.lengths = Tensor::full({batch}, frames, DType::int64),
               .labels = Tensor::empty({batch, labels}, DType::int64),
               .label_lengths = Tensor::full({batch}, labels, DType::int64),
               .elements = Tensor::empty({batch, frames, kDims})};
  for (int64_t i = 0; i < result.elements.numel(); ++i)
    result.elements.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  for (int64_t i = 0; i < result.labels.numel(); ++i)
    result.labels.data<int64_t>()[i] = 1 + static_cast<int64_t>(stream.uniform_below(
                                               static_cast<uint64_t>(i), static_cast<uint64_t>(kPhones)));
  return result;
}

class Learner {
 public:
  Learner(const Config& config, int64_t longest, Device device)
      : seed_(static_cast<uint64_t>(config.run.seed)) {
    SpeechModelOptions options = make_speech_model_options(config, make_random_metadata());
    options.max_frames = std::max(options.max_frames, longest);
    model_ = std::make_unique<SpeechModel>(options);
    model_->initialize(seed_);
    model_->move(device);
    optimizer_ =
        std::make_unique<Optimizer>(config.optimizer, model_->parameters(), model_->undecayed_parameters());
    lr_ = config.optimizer.lr;
  }
  void step(const Batch& batch) {
    backward(model_->compute_loss(batch, {.training = true, .seed = seed_, .step = number_++}).loss);
    optimizer_->step(lr_);
  }
  int64_t parameters() const { return count_parameters(*model_); }

 private:
  std::unique_ptr<SpeechModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  uint64_t seed_, number_ = 0;
  double lr_ = 0;
};

// Returns the peak memory that a step allocates in addition to the memory in use. Runs one step before the
// measurement, because the first step also allocates the optimizer state.
int64_t measure_added_bytes(Learner& learner, const Batch& data, Device device) {
  learner.step(data);
  CachingAllocator& blocks = get_device_allocator(device);
  blocks.reset_peak();
  const int64_t before = blocks.stats().active_bytes;
  learner.step(data);
  return blocks.stats().peak_bytes - before;
}

Config load_step_config(const BenchmarkArguments& arguments) {
  const auto& path = arguments.options.get<std::string>("config");
  if (path.empty()) throw ConfigError("--config is required: a config of a speech model");
  Config config = load_config(path, arguments.overrides.config_settings,
                              {.purpose = ConfigPurpose::benchmark, .device = arguments.overrides.device});
  arguments.overrides.apply(config);
  if (config.model.type != "speech")
    throw ConfigError("--config " + path + ": expected model.type = \"speech\", got \"" + config.model.type +
                      "\"");
  return config;
}

Report run_speech_step(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const int64_t shortest = number("shortest"), longest = number("longest"), frames = number("frames");
  if (shortest > longest || longest > frames)
    throw ConfigError(concat_text("expected --shortest <= --longest <= --frames, got ", shortest, ", ",
                                  longest, ", ", frames));
  const Config config = load_step_config(arguments);
  Learner learner(config, longest, arguments.device);
  set_precision(config.run, arguments.device);
  std::vector<Report> rows;
  for (int64_t length = shortest; length <= longest; length *= 2) {
    Batch data = make_random_utterances(frames / length, length, static_cast<uint64_t>(config.run.seed));
    data.elements = data.elements.to(arguments.device);
    const int64_t bytes = measure_added_bytes(learner, data, arguments.device);
    const double seconds = measure_median_call_seconds(
        number("repeats"), [&] { learner.step(data); }, arguments.device);
    rows.push_back(Report()
                       .add("length", length)
                       .add("batch", frames / length)
                       .add("seconds", seconds)
                       .add("peak_bytes", bytes));
  }
  return Report()
      .add("device", arguments.device.to_string())
      .add("threads", get_thread_count())
      .add("parameters", learner.parameters())
      .add("frames", frames)
      .add("lengths", rows);
}

}  // namespace

Benchmark make_speech_step_benchmark() {
  const auto count = [](const char* name, int64_t value, const char* help) {
    return OptionSpec{.name = name, .default_value = value, .help = help, .min = 1, .max = 1 << 24};
  };
  return {.name = "speech-step",
          .summary = "a training step of a speech model by the length of utterances: time and added memory",
          .options = {{.name = "config", .default_value = std::string(), .help = "file with the model"},
                      count("shortest", 300, "frames of the shortest utterances"),
                      count("longest", 2400, "frames of the longest utterances"),
                      count("frames", 4800, "frames of a step"),
                      count("repeats", 3, "repeats for the median")},
          .run = run_speech_step,
          .accepts_device_option = true,
          .default_seed = "run.seed"};
}

}  // namespace tapeformer
