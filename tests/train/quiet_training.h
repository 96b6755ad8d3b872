// A function that trains without progress output.
#pragma once

#include <filesystem>

#include "train/loop/trainer.h"

namespace tapeformer::test {

inline TrainResult train(const Config& config, const std::filesystem::path& run_dir, bool resume = false) {
  return Trainer(config, {.run_dir = run_dir, .data_dir = "", .resume = resume, .quiet = true}).run();
}

}  // namespace tapeformer::test
