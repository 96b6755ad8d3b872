// Tests of training and evaluation with a segment memory.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"
#include "tests/train/quiet_training.h"
#include "train/checkpoint/safetensors.h"
#include "train/evaluate.h"
#include "train/inference/text.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kSegmentTokens = 4, kMemoryTokens = 10;

// A text in which each byte equals the byte 8 positions before, except at the start of a part of 64 bytes. A
// segment of 4 bytes does not contain that byte, and its memory does.
class PeriodicText {
 public:
  PeriodicText() {
    const RandomStream stream(5, "text");
    std::string text;
    for (uint64_t part = 0; part < 60; ++part)
      for (uint64_t i = 0; i < 64; ++i) text += static_cast<char>('a' + stream.below(part * 8 + i % 8, 8));
    write_file(dir / "text", text);
  }

  Config config(int64_t steps) const {
    Config config;
    config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
    config.data = {.dataset = "text", .batch_size = 8};
    config.data.path = (dir / "text").string();
    config.data.sequence_length = kSegmentTokens;
    config.data.streams = true;
    config.data.valid_share = config.data.test_share = 0.1;
    config.model.type = "sequence";
    config.model.attention = {"transformer-xl"};
    config.model.positions = "none";
    config.model.layers = 2;
    config.model.heads = 2;
    config.model.head_dim = 8;
    config.model.feedforward = 32;
    config.model.dropout = 0.1;
    config.attention = {
        {"transformer-xl", attention_kind("transformer-xl").values({{"memory", int64_t{kMemoryTokens}}})}};
    config.optimizer.lr = 1e-2;
    config.train.steps = steps;
    config.train.checkpoint_every = 5;
    config.train.log_every = 10;
    return config;
  }

  TempDir dir;
};

std::string checkpoint_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the model of a run, with a memory of `tokens`.
std::unique_ptr<AutoregressiveModel> model_with_memory(Config config, const fs::path& run_dir, int64_t tokens,
                                                       const DatasetInfo& data) {
  config.attention.at("transformer-xl").set("memory", tokens);
  auto model = make_model(config, data);
  SafetensorsFile((run_dir / "checkpoints/latest/model.safetensors").string())
      .load_into(model->saved_tensors());
  return model;
}

}  // namespace

TEST_CASE("a run with a segment memory resumes within an epoch with the same bits") {
  const PeriodicText text;
  Config config = text.config(120);
  SUBCASE("one batch per step") {}
  SUBCASE("micro-batches") {
    config.train.accumulate = 2;
  }
  SUBCASE("recomputed layers") {
    config.model.recompute = true;
  }
  const fs::path whole = text.dir / "whole", cut = text.dir / "cut";
  train(config, whole);
  fs::copy(whole, cut, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  // An epoch has 96 batches, so the rest of the run contains the start of an epoch.
  for (int step = 75; step <= 120; step += 5)
    fs::remove_all(cut / "checkpoints" / concat_text("step-00000", step < 100 ? "0" : "", step));
  fs::remove(cut / "checkpoints/latest");
  fs::remove(cut / "checkpoints/best");
  fs::create_directory_symlink("step-00000070", cut / "checkpoints/latest");
  CHECK(train(config, cut, true).step == 120);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    CHECK(checkpoint_bytes(whole / "checkpoints/latest" / name) ==
          checkpoint_bytes(cut / "checkpoints/latest" / name));
  const SafetensorsFile saved((whole / "checkpoints/latest/optimizer.safetensors").string());
  CHECK(saved.read("state.layers.1").shape() == Shape{8, kMemoryTokens, 16});
}

TEST_CASE("a memory improves bits/byte in training and at evaluation") {
  const PeriodicText text;
  const Config config = text.config(500);
  const double with_memory = train(config, text.dir / "run").evaluation->criterion;
  const auto dataset = make_split(config, "valid");
  const auto nats = [&](int64_t memory, int64_t batch) {
    const auto model = model_with_memory(config, text.dir / "run", memory, dataset->info());
    return evaluate(*model, *dataset, batch).nats_per_dim;
  };
  CHECK(nats(kMemoryTokens, 8) == with_memory);
  CHECK(with_memory < 0.7 * nats(0, 8));
  CHECK(nats(0, 8) > 1.5);  // of ln 8 = 2.08 nats
  // A single stream has one start without a memory, and 8 streams have 8.
  CHECK(nats(kMemoryTokens, 1) < with_memory);
  // The recurrent form carries the same memory.
  const auto model = model_with_memory(config, text.dir / "run", kMemoryTokens, dataset->info());
  const auto& tokens = dynamic_cast<const TextDataset&>(*dataset);
  CHECK(evaluate_carried(*model, tokens, 1, 0).nats_per_dim ==
        doctest::Approx(nats(kMemoryTokens, 1)).epsilon(1e-5));
}

TEST_CASE("a segment memory needs consecutive segments and no other positions") {
  const PeriodicText text;
  Config config = text.config(1);
  CHECK(model_problems(config).empty());
  config.data.streams = false;
  REQUIRE(model_problems(config).size() == 1);
  CHECK(model_problems(config)[0].key == "attention.memory");
  CHECK(model_problems(config)[0].problem ==
        "a memory of 10 tokens needs the consecutive segments of a text, data.streams = true; expected 0 for "
        "other data");
  config.data.streams = true;
  config.model.positions = "rotary";
  REQUIRE(model_problems(config).size() == 1);
  CHECK(model_problems(config)[0].key == "model.positions");
}
