// "Transformers are RNNs" (Katharopoulos et al. 2020), tables 1, 2, 4 and 5: bits/dim and speed of generation
// on MNIST and CIFAR-10.
#include <algorithm>
#include <span>

#include "core/base/errors.h"
#include "train/reproduce/commands.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

struct PublishedImages {
  const char* name;
  NamedValues paper;
};

// The rows of the paper, and a linear model that forgets (Gated DeltaNet, 2024). Values that the paper
// publishes: bits/dim and images per second from tables 1, 2 and 4, and seconds per image at batch size 1
// from table 5. For softmax attention, the values named "recurrent" are the values that the paper publishes
// for "stateful softmax".
const std::vector<PublishedImages> kMnist = {{"softmax",
                                              {{"bits_per_dim", 0.621},
                                               {"recompute_images_per_second", 0.45},
                                               {"recurrent_images_per_second", 7.56},
                                               {"recompute_cpu_seconds", 72.6},
                                               {"recurrent_cpu_seconds", 7.4},
                                               {"recompute_device_seconds", 10.2},
                                               {"recurrent_device_seconds", 10.4}}},
                                             {"lsh-1",
                                              {{"bits_per_dim", 0.745},
                                               {"recompute_images_per_second", 0.68},
                                               {"recompute_cpu_seconds", 46.0},
                                               {"recompute_device_seconds", 19.2}}},
                                             {"lsh-4",
                                              {{"bits_per_dim", 0.676},
                                               {"recompute_images_per_second", 0.27},
                                               {"recompute_cpu_seconds", 112.0},
                                               {"recompute_device_seconds", 55.8}}},
                                             {"linear",
                                              {{"bits_per_dim", 0.644},
                                               {"recurrent_images_per_second", 142.8},
                                               {"recurrent_cpu_seconds", 5.5},
                                               {"recurrent_device_seconds", 7.3}}},
                                             {"gated-delta", {}}};
const std::vector<PublishedImages> kCifar10 = {{"softmax",
                                                {{"bits_per_dim", 3.47},
                                                 {"recompute_images_per_second", 0.004},
                                                 {"recurrent_images_per_second", 0.32},
                                                 {"recompute_cpu_seconds", 8651.4},
                                                 {"recurrent_cpu_seconds", 71.9},
                                                 {"recompute_device_seconds", 300.1},
                                                 {"recurrent_device_seconds", 70.4}}},
                                               {"lsh-1",
                                                {{"bits_per_dim", 3.39},
                                                 {"recompute_images_per_second", 0.015},
                                                 {"recompute_cpu_seconds", 2318.9},
                                                 {"recompute_device_seconds", 221.6}}},
                                               {"lsh-4",
                                                {{"bits_per_dim", 3.51},
                                                 {"recompute_images_per_second", 0.005},
                                                 {"recompute_cpu_seconds", 5263.7},
                                                 {"recompute_device_seconds", 683.9}}},
                                               {"linear",
                                                {{"bits_per_dim", 3.40},
                                                 {"recurrent_images_per_second", 17.85},
                                                 {"recurrent_cpu_seconds", 45.1},
                                                 {"recurrent_device_seconds", 61.3}}},
                                               {"gated-delta", {}}};

// Settings that adapt the learned positions of cifar10/small.toml to the image size and the model width at
// the smoke scale.
constexpr const char* kCifar10SmokeSettings[] = {"model.axial_shape=[8, 8, 3]",
                                                 "model.axial_dims=[12, 12, 8]"};

struct PaperImages {
  const char *name, *folder, *title;
  const std::vector<PublishedImages>& published;
  int64_t chunk;                                // LSH chunk length in the paper
  int64_t downscale;                            // data.downscale at the smoke scale
  int64_t smoke_chunk;                          // LSH chunk length at the smoke scale
  std::span<const char* const> smoke_settings;  // further settings at the smoke scale
  int64_t tokens, smoke_tokens;                 // that a model draws for an image
};
const PaperImages kSets[] = {
    {"mnist", "mnist", "MNIST", kMnist, 29, 4, 4, {}, 783, 48},
    {"cifar10", "cifar10", "CIFAR-10", kCifar10, 37, 4, 8, kCifar10SmokeSettings, 3071, 191}};

// Returns the settings that select the attention kind of a row. `chunk` is the LSH chunk length. Layers with
// a gated delta rule have more projections, so their feed-forward blocks are narrower.
std::vector<std::string> kind_settings(const std::string& row, int64_t chunk, TableScale scale) {
  if (row == "gated-delta")
    return {"model.attention=" + row,
            scale == TableScale::smoke ? "model.feedforward=48" : "model.feedforward=440"};
  if (!row.starts_with("lsh-")) return {"model.attention=" + row};
  return {"model.attention=lsh", "attention.preset=fast_transformers",
          concat_text("attention.chunk_length=", chunk), "attention.rounds=" + row.substr(4)};
}

