// Time and memory of training on speech by the length of utterances, with a fixed number of frames per epoch.
// The models follow "Transformers are RNNs" (Katharopoulos et al. 2020), section 4.3. The utterances of
// the paper have 800 frames on average and at most 2,400. Features and labels are random, because the time
// does not depend on their values.
#include <algorithm>
#include <array>

#include "core/allocator.h"
#include "core/errors.h"
#include "core/rng.h"
#include "core/system/log.h"
#include "train/bench/measure.h"
#include "train/build.h"
#include "train/optimizer.h"
#include "train/reproduce/chart.h"
#include "train/reproduce/reproduce.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {
namespace {

constexpr std::array<const char*, 4> kModels = {"bilstm", "softmax", "lsh-4", "linear"};
constexpr int64_t kDims = 40, kPhones = 39;
constexpr int64_t kFramesPerLabel = 8;  // about 12 phones per second

struct Sizes {
  std::vector<int64_t> lengths;
  int64_t batch_frames, epoch_frames, repeats;
};

std::vector<OptionSpec> epoch_specs() {
  const double largest = 1 << 24;
  const auto number = [&](const char* name, int64_t value, const char* help, double least) {
    return OptionSpec{.name = name, .default_value = value, .help = help, .min = least, .max = largest};
  };
  return {number("shortest", 300, "frames of the shortest utterances", 8),
          number("longest", 0, "frames of the longest utterances; 0: 2400, with --scale paper 4800", 0),
          number("batch_frames", 0, "frames of a step; 0: 4800, with --scale paper 9600", 0),
          number("epoch_frames", 0, "frames of an epoch; 0: 9600, with --scale paper 48000", 0),
          number("repeats", 0, "repeats for the median; 0: 3, with --scale paper 5", 0)};
}

Sizes sizes(const ReproductionOptions& options) {
  const auto get = [&](const char* name, int64_t smoke, int64_t paper) {
    const auto value = options.measure.get<int64_t>(name);
    return value > 0 ? value : options.paper ? paper : smoke;
  };
  Sizes s{{}, get("batch_frames", 4800, 9600), get("epoch_frames", 9600, 48000), get("repeats", 3, 5)};
  const int64_t longest = get("longest", 2400, 4800), shortest = get("shortest", 300, 300);
  if (shortest > longest || longest > s.batch_frames || s.batch_frames > s.epoch_frames)
    throw ConfigError(
        concat_text("expected measure.shortest <= longest <= batch_frames <= epoch_frames, got ", shortest,
                    ", ", longest, ", ", s.batch_frames, ", ", s.epoch_frames));
  for (int64_t length = shortest; length <= longest; length *= 2) s.lengths.push_back(length);
  return s;
}

SpeechDescription random_description() {
  Words phones;
  for (int64_t i = 0; i < kPhones; ++i) phones.push_back("p" + std::to_string(i));
  return {kDims, PhoneTable(phones), std::nullopt};
}

CtcBatch random_utterances(int64_t batch, int64_t frames, uint64_t seed) {
  const RandomStream stream(seed, "speech-scaling");
  const int64_t labels = std::max<int64_t>(frames / kFramesPerLabel, 1);
  CtcBatch result{Tensor::empty({batch, frames, kDims}), Tensor::full({batch}, frames, DType::int64),
                  Tensor::empty({batch, labels}, DType::int64), Tensor::full({batch}, labels, DType::int64)};
  for (int64_t i = 0; i < result.features.numel(); ++i)
    result.features.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  for (int64_t i = 0; i < result.labels.numel(); ++i)
    result.labels.data<int64_t>()[i] =
        1 + static_cast<int64_t>(stream.below(static_cast<uint64_t>(i), static_cast<uint64_t>(kPhones)));
  return result;
}

// Model with its optimizer.
class Learner {
 public:
  Learner(const Config& config, int64_t longest, Device device)
      : seed_(static_cast<uint64_t>(config.run.seed)) {
    SpeechModelOptions options = speech_model_options(config, random_description());
    options.max_frames = std::max(options.max_frames, longest);
    model_ = std::make_unique<SpeechModel>(options);
    model_->initialize(seed_);
    model_->move(device);
    optimizer_ = std::make_unique<Optimizer>(config.optimizer, model_->parameters());
    lr_ = config.optimizer.lr;
  }
  void step(const CtcBatch& batch) {
    backward(model_->loss(batch, {.training = true, .seed = seed_, .step = number_++}).loss);
    optimizer_->step(lr_);
  }
  int64_t parameters() const { return parameter_count(*model_); }

