// A program that loads the newest checkpoint of a run, draws sequences or images from the model and prints
// their tokens.
// Usage: sample RUN
#include <tapeformer/models/generation.h>
#include <tapeformer/train/inference/run.h>

#include <exception>
#include <iostream>

using namespace tapeformer;

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: sample RUN\n";
    return 2;
  }
  const LoadedRun run = load_run({.path = argv[1]});
  std::cout << run.checkpoint_folder.string() << ": " << count_parameters(*run.model) << " parameters, "
            << join_kind_names(run.model->options().encoder.attention) << " attention\n";

  // The first token of each sequence is given. The model predicts one token after another.
  const int64_t count = 4;
  const Tensor first = Tensor::zeros({count, 1}, DType::uint8);
  GenerationOptions options;
  options.seed = 1;
  if (!supports(run.model->options().encoder.attention, &AttentionCapabilities::recurrent))
    options.mode = GenerationMode::recompute;
  const Tensor sequences = generate(*run.model, first, run.dataset_info.length + 1, options);
  std::cout << sequences << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "sample: " << error.what() << "\n";
  return 1;
}
