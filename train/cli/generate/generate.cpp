// The command "tapeformer generate": samples images, continues texts or sequences, and measures the speed. As
// in the experiments of "Transformers are RNNs", the first byte of an image is given, and only the generation
// loop is timed.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "data/sets/directory.h"
#include "models/decoder.h"
#include "models/generation.h"
#include "ops/view.h"
#include "train/cli/commands.h"
#include "train/cli/generate/text_commands.h"
#include "train/cli/run_options.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"

namespace tapeformer {
namespace {

struct Plan {
  // The total number of samples of all processes, and the number of samples per batch of one process.
  int64_t count, batch;
  GenerationOptions options;
};

Plan make_plan(const CommandLine& line, const LoadedTask& run) {
  const auto count = line.options.get<int64_t>("count");
  const int64_t processes = init_process_group().communicator->size();
  return {.count = count,
          .batch = std::min(line.options.get<int64_t>("batch"), (count + processes - 1) / processes),
          .options = make_generation_options(run, line)};
}

// Returns the first bytes of `plan.count` test images in order, of shape (count, 1). If the data set has
// fewer test images, continues with the first image. If the data set is not available, returns zeros.
Tensor make_first_bytes(const AutoregressiveTask& task, const Plan& plan, const CommandLine& line) {
  const Tensor bytes = Tensor::zeros({plan.count, 1}, DType::uint8);
  const DataConfig& data = task.config().data;
  const bool has_path = data.has("path");
  const std::string path = has_path ? data.get<std::string>("path") : "";
  const CatalogueEntry* const set = find_catalogue_entry(data.dataset);
  const bool exists =
      has_path ? is_folder(path) : !set || find_dataset_folder(*set, line.common_options.data_dir);
  if (!exists) {
    log_warning(has_path ? "data.path = \"" + path + "\"" : "data set " + data.dataset,
                " was not found, so images begin with the byte 0 instead of the first bytes of test images");
    return bytes;
  }
  const auto images = task.open_split("test", plan.count);
  for (int64_t i = 0; i < plan.count; ++i) {
    const Batch example = images->batch(std::vector<int64_t>{i % images->size()});
    bytes.data<uint8_t>()[i] = *example.tokens.data<uint8_t>();
  }
  return bytes;
}

// Returns the fields that the reports of images and sequences have in common. `unit` is "images" or
// "sequences".
Report make_speed_report(const AutoregressiveModel& model, const Plan& plan, const std::string& unit,
                         const Communicator& processes, double seconds) {
  const bool has_state = plan.options.mode == GenerationMode::recurrent;
  return Report()
      .add("count", plan.count)
      .add("batch", plan.batch)
      .add("processes", processes.size())
      .add("mode", to_string(plan.options.mode))
      .add("seconds", seconds)
      .add(unit + "_per_second", static_cast<double>(plan.count) / seconds)
      .add("state_bytes", has_state ? Decoder(model, plan.batch).state_bytes() : int64_t{0});
}

void sample_images(const LoadedTask& run, const CommandLine& line) {
  Plan plan = make_plan(line, run);
  const auto& task = run.as<AutoregressiveTask>();
  check_grid_size(run, plan.count, 0);
  const auto path = prepare_picture_path(run, line, "generate");
  const Tensor first = make_first_bytes(task, plan, line);
  const int64_t dims = task.dataset_info().length + 1;
  const Tensor images = Tensor::zeros({plan.count, dims}, DType::uint8);
  Communicator& processes = *init_process_group().communicator;
  double seconds = 0;
  // A process generates the batch whose index is its rank, and then every processes.size()-th batch.
  for (int64_t done = processes.rank() * plan.batch; done < plan.count;
       done += processes.size() * plan.batch) {
    const int64_t now = std::min(plan.batch, plan.count - done);
    plan.options.first_sequence_index = done;
    const Tensor prefix = first.view({now, 1}, {1, 1}, done);
    const auto start = std::chrono::steady_clock::now();
    const Tensor drawn = generate(task.model(), prefix, dims, plan.options);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    images.view({now, dims}, {dims, 1}, done * dims).copy_from(drawn);
    if (done + now < plan.count) log_info(done + now, " of ", plan.count, " images, ", seconds, " s");
  }
  processes.all_reduce(images);  // images of other processes are 0, so the sum has all images
  seconds = all_reduce_max(processes, seconds);
  if (processes.is_first()) write_image_grid(run, path, images, 0);
  print_report(make_speed_report(task.model(), plan, "images", processes, seconds)
                   .add("out", path.string())
                   .add("checkpoint", run.checkpoint_folder.string()),
               line.common_options);
}

std::vector<int64_t> to_integers(const Tensor& tokens) {
  const auto values = tokens.to_vector();
  return {values.begin(), values.end()};
}

// Returns the length of the prefix that the model receives from an example. If the example has no mask, the
// length is 1. If the example has a mask, the prefix ends with the first token whose prediction is scored. In
// the copy task, this token is the separator, whose position is random and cannot be predicted.
int64_t count_given_tokens(const Batch& example) {
  if (!example.mask.defined()) return 1;
  const auto mask = example.mask.to_vector();
  const auto first = std::find(mask.begin(), mask.end(), 1) - mask.begin();
  return std::min<int64_t>(first + 2, example.tokens.size(1));
}

// Continues sequences one at a time, because their prefixes differ in length.
void continue_sequences(const LoadedTask& run, const CommandLine& line) {
  Plan plan = make_plan(line, run);
  const auto& task = run.as<AutoregressiveTask>();
  plan.batch = 1;
  const auto examples = task.open_split("test", plan.count);
  plan.count = std::min(plan.count, examples->size());
  Communicator& processes = *init_process_group().communicator;
  if (examples->size() > 0 && examples->batch(std::vector<int64_t>{0}).token_targets.defined())
    throw ConfigError(
        examples->info().name +
        ": a model of this data set cannot continue sequences, because it does not predict next tokens");
  const int64_t width = examples->info().length + 1;
  const Tensor drawn = Tensor::zeros({plan.count, width}, DType::int64);
  double seconds = 0;
  for (int64_t i = processes.rank(); i < plan.count; i += processes.size()) {
    const Batch example = examples->batch(std::vector<int64_t>{i});
    const Tensor prefix = slice(example.tokens, 1, 0, count_given_tokens(example));
    plan.options.first_sequence_index = i;
    const auto start = std::chrono::steady_clock::now();
    const Tensor sequence = generate(task.model(), prefix, width, plan.options);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    drawn.view({1, width}, {width, 1}, i * width).copy_from(sequence);
  }
  processes.all_reduce(drawn);  // sequences of other processes are 0, so the sum has all sequences
  seconds = all_reduce_max(processes, seconds);
  std::vector<Report> rows;
  for (int64_t i = 0; i < plan.count; ++i) {
    const Batch example = examples->batch(std::vector<int64_t>{i});
    const int64_t given = count_given_tokens(example);
    rows.push_back(
        Report()
            .add("given", to_integers(slice(example.tokens, 1, 0, given)))
            .add("drawn", to_integers(drawn.view({1, width - given}, {width, 1}, i * width + given)))
            .add("expected", to_integers(slice(example.tokens, 1, given, width))));
  }
  print_report(make_speed_report(task.model(), plan, "sequences", processes, seconds)
                   .add("checkpoint", run.checkpoint_folder.string())
                   .add("sequences", rows),
               line.common_options);
}

std::vector<CommandForm> list_generation_forms() {
  const OptionSpec scale{.name = "scale",
                         .default_value = std::string("elu"),
                         .help =
                             "without other sampling options: function for the scales of the logistics; elu: "
                             "as in the experiments of the paper, exp: as in the loss",
                         .choices = {"elu", "exp"}};
  return {{{"images", {make_batch_option(), scale, make_picture_path_option()}}, sample_images},
          make_text_form(),
          {{"symbols"}, continue_sequences}};
}

std::vector<OptionSpec> make_generate_options() {
  std::vector<OptionSpec> options = {make_checkpoint_option(),
                                     {.name = "count",
                                      .default_value = int64_t{16},
                                      .help = "images, sequences or texts (texts: 1 by default)",
                                      .min = 1,
                                      .max = 1 << 24},
                                     make_generation_mode_option(),
                                     make_weights_option()};
  for (const auto& more : {make_sampling_options(), merge_form_options(list_generation_forms())})
    options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace

CommandSpec make_generate_spec(const Arguments& /*words*/) {
  return {
      .summary = "Samples from a trained model and reports the speed of the generation loop.",
      .positionals = {make_run_argument(), {"-", "text: read the prompt from standard input", false}},
      .options = make_generate_options(),
      .details =
          "Models of text print the prompt and its continuation while they draw it. Texts are separated by\n"
          "lines with \"---\". With --json, the program prints one object at the end.\n"
          "Models of images do not predict the first byte, which is taken from the test images in turn.\n"
          "Sequences of the test split are continued one at a time, after their first predicted symbol.",
      .uses_config = true};
}

int run_generate(const CommandLine& line) {
  check_png_extension(line);
  init_process_group_and_threads(line.common_options);
  const LoadedTask run = load_task(line, ConfigPurpose::generation);
  if (line.positionals.size() > 1) require_subject(*run.task, {"text"}, "a prompt on standard input");
  run_form("generate", list_generation_forms(), run, line);
  return 0;
}

}  // namespace tapeformer
