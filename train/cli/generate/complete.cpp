// The command "tapeformer complete": completes test images from their first bytes. Each row of the output
// picture shows the original, the original with its missing part in grey, and the completions.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "core/base/errors.h"
#include "models/generation.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"

namespace tapeformer {
namespace {

constexpr uint8_t kMissing = 128;

// Returns the number of bytes of an image that the model receives as the prefix. The prefix contains the
// fraction `share` of the pixels, rounded to whole pixels, but at least one pixel.
int64_t count_kept_bytes(const DatasetInfo& data, double share) {
  const int64_t pixels = data.height * data.width;
  const auto kept = static_cast<int64_t>(std::llround(share * static_cast<double>(pixels)));
  return std::clamp<int64_t>(kept, 1, pixels) * data.channels;
}

// Returns `copies` rows per image, each with the first `width` bytes of the image.
Tensor repeat_rows(const Tensor& images, int64_t copies, int64_t width) {
  const int64_t dims = images.size(1);
  const Tensor rows = Tensor::empty({images.size(0) * copies, width}, DType::uint8);
  for (int64_t r = 0; r < rows.size(0); ++r)
    std::memcpy(rows.data<uint8_t>() + r * width, images.data<uint8_t>() + r / copies * dims,
                static_cast<size_t>(width));
  return rows;
}

// Returns the cells of the picture, of shape (originals * (samples + 2), bytes). Each row of the picture has
// an original, the original with grey bytes from byte `kept` on, and the completions of the original.
Tensor make_picture_rows(const Tensor& originals, const Tensor& completions, int64_t samples, int64_t kept) {
  const int64_t dims = originals.size(1), columns = samples + 2;
  const Tensor cells = repeat_rows(originals, columns, dims);
  for (int64_t i = 0; i < originals.size(0); ++i) {
    uint8_t* row = cells.data<uint8_t>() + i * columns * dims;
    std::memset(row + dims + kept, kMissing, static_cast<size_t>(dims - kept));
    std::memcpy(row + 2 * dims, completions.data<uint8_t>() + i * samples * dims,
                static_cast<size_t>(samples * dims));
  }
  return cells;
}

Tensor read_test_images(const AutoregressiveTask& task, const std::vector<int64_t>& indices) {
  const int64_t last = *std::max_element(indices.begin(), indices.end());
  const auto dataset = task.open_split("test", 0);
  if (last >= dataset->size())
    throw ConfigError(concat_text("--index ", last, ": there are ", dataset->size(), " test images"));
  return dataset->batch(indices).tokens;
}

}  // namespace

CommandSpec make_complete_spec(const Arguments& /*words*/) {
  return {
      .summary =
          "Completes test images from their first part. Writes a picture with the originals, the given parts "
          "and the completions.",
      .positionals = {make_run_argument()},
      .options =
          {make_checkpoint_option(),
           {.name = "index", .default_value = std::string("0,1,2"), .help = "indices of test images, from 0"},
           {.name = "keep", .default_value = 0.5, .help = "given share of the image", .min = 0, .max = 1},
           {.name = "samples",
            .default_value = int64_t{3},
            .help = "completions per image",
            .min = 1,
            .max = 1000},
           make_generation_mode_option(),
           make_picture_path_option()},
      .uses_config = true};
}

int run_complete(const CommandLine& line) {
  check_png_extension(line);
  const auto indices = parse_index_list("index", line.options.get<std::string>("index"));
  const auto samples = line.options.get<int64_t>("samples");
  const LoadedTask run = load_task(line, ConfigPurpose::evaluation);
  require_subject(*run.task, {"images"}, "\"complete\"");
  const auto& task = run.as<AutoregressiveTask>();
  check_grid_size(run, std::ssize(indices) * (samples + 2), samples + 2);
  const auto path = prepare_picture_path(run, line, "complete");
  const Tensor originals = read_test_images(task, indices);
  const int64_t kept = count_kept_bytes(task.dataset_info(), line.options.get<double>("keep"));
  GenerationOptions options;
  options.seed = static_cast<uint64_t>(line.common_options.seed.value_or(0));
  options.mode = choose_generation_mode(line, task.model());
  options.use_cuda_graphs = run.config().run.cuda_graphs;
  const auto start = std::chrono::steady_clock::now();
  const Tensor completions =
      generate(task.model(), repeat_rows(originals, samples, kept), originals.size(1), options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_image_grid(run, path, make_picture_rows(originals, completions, samples, kept), samples + 2);
  print_report(Report()
                   .add("index", indices)
                   .add("kept_dims", kept)
                   .add("dims", originals.size(1))
                   .add("samples", samples)
                   .add("seconds", seconds)
                   .add("out", path.string())
                   .add("checkpoint", run.checkpoint_folder.string()),
               line.common_options);
  return 0;
}

}  // namespace tapeformer