// Returns the row with the name `published.name`. At the paper scale, each row has a separate config file. At
// the other scales, all rows use the config file small.toml.
Row make_row(const PaperImages& set, const PublishedImages& published, TableScale scale) {
  Row row{.name = published.name, .paper_values = published.paper};
  const std::string folder = set.folder + std::string("/");
  row.config_path = folder + (scale == TableScale::paper ? row.name : "small") + ".toml";
  if (scale == TableScale::paper) return row;
  row.fixed_settings =
      kind_settings(row.name, scale == TableScale::smoke ? set.smoke_chunk : set.chunk, scale);
  if (scale == TableScale::small) {
    row.default_settings = {"run.precision=bfloat16", "train.keep_last=1"};
    return row;
  }
  row.default_settings = {concat_text("data.downscale=", set.downscale),
                          "model.layers=2",
                          "model.head_dim=8",
                          "model.feedforward=64",
                          "train.steps=60",
                          "schedule.warmup_steps=10",
                          "train.keep_last=1",
                          "attention.buckets=16",
                          "data.eval_limit=50"};
  row.default_settings.insert(row.default_settings.end(), set.smoke_settings.begin(),
                              set.smoke_settings.end());
  return row;
}

std::vector<std::string> notes_of(const PaperImages& set, TableScale scale) {
  std::vector<std::string> notes = {
      "Speeds: the paper measured recomputation for softmax and LSH attention, the recurrent form for linear "
      "attention, and the cache of keys and values (\"stateful softmax\") in its supplement."};
  if (scale == TableScale::paper) return notes;
  notes.emplace_back(concat_text("The model is configs/", set.folder,
                                 "/small.toml and not the model of the paper, in width, depth, recipe and "
                                 "length of training, so its figures are not comparable with the paper's."));
  if (scale == TableScale::smoke)
    notes.emplace_back(
        "Images are averaged over blocks of pixels, and 60 steps do not train a useful model.");
  else
    notes.emplace_back(
        "run.precision is bfloat16: the operands of matrix products and the stored activations are bfloat16, "
        "and the weights are float32.");
  return notes;
}

Table make_image_table(const PaperImages& set, const ReproductionOptions& options) {
  const std::vector<std::string> cached = {"softmax", "linear", "gated-delta"},
                                 recomputed = {"softmax", "lsh-1", "lsh-4"};
  const int64_t batch = options.select_size("batch", 4, 16, 10000),
                recompute_batch = options.select_size("recompute_batch", 2, 2, 32);
  Table table{.title = std::string(set.title) + ": bits/dim and images per second",
              .source = "\"Transformers are RNNs\", tables 1, 2, 4 and 5.",
              .notes = notes_of(set, options.scale),
              .rows = {},
              .measurements = {make_test_evaluation_measurement("test", {make_test_bits_per_dim_field()}),
                               make_training_curve_measurement("loss")},
              .figures = {{"loss", set.title, {"training step"}, {"loss, nats/dim", Scale::log10}}}};
  const auto add = [&](GenerationMeasurementOptions speed) {
    table.measurements.push_back(make_generation_measurement(speed));
  };
  add({.column = "recurrent_images_per_second",
       .label = "images/s, cached or recurrent",
       .mode = "recurrent",
       .image_count = batch,
       .batch_size = batch,
       .row_names = cached});
  add({.column = "recompute_images_per_second",
       .label = "images/s, recomputed",
       .mode = "recompute",
       .image_count = recompute_batch,
       .batch_size = recompute_batch,
       .row_names = recomputed});
  add({.column = "recurrent_cpu_seconds",
       .label = "s/image at batch 1, CPU, cached or recurrent",
       .mode = "recurrent",
       .device = "cpu",
       .measures_latency = true,
       .row_names = cached});
  add({.column = "recompute_cpu_seconds",
       .label = "s/image at batch 1, CPU, recomputed",
       .mode = "recompute",
       .device = "cpu",
       .measures_latency = true,
       .row_names = recomputed});
  if (!options.device.is_cpu()) {
    add({.column = "recurrent_device_seconds",
         .label = "s/image at batch 1, device, cached or recurrent",
         .mode = "recurrent",
         .measures_latency = true,
         .row_names = cached});
    add({.column = "recompute_device_seconds",
         .label = "s/image at batch 1, device, recomputed",
         .mode = "recompute",
         .measures_latency = true,
         .row_names = recomputed});
  }
  for (const PublishedImages& row : set.published) table.rows.push_back(make_row(set, row, options.scale));
  return table;
}

