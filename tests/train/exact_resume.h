// Functions that compare the tensors of checkpoints.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"

namespace tapeformer::test {

using Values = std::map<std::string, std::vector<double>>;

inline Values to_values(const std::map<std::string, Tensor>& tensors) {
  Values values;
  for (const auto& [name, tensor] : tensors) values[name] = tensor.to_vector();
  return values;
}

// Returns the weights in the newest checkpoint of a run.
inline Values read_weights(const std::filesystem::path& run) {
  return to_values(read_checkpoint_contents(run).model_tensors);
}

// Trains the four steps of `config` in dir/whole, and again in dir/parts, where the training is resumed after
// its second step. Checks that both end with the same bits.
inline void check_exact_resume(Config config, const std::filesystem::path& dir) {
  train(config, dir / "whole");
  config.train.checkpoint_every = 2;
  config.train.keep_last = 4;
  train(config, dir / "parts");
  std::filesystem::remove_all(dir / "parts/checkpoints/step-00000004");
  for (const char* link : {"latest", "best"}) std::filesystem::remove(dir / "parts/checkpoints" / link);
  train(config, dir / "parts", true);
  const CheckpointContents a = read_checkpoint_contents(dir / "whole"),
                           b = read_checkpoint_contents(dir / "parts");
  CHECK(to_values(a.model_tensors) == to_values(b.model_tensors));
  CHECK(to_values(a.optimizer_tensors) == to_values(b.optimizer_tensors));
}

}  // namespace tapeformer::test
