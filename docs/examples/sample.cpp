// A program that loads the newest checkpoint of a run, draws sequences or images from the model and prints
// their tokens.
// Usage: sample RUN
#include <tapeformer/models/generation.h>
#include <tapeformer/train/tasks/autoregressive.h>
#include <tapeformer/train/tasks/registry/load_task.h>

#include <exception>
#include <iostream>

using namespace tapeformer;

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: sample RUN\n";
    return 2;
  }
  const LoadedTask loaded = load_task({.path = argv[1]});
  const auto& task = loaded.as<AutoregressiveTask>();
  const AttentionPattern& attention = task.model().options().encoder.attention;
  std::cout << loaded.checkpoint_folder.string() << ": " << count_parameters(task.model()) << " parameters, "
            << join_kind_names(attention) << " attention\n";

  // The first token of each sequence is given. The model predicts one token after another.
  const int64_t count = 4;
  const Tensor first = Tensor::zeros({count, 1}, DType::uint8);
  GenerationOptions options;
  options.seed = 1;
  if (!supports(attention, &AttentionCapabilities::recurrent)) options.mode = GenerationMode::recompute;
  const Tensor sequences = generate(task.model(), first, task.dataset_info().length + 1, options);
  std::cout << sequences << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "sample: " << error.what() << "\n";
  return 1;
}
