// A small translation model for tests of commands.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/random/rng.h"
#include "tests/train/cli/program.h"
#include "tests/train/quiet_training.h"

namespace tapeformer::test {

// Parallel text whose translations are the capital letters of the source in reverse order, such as "abc" and
// "CBA", and a config that learns it.
struct TranslationFiles {
  explicit TranslationFiles(int64_t pairs = 400) {
    write("train", pairs, 1);
    write("valid", 20, 2);
    write("test", 20, 3);
    config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
    config.data = {.dataset = "translation", .batch_size = 1};
    for (const std::string split : {"", "valid_", "test_"})
      for (const std::string side : {"source", "target"})
        config.data.options.set(split + side,
                                path(split.empty() ? "train" : split.substr(0, split.size() - 1), side));
    config.data.options.set("tokenizer", "characters");
    config.data.options.set("batch_tokens", 160);
    config.data.options.set("max_length", 16);
    config.model.type = "translation";
    config.model.attention = {"softmax"};
    for (const char* option : {"layers", "heads"}) config.model.options.set(option, 2);
    config.model.options.set("head_dim", 16);
    config.model.options.set("feedforward", 64);
    config.model.options.set("dropout", 0.0);
    config.model.options.set("norm", "pre");
    config.train.steps = 3;
  }
  std::string path(const std::string& split, const std::string& side) const {
    return (dir / (split + "." + side)).string();
  }
  void write(const std::string& split, int64_t pairs, uint64_t salt) const {
    const RandomStream stream(7, "letters", salt);
    uint64_t draws = 0;
    std::string source, target;
    for (int64_t i = 0; i < pairs; ++i) {
      std::string word;
      for (uint64_t letters = 1 + stream.uniform_below(draws++, 6); letters > 0; --letters)
        word += static_cast<char>('a' + stream.uniform_below(draws++, 6));
      source += word + "\n";
      for (auto letter = word.rbegin(); letter != word.rend(); ++letter)
        target += static_cast<char>(*letter - 'a' + 'A');
      target += "\n";
    }
    write_file(path(split, "source"), source);
    write_file(path(split, "target"), target);
  }

  TempDir dir;
  Config config;
};

}  // namespace tapeformer::test