Table sample_table(const PaperImages& set, const ReproductionOptions& options) {
  const int64_t count = options.select_size("count", 4, 16, 64);
  const auto pictures = [](const std::string& what) {
    return [what](const std::vector<Json>&, const Trial& trial) {
      return MeasurementResults{
          .pictures = {make_run_name(trial.row, trial.config.run.seed) + "." + what + ".png"}};
    };
  };
  Table table{.title = std::string(set.title) + ": samples and completions",
              .source =
                  "\"Transformers are RNNs\", figures of samples and of completions: the original, the "
                  "given half and completions.",
              .notes = notes_of(set, options.scale),
              .rows = {},
              .measurements = {make_test_evaluation_measurement("test", {make_test_bits_per_dim_field()}),
                               {.name = "samples",
                                .commands = {{"generate", "{run}", "--count", std::to_string(count), "--out",
                                              "{file}.samples.png"}},
                                .read_results = pictures("samples"),
                                .measures_first_seed_only = true},
                               {.name = "completions",
                                .commands = {{"complete", "{run}", "--index", "0,1,2,3,4", "--out",
                                              "{file}.completions.png"}},
                                .read_results = pictures("completions"),
                                .measures_first_seed_only = true}},
              .figures = {}};
  for (const PublishedImages& row : set.published) table.rows.push_back(make_row(set, row, options.scale));
  return table;
}

// Tokens that are measured if each takes the same time, as with a state of constant size.
constexpr int64_t kTokensOfConstantTime = 100;

// Returns the batches in which a speed table measures images per second. The cache of a large batch of
// softmax attention does not fit into memory, and recomputation uses all cores for one image.
std::vector<int64_t> list_speed_batches(const std::string& mode, const std::string& row) {
  if (mode == "recompute") return {4};
  return row == "softmax" ? std::vector<int64_t>{1, 8} : std::vector<int64_t>{16, 64, 256};
}

// Returns the column of a measured value, which is `name` in the paper's precision, float32.
std::string name_speed_column(const std::string& name, const std::string& precision) {
  return precision == "float32" ? name : name + "_" + precision;
}

// Returns a measurement of the speed of generation by an untrained model: the time of an image on one core
// and, in the best batch, the images per second on all cores.
Measurement make_untrained_speed_measurement(const std::string& mode, const std::string& precision,
                                             int64_t tokens, int64_t positions,
                                             std::vector<std::string> rows) {
  const std::string seconds = name_speed_column(mode + "_cpu_seconds", precision),
                    rate = name_speed_column(mode + "_images_per_second", precision),
                    ratio = seconds + "_ratio",
                    form = (mode == "recurrent" ? "cached or recurrent" : "recomputed") +
                           std::string(precision == "float32" ? "" : ", " + precision);
  Measurement measurement{
      .name = mode + "-" + precision,
      .columns = {{seconds, "s/image, " + form, 3, true, true}, {rate, "images/s, " + form, 3, true, true}},
      .row_names = std::move(rows),
      .measures_first_seed_only = true};
  if (precision == "float32") measurement.columns.push_back({ratio, "paper's s/image / ours", 1, true, true});
  measurement.make_trial_commands = [=](const Trial& trial) {
    std::vector<Words> commands;
    const bool is_constant = mode == "recurrent" && trial.row.name != "softmax";
    const int64_t drawn = is_constant ? std::min(tokens, kTokensOfConstantTime) : tokens;
    for (const int64_t batch : list_speed_batches(mode, trial.row.name))
      commands.push_back({"bench", "generate", "--config", "{config}", "--precision", precision, "--mode",
                          mode, "--batch", std::to_string(batch), "--tokens", std::to_string(drawn),
                          "--positions", std::to_string(mode == "recompute" ? positions : 0), "--repeats",
                          "1", "--device", "cpu"});
    return commands;
  };
  measurement.read_results = [=](const std::vector<Json>& outputs, const Trial& trial) {
    const auto image_tokens = static_cast<double>(tokens);
    const double measured =
        outputs.front()["cases"][0]["milliseconds_per_token"].get<double>() * image_tokens / 1000;
    double best = 0;
    for (const Json& output : outputs)
      best = std::max(best, output["cases"][1]["tokens_per_second"].get<double>() / image_tokens);
    MeasurementResults results{.values = {{seconds, measured}, {rate, best}}};
    for (const auto& [name, published] : trial.row.paper_values)
      if (name == seconds) results.values.emplace_back(ratio, published / measured);
    if (precision == "float32" && results.values.size() == 2) results.texts.emplace_back(ratio, "–");
    return results;
  };
  return measurement;
}

