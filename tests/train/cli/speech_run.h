// The run of a small speech model, for tests of commands.
#pragma once

#include <filesystem>
#include <string>

#include "tests/train/tasks/speech/tiny_recordings.h"
#include "train/loop/trainer.h"

namespace tapeformer::test {

// Trains a model on recordings of tones, and returns its run directory.
inline std::string trained_on_tones(const std::filesystem::path& dir, int64_t epochs = 15,
                                    const std::string& attention = "linear", int64_t seed = 3) {
  std::filesystem::create_directories(dir);
  write_tiny_recordings(dir / "corpus", 40, 6);
  Config config = make_tiny_recordings_config(dir / "corpus");
  config.run.seed = seed;
  config.train.epochs = epochs;
  config.model.attention = {attention};
  config.attention = {{attention, find_attention_kind(attention).default_options()}};
  Trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true}).run();
  return (dir / "run").string();
}

}  // namespace tapeformer::test
