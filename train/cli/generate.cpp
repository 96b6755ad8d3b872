// tapeformer generate: draws images, or continues sequences, and measures how fast. As in the experiments of
// "Transformers are RNNs", the first byte of an image is given and the time is that of the generation loop
// only.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/errors.h"
#include "core/system/log.h"
#include "data/sets/directory.h"
#include "models/decoder.h"
#include "models/generation.h"
#include "ops/view.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"

namespace tapeformer {
namespace {

struct Plan {
  int64_t count, batch;
  GenerationOptions options;
};

Plan plan_of(const CommandLine& line, const LoadedRun& run) {
  Plan plan;
  plan.count = line.options.get<int64_t>("count");
  plan.batch = std::min(line.options.get<int64_t>("batch"), plan.count);
  plan.options.mode = generation_mode(line, *run.model);
  plan.options.graphs = run.config.run.cuda_graphs;
  if (line.options.get<std::string>("scale") == "exp") plan.options.scale = SamplingScale::exp;
  plan.options.greedy = line.options.get<bool>("greedy");
  plan.options.seed = static_cast<uint64_t>(line.common.seed.value_or(0));
  return plan;
}

// One byte for each image, (count, 1): those of the test images in turn, or 0 where the data is not at hand.
Tensor first_bytes(const LoadedRun& run, const Plan& plan, const CommandLine& line) {
  const Tensor bytes = Tensor::zeros({plan.count, 1}, DType::uint8);
  if (!locate_set(known_set(run.config.data.dataset), line.common.data_dir)) {
    log_info(run.config.data.dataset, " is not here, so images begin with the byte 0");
    return bytes;
  }
  const auto images = open_split(run, "test", plan.count, line);
  for (int64_t i = 0; i < plan.count; ++i) {
    const Batch one = images->batch(std::vector<int64_t>{i % images->size()});
    bytes.data<uint8_t>()[i] = *one.tokens.data<uint8_t>();
  }
  return bytes;
}

int64_t state_bytes(const AutoregressiveModel& model, const Plan& plan) {
  return plan.options.mode == GenerationMode::recurrent ? Decoder(model, plan.batch).state_bytes() : 0;
}

void draw_images(const LoadedRun& run, Plan plan, const CommandLine& line) {
  const auto path = picture_path(run, line, "generate");
  const Tensor first = first_bytes(run, plan, line);
  const int64_t dims = run.data.length + 1, state = state_bytes(*run.model, plan);
  const Tensor images = Tensor::zeros({plan.count, dims}, DType::uint8);
  double seconds = 0;
  for (int64_t done = 0; done < plan.count; done += plan.batch) {
    const int64_t now = std::min(plan.batch, plan.count - done);
    plan.options.first_sequence = done;
    const Tensor prefix = first.view({now, 1}, {1, 1}, done);
    const auto start = std::chrono::steady_clock::now();
    const Tensor drawn = generate(*run.model, prefix, dims, plan.options);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    images.view({now, dims}, {dims, 1}, done * dims).copy_from(drawn);
    if (done + now < plan.count) log_info(done + now, " of ", plan.count, " images, ", seconds, " s");
  }
  write_grid(run, path, images, 0);
  print_report(Report()
                   .add("count", plan.count)
                   .add("batch", plan.batch)
                   .add("mode", name_of(plan.options.mode))
                   .add("seconds", seconds)
                   .add("images_per_second", static_cast<double>(plan.count) / seconds)
                   .add("state_bytes", state)
                   .add("out", path.string())
                   .add("checkpoint", run.checkpoint.string()),
               line.common);
}

std::vector<int64_t> integers(const Tensor& tokens) {
  const auto values = tokens.to_vector();
  return {values.begin(), values.end()};
}

// How much of a sequence is given: everything before the second prediction that counts. In the copy task that
// ends with the separator, whose place nothing foretells.
int64_t given_tokens(const Batch& one) {
  if (!one.mask.defined()) return 1;
  const auto mask = one.mask.to_vector();
  const auto first = std::find(mask.begin(), mask.end(), 1) - mask.begin();
  return std::min<int64_t>(first + 2, one.tokens.size(1));
}

// Sequences are given parts of different lengths, so they are continued one at a time.
void continue_sequences(const LoadedRun& run, Plan plan, const CommandLine& line) {
  if (!line.options.get<std::string>("out").empty())
    throw ConfigError("--out is for models that draw images; sequences are in the report, see --json");
  plan.batch = 1;
  const auto examples = open_split(run, "test", plan.count, line);
  plan.count = std::min(plan.count, examples->size());
  std::vector<Report> rows;
  double seconds = 0;
  for (int64_t i = 0; i < plan.count; ++i) {
    const Batch one = examples->batch(std::vector<int64_t>{i});
    const int64_t given = given_tokens(one), length = one.tokens.size(1);
    plan.options.first_sequence = i;
    const auto start = std::chrono::steady_clock::now();
    const Tensor drawn = generate(*run.model, slice(one.tokens, 1, 0, given), length, plan.options);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rows.push_back(Report()
                       .add("given", integers(slice(one.tokens, 1, 0, given)))
                       .add("drawn", integers(slice(drawn, 1, given, length)))
                       .add("expected", integers(slice(one.tokens, 1, given, length))));
  }
  print_report(Report()
                   .add("count", plan.count)
                   .add("batch", plan.batch)
                   .add("mode", name_of(plan.options.mode))
                   .add("seconds", seconds)
                   .add("sequences_per_second", static_cast<double>(plan.count) / seconds)
                   .add("state_bytes", state_bytes(*run.model, plan))
                   .add("checkpoint", run.checkpoint.string())
                   .add("sequences", rows),
               line.common);
}

}  // namespace

int run_generate(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "generate",
       .summary = "Draws from a trained model and reports the speed of the generation loop.",
       .positionals = {run_positional()},
       .options =
           {checkpoint_option(),
            {.name = "count", .default_value = int64_t{16}, .help = "images", .min = 1, .max = 1 << 24},
            {.name = "batch",
             .default_value = int64_t{64},
             .help = "images at a time",
             .min = 1,
             .max = 1 << 20},
            mode_option(),
            {.name = "scale",
             .default_value = std::string("elu"),
             .help = "of the logistics: that of the paper's experiments, or that of the loss",
             .choices = {"elu", "exp"}},
            {.name = "greedy", .default_value = false, .help = "sequences: the most probable symbol"},
            {.name = "out",
             .default_value = std::string(),
             .help = "PNG file; without, one among the samples of the run"}},
       .details =
           "The first byte of an image is not modelled: it is taken from the test images in turn. Sequences "
           "are\ngiven up to their first unforeseeable symbol and continued one at a time.",
       .uses_config = true},
      arguments);
  if (!line) return 0;
  const LoadedRun run = load_run(*line, ConfigUse::drawing);
  if (run.draws_images())
    draw_images(run, plan_of(*line, run), *line);
  else
    continue_sequences(run, plan_of(*line, run), *line);
  return 0;
}

}  // namespace tapeformer