Table make_speed_table(const PaperImages& set, const ReproductionOptions& options) {
  const bool smoke = options.scale == TableScale::smoke;
  const int64_t image_tokens = smoke ? set.smoke_tokens : set.tokens,
                positions = options.select_size("positions", 2, 16, 0);
  Table table{.title = std::string(set.title) + ": speed of generation",
              .source = "\"Transformers are RNNs\", tables 1, 2, 4 and 5.",
              .notes = {"Weights are those of the initialization, because speeds do not depend on them.",
                        "s/image: batch 1 on one core. images/s: all cores, in the best of several batches; "
                        "the paper measured it on a GPU.",
                        concat_text("linear and gated-delta are measured for ",
                                    std::min(image_tokens, kTokensOfConstantTime),
                                    " tokens, which all take the same time.")},
              .needs_training = false};
  if (smoke) table.notes.emplace_back("The model and the images are smaller than in the paper.");
  if (positions > 0)
    table.notes.emplace_back(concat_text("Recomputation is measured for ", positions, " of ", image_tokens,
                                         " tokens, at evenly spaced positions."));
  for (const std::string precision : {"float32", "bfloat16"}) {
    table.measurements.push_back(make_untrained_speed_measurement(
        "recurrent", precision, image_tokens, positions, {"softmax", "linear", "gated-delta"}));
    table.measurements.push_back(make_untrained_speed_measurement("recompute", precision, image_tokens,
                                                                  positions, {"softmax", "lsh-1", "lsh-4"}));
  }
  for (const PublishedImages& row : set.published)
    table.rows.push_back(make_row(set, row, smoke ? TableScale::smoke : TableScale::paper));
  return table;
}

std::vector<OptionSpec> speed_options() {
  return {make_size_option("batch", "images at the same time in the recurrent form"),
          make_size_option("recompute_batch", "images at the same time by recomputation")};
}

Reproduction make_reproduction(const char* name, const char* summary,
                               Table (*table)(const ReproductionOptions&), std::vector<OptionSpec> measure) {
  return {.name = name,
          .summary = summary,
          .make_table = table,
          .measurement_options = std::move(measure),
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "data.dataset"}};
}

Reproduction make_speed_reproduction(const char* name, const char* summary,
                                     Table (*table)(const ReproductionOptions&)) {
  return {.name = name,
          .summary = summary,
          .make_table = table,
          .measurement_options = {make_size_option("positions",
                                                   "measured tokens of an image that is recomputed")},
          .config_keys = {"model", "attention"},
          .reserved_keys = {"model.attention"}};
}

}  // namespace

Reproduction make_mnist_table_reproduction() {
  return make_reproduction(
      "mnist-table", "Transformers are RNNs, tables 1, 4 and 5: bits/dim and images per second on MNIST",
      [](const ReproductionOptions& options) { return make_image_table(kSets[0], options); },
      speed_options());
}

Reproduction make_cifar10_table_reproduction() {
  return make_reproduction(
      "cifar10-table", "Transformers are RNNs, tables 2, 4 and 5: bits/dim and images per second on CIFAR-10",
      [](const ReproductionOptions& options) { return make_image_table(kSets[1], options); },
      speed_options());
}

Reproduction make_mnist_speed_reproduction() {
  return make_speed_reproduction(
      "mnist-speed",
      "Transformers are RNNs, tables 1, 4 and 5: speed of generation with the paper's MNIST models",
      [](const ReproductionOptions& options) { return make_speed_table(kSets[0], options); });
}

Reproduction make_cifar10_speed_reproduction() {
  return make_speed_reproduction(
      "cifar10-speed",
      "Transformers are RNNs, tables 2, 4 and 5: speed of generation with the paper's CIFAR-10 models",
      [](const ReproductionOptions& options) { return make_speed_table(kSets[1], options); });
}

Reproduction make_mnist_samples_reproduction() {
  return make_reproduction("mnist-samples", "Transformers are RNNs: samples and completions on MNIST",
                           [](const ReproductionOptions& options) { return sample_table(kSets[0], options); },
                           {make_size_option("count", "number of samples")});
}

Reproduction make_cifar10_samples_reproduction() {
  return make_reproduction("cifar10-samples", "Transformers are RNNs: samples and completions on CIFAR-10",
                           [](const ReproductionOptions& options) { return sample_table(kSets[1], options); },
                           {make_size_option("count", "number of samples")});
}

}  // namespace tapeformer
