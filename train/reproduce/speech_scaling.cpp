// What an epoch of training on speech costs when utterances grow while the frames of the epoch stay the same:
// the models of "Transformers are RNNs" (Katharopoulos et al. 2020), section 4.3, whose utterances have 800
// frames on average and 2,400 at most. Features and labels are random: time does not depend on them.
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
constexpr int64_t kFramesPerLabel = 8;  // people speak about 12 phones a second

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
          number("repeats", 0, "repeats; the median counts; 0: 3, with --scale paper 5", 0)};
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

// A model in training.
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

Report reproduce_speech_scaling(const ReproductionOptions& options) {
  const Sizes s = sizes(options);
  const Device device = options.device;
  std::vector<Training> trainings;
  for (const std::string model : kModels)
    trainings.push_back(
        {.name = model, .config = "speech/an4-" + model + ".toml", .defaults = {}, .fixed = {}});
  check_settings(options, trainings);
  std::vector<std::unique_ptr<Learner>> learners;
  for (const Training& training : trainings) {
    const Config config = config_of(options, training);
    learners.push_back(std::make_unique<Learner>(config, s.lengths.back(), device));
    set_precision(config.run, device);  // the same for all
  }
  const Axis lengths{"frames of an utterance", Scale::log2};
  Chart time{.title = concat_text("A training epoch of ", s.epoch_frames, " frames"),
             .x = lengths,
             .y = {"seconds", Scale::log10},
             .series = {}};
  Chart memory{.title = concat_text("A training step on ", s.batch_frames, " frames, memory added"),
               .x = lengths,
               .y = {"MiB", Scale::log10},
               .series = {}};
  for (const char* model : kModels) {
    time.series.push_back({.name = model, .points = {}});
    memory.series.push_back({.name = model, .points = {}});
  }
  std::vector<Report> rows;
  std::vector<std::vector<std::string>> csv = {
      {"model", "frames", "batch", "seconds_per_epoch", "epoch_frames", "added_bytes"}};
  for (const int64_t length : s.lengths) {
    log_info("measuring utterances of ", length, " frames");
    const int64_t batch = s.batch_frames / length, steps = s.epoch_frames / s.batch_frames;
    CtcBatch data = random_utterances(batch, length, options.seed(1));
    data.features = data.features.to(device);
    std::array<int64_t, kModels.size()> added{};
    std::array<std::vector<double>, kModels.size()> seconds;
    for (size_t m = 0; m < kModels.size(); ++m) {
      learners[m]->step(data);  // the first step also allocates the optimizer state
      CachingAllocator& blocks = allocator(device);
      blocks.reset_peak();
      const int64_t before = blocks.stats().active;
      learners[m]->step(data);
      added[m] = blocks.stats().peak - before;
    }
    // The models alternate, so that other load on the machine slows all of them.
    for (int64_t repeat = 0; repeat < s.repeats; ++repeat)
      for (size_t m = 0; m < kModels.size(); ++m)
        seconds[m].push_back(seconds_of(
            [&] {
              for (int64_t i = 0; i < steps; ++i) learners[m]->step(data);
            },
            device));
    for (size_t m = 0; m < kModels.size(); ++m) {
      const double took = median(seconds[m]);
      const auto x = static_cast<double>(length);
      time.series[m].points.emplace_back(x, took);
      memory.series[m].points.emplace_back(x, static_cast<double>(added[m]) / kMebi);
      csv.push_back({kModels[m], std::to_string(length), std::to_string(batch), csv_number(took),
                     std::to_string(s.epoch_frames), std::to_string(added[m])});
      rows.push_back(Report()
                         .add("model", kModels[m])
                         .add("parameters", learners[m]->parameters())
                         .add("frames", length)
                         .add("batch", batch)
                         .add("seconds_per_epoch", took)
                         .add("added_bytes", added[m]));
    }
    write_csv(options.out / "speech-scaling.csv", csv);
  }
  write_chart(options.out / "speech-time", time);
  write_chart(options.out / "speech-memory", memory);
  return Report()
      .add("device", device.to_string())
      .add("threads", threads())
      .add("epoch_frames", s.epoch_frames)
      .add("batch_frames", s.batch_frames)
      .add("lengths", rows);
}

}  // namespace

Reproduction speech_scaling_reproduction() {
  return {.name = "speech-scaling",
          .summary = "time of a training epoch on speech by length of utterance, for every model of table 3",
          .run = reproduce_speech_scaling,
          .measure = epoch_specs(),
          .config_keys = {"model", "attention", "optimizer", "run.precision", "run.tf32"},
          .own_keys = {"model.attention", "model.encoder", "model.max_frames"}};
}

}  // namespace tapeformer