 private:
  std::unique_ptr<SpeechModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  uint64_t seed_, number_ = 0;
  double lr_ = 0;
};

std::vector<std::unique_ptr<Learner>> make_learners(const ReproductionOptions& options, int64_t longest) {
  std::vector<Training> trainings;
  for (const std::string model : kModels)
    trainings.push_back(
        {.name = model, .config = "speech/an4-" + model + ".toml", .defaults = {}, .fixed = {}});
  check_settings(options, trainings);
  std::vector<std::unique_ptr<Learner>> learners;
  for (const Training& training : trainings) {
    const Config config = config_of(options, training);
    learners.push_back(std::make_unique<Learner>(config, longest, options.device));
    set_precision(config.run, options.device);  // equal in all configs
  }
  return learners;
}

// Returns the peak memory that a step allocates in addition to the memory in use. Runs one step before the
// measurement, because the first step also allocates the optimizer state.
int64_t added_bytes(Learner& learner, const CtcBatch& data, Device device) {
  learner.step(data);
  CachingAllocator& blocks = device_allocator(device);
  blocks.reset_peak();
  const int64_t before = blocks.stats().active;
  learner.step(data);
  return blocks.stats().peak - before;
}

// Measurements of one length, one for each model.
struct LengthFigures {
  int64_t length, batch;
  std::array<double, kModels.size()> seconds;  // seconds per epoch
  std::array<int64_t, kModels.size()> added_bytes;
};

LengthFigures measure_length(const ReproductionOptions& options, const Sizes& s, int64_t length,
                             const std::vector<std::unique_ptr<Learner>>& learners) {
  log_info("measuring utterances of ", length, " frames");
  LengthFigures figures{.length = length, .batch = s.batch_frames / length, .seconds = {}, .added_bytes = {}};
  CtcBatch data = random_utterances(figures.batch, length, options.seed(1));
  data.features = data.features.to(options.device);
  for (size_t m = 0; m < kModels.size(); ++m)
    figures.added_bytes[m] = added_bytes(*learners[m], data, options.device);
  // The models alternate, so that other load on the machine affects all of them.
  std::array<std::vector<double>, kModels.size()> seconds;
  const auto epoch = [&](Learner& learner) {
    for (int64_t i = 0; i < s.epoch_frames / s.batch_frames; ++i) learner.step(data);
  };
  for (int64_t repeat = 0; repeat < s.repeats; ++repeat)
    for (size_t m = 0; m < kModels.size(); ++m)
      seconds[m].push_back(seconds_of([&] { epoch(*learners[m]); }, options.device));
  for (size_t m = 0; m < kModels.size(); ++m) figures.seconds[m] = median(seconds[m]);
  return figures;
}

// Charts, CSV and report of the measurements.
class Results {
 public:
  explicit Results(const Sizes& s) : epoch_frames_(s.epoch_frames) {
    time_.title = concat_text("A training epoch of ", s.epoch_frames, " frames");
    memory_.title = concat_text("A training step on ", s.batch_frames, " frames, memory added");
    for (const char* model : kModels) {
      time_.series.push_back({.name = model, .points = {}});
      memory_.series.push_back({.name = model, .points = {}});
    }
  }

  void add(const LengthFigures& figures, size_t m, int64_t parameters) {
    const auto x = static_cast<double>(figures.length);
    const double seconds = figures.seconds[m];
    const int64_t bytes = figures.added_bytes[m];
    time_.series[m].points.emplace_back(x, seconds);
    memory_.series[m].points.emplace_back(x, static_cast<double>(bytes) / kMebi);
    csv_.push_back({kModels[m], std::to_string(figures.length), std::to_string(figures.batch),
                    csv_number(seconds), std::to_string(epoch_frames_), std::to_string(bytes)});
    rows_.push_back(Report()
                        .add("model", kModels[m])
                        .add("parameters", parameters)
                        .add("frames", figures.length)
                        .add("batch", figures.batch)
                        .add("seconds_per_epoch", seconds)
                        .add("added_bytes", bytes));
  }

  void write_table(const std::filesystem::path& folder) const {
    write_csv(folder / "speech-scaling.csv", csv_);
  }
  void write_charts(const std::filesystem::path& folder) const {
    write_chart(folder / "speech-time", time_);
    write_chart(folder / "speech-memory", memory_);
  }
  const std::vector<Report>& rows() const { return rows_; }

 private:
  int64_t epoch_frames_;
  Chart time_{.title = "",
              .x = {"frames of an utterance", Scale::log2},
              .y = {"seconds", Scale::log10},
              .series = {}};
  Chart memory_{
      .title = "", .x = {"frames of an utterance", Scale::log2}, .y = {"MiB", Scale::log10}, .series = {}};
  std::vector<Report> rows_;
  std::vector<CsvRow> csv_ = {
      {"model", "frames", "batch", "seconds_per_epoch", "epoch_frames", "added_bytes"}};
};

Report reproduce_speech_scaling(const ReproductionOptions& options) {
  const Sizes s = sizes(options);
  const auto learners = make_learners(options, s.lengths.back());
  Results results(s);
  for (const int64_t length : s.lengths) {
    const LengthFigures figures = measure_length(options, s, length, learners);
    for (size_t m = 0; m < kModels.size(); ++m) results.add(figures, m, learners[m]->parameters());
    results.write_table(options.out);  // keeps complete lengths if the reproduction is interrupted
  }
  results.write_charts(options.out);
  return Report()
      .add("device", options.device.to_string())
      .add("threads", threads())
      .add("epoch_frames", s.epoch_frames)
      .add("batch_frames", s.batch_frames)
      .add("lengths", results.rows());
}

}  // namespace

Reproduction speech_scaling_reproduction() {
  return {
      .name = "speech-scaling",
      .summary = "time of a training epoch on speech by the length of utterances, for the models of table 3",
      .run = reproduce_speech_scaling,
      .measure = epoch_specs(),
      .config_keys = {"model", "attention", "optimizer", "run.precision", "run.tf32"},
      .own_keys = {"model.attention", "model.encoder", "model.max_frames"}};
}

}  // namespace tapeformer
