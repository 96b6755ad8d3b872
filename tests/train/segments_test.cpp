// Tests of training and evaluation with a segment memory.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/support/temp_dir.h"
#include "tests/train/quiet_training.h"
#include "train/checkpoint/safetensors.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/tasks/registry/make_task.h"
#include "train/tasks/text/scoring.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kSegmentTokens = 4, kMemoryTokens = 10;

// A text that consists of parts of 64 bytes. Each part repeats 8 random bytes. Segments have 4 bytes, so a
// model needs the segment memory to predict a repeated byte.
class PeriodicText {
 public:
  explicit PeriodicText(uint64_t parts = 60) {
    const RandomStream stream(5, "text");
    std::string text;
    for (uint64_t part = 0; part < parts; ++part)
      for (uint64_t i = 0; i < 64; ++i)
        text += static_cast<char>('a' + stream.uniform_below(part * 8 + i % 8, 8));
    write_file(dir / "text", text);
  }

  Config config(int64_t steps) const {
    Config config;
    config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
    config.data = {.dataset = "text", .batch_size = 8};
    config.data.options.set("path", (dir / "text").string());
    config.data.options.set("sequence_length", kSegmentTokens);
    config.data.options.set("streams", true);
    for (const char* share : {"valid_share", "test_share"}) config.data.options.set(share, 0.1);
    config.model.type = "sequence";
    config.model.attention = {"transformer-xl"};
    config.model.options.set("positions", "none");
    config.model.options.set("layers", 2);
    config.model.options.set("heads", 2);
    config.model.options.set("head_dim", 8);
    config.model.options.set("feedforward", 32);
    config.model.options.set("dropout", 0.1);
    config.attention = {
        {"transformer-xl",
         find_attention_kind("transformer-xl").make_options({{"memory", int64_t{kMemoryTokens}}})}};
    config.optimizer.lr = 1e-2;
    config.train.steps = steps;
    config.train.checkpoint_every = 5;
    config.train.log_every = 10;
    return config;
  }

  // Returns the config of a model with a compressed memory. The text repeats after 8 bytes, but a segment and
  // the uncompressed memory have only 4 tokens each. When the model predicts a repeated byte, the previous
  // occurrence of this byte is therefore usually in the compressed memory.
  Config compressive_config(int64_t steps, const std::string& compression = "convolution") const {
    Config compressive = config(steps);
    compressive.model.attention = {"compressive"};
    compressive.attention = {{"compressive", find_attention_kind("compressive")
                                                 .make_options({{"memory", int64_t{kSegmentTokens}},
                                                                {"compressed_memory", int64_t{4}},
                                                                {"rate", int64_t{2}},
                                                                {"compression", compression}})}};
    return compressive;
  }

  TempDir dir;
};

std::string checkpoint_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the model of the latest checkpoint of a run, with `option` of the attention kind set to `value`.
std::unique_ptr<AutoregressiveModel> model_with_option(Config config, const fs::path& run_dir,
                                                       const std::string& option, int64_t value,
                                                       const DatasetInfo& data) {
  config.attention.begin()->second.set(option, value);
  auto model = make_model(config, data);
  const SafetensorsFile file((run_dir / "checkpoints/latest/model.safetensors").string());
  for (const auto& [name, tensor] : model->saved_tensors()) tensor.copy_from(file.read(name));
  return model;
}

}  // namespace

TEST_CASE("a run with a segment memory resumes within an epoch with the same bits") {
  const PeriodicText text;
  Config config = text.config(120);
  Shape compressed;
  SUBCASE("one batch per step") {}
  SUBCASE("compressed memory") {
    config = text.compressive_config(120);
    config.train.accumulate = 2;
    compressed = {8, 4, 16};
  }
  SUBCASE("micro-batches") {
    config.train.accumulate = 2;
  }
  SUBCASE("recomputed layers") {
    config.model.options.set("recompute", true);
  }
  const fs::path whole = text.dir / "whole", cut = text.dir / "cut";
  train(config, whole);
  fs::copy(whole, cut, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  // An epoch has 96 batches, so an epoch begins in the resumed part of the run.
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
  if (compressed.rank() > 0)
    CHECK(saved.read("state.layers.1.compressed").shape() == compressed);
  else
    CHECK(saved.read("state.layers.1").shape() == Shape{8, kMemoryTokens, 16});
}

TEST_CASE("a memory improves bits/byte in training and at evaluation") {
  const PeriodicText text;
  const Config config = text.config(500);
  const double with_memory = train(config, text.dir / "run").evaluation->selection_metric;
  const auto dataset = make_split(config, "valid");
  const auto nats = [&](int64_t memory, int64_t batch) {
    const auto model = model_with_option(config, text.dir / "run", "memory", memory, dataset->info());
    return evaluate(*model, *dataset, batch).nats_per_dim;
  };
  CHECK(nats(kMemoryTokens, 8) == with_memory);
  CHECK(with_memory < 0.7 * nats(0, 8));
  CHECK(nats(0, 8) > 1.5);  // random predictions have a loss of ln 8 = 2.08 nats
  // The memory is empty at the first segment of each stream. Therefore, the loss is smaller with one stream
  // than with 8 streams.
  CHECK(nats(kMemoryTokens, 1) < with_memory);
  // The recurrent form uses the same memory, so it gives the same loss up to rounding.
  const auto model = model_with_option(config, text.dir / "run", "memory", kMemoryTokens, dataset->info());
  const auto& tokens = dynamic_cast<const TextDataset&>(*dataset);
  CHECK(evaluate_recurrent(*model, tokens, 1, 0).nats_per_dim ==
        doctest::Approx(nats(kMemoryTokens, 1)).epsilon(1e-5));
}

TEST_CASE("a compressed memory improves bits/byte in training and at evaluation") {
  const PeriodicText text(400);
  const auto dataset = make_split(text.config(1), "valid");
  for (const std::string compression : {"convolution", "mean"}) {
    CAPTURE(compression);
    const Config config = text.compressive_config(1500, compression);
    const fs::path run = text.dir / compression;
    const double with_memory = train(config, run).evaluation->selection_metric;
    const auto model = model_with_option(config, run, "compressed_memory", 4, dataset->info());
    // Without compressed rows, the attention kind is the same as transformer-xl.
    Config tokens_only = config;
    tokens_only.model.attention = {"transformer-xl"};
    tokens_only.attention = text.config(1).attention;
    const double without =
        evaluate(*model_with_option(tokens_only, run, "memory", kSegmentTokens, dataset->info()), *dataset, 8)
            .nats_per_dim;
    CHECK(evaluate(*model, *dataset, 8).nats_per_dim == with_memory);
    CHECK(with_memory < std::log(8));  // the loss of uniform predictions of 8 letters
    CHECK(without > 1.05 * with_memory);
    CHECK(evaluate_recurrent(*model, dynamic_cast<const TextDataset&>(*dataset), 1, 0).nats_per_dim ==
          doctest::Approx(evaluate(*model, *dataset, 1).nats_per_dim).epsilon(1e-5));
  }
}

TEST_CASE("lines that are longer than a segment are scored with the memory, like the recurrent form") {
  const PeriodicText text;
  for (const Config& config : {text.config(60), text.compressive_config(60)}) {
    CAPTURE(config.model.attention[0]);
    train(config, text.dir / config.model.attention[0]);
    const auto dataset = make_split(config, "valid");
    const auto model =
        model_with_option(config, text.dir / config.model.attention[0], "clamp", 0, dataset->info());
    const TokenSequence& all = dynamic_cast<const TextDataset&>(*dataset).tokens();
    std::vector<int64_t> tokens(static_cast<size_t>(all.size()));
    all.read(0, all.size(), tokens.data());
    const auto nats = compute_token_losses(*model, tokens);
    REQUIRE(nats.size() == tokens.size() - 1);
    const double mean = std::accumulate(nats.begin(), nats.end(), 0.0) / static_cast<double>(nats.size());
    CHECK(mean ==
          doctest::Approx(
              evaluate_recurrent(*model, dynamic_cast<const TextDataset&>(*dataset), 1, 0).nats_per_dim)
              .epsilon(1e-5));
  }
}

TEST_CASE("a segment memory in a run with two processes is a config error") {
  // A communicator of process 0 in a group of two processes. Its collective functions do nothing.
  class Two final : public Communicator {
   public:
    Two() : Communicator(0, 2) {}
    void start_all_reduce(const Tensor&) override {}
    void wait() override {}
    void broadcast(const Tensor&) override {}
    void barrier() override {}
  };
  const PeriodicText text;
  Two processes;
  Config states = text.config(1);
  states.model.attention = {"gated-delta", "softmax"};
  states.attention = {
      {"gated-delta", find_attention_kind("gated-delta").make_options({{"carry_state", true}})}};
  for (const auto& [source, problem] :
       {std::pair(text.config(1),
                  "attention.memory: a memory of 10 tokens needs a run with one process, not 2"),
        {text.compressive_config(1), "attention.memory: "},
        {states, "attention.gated-delta.carry_state: needs a run with one process, not 2"}}) {
    Config config = source;
    CHECK_THROWS_WITH_AS(make_task(config, {"", kCpu, processes}), doctest::Contains(problem), ConfigError);
    const AttentionKind& kind = find_attention_kind(config.model.attention[0]);
    config.attention = {{kind.name, kind.make_options(kind.test_options)}};
    CHECK_NOTHROW(make_task(config, {"", kCpu, processes}));
  }
}

TEST_CASE("the terms that layers add to the loss are in metrics.jsonl beside the loss") {
  const PeriodicText text;
  Config config = text.compressive_config(40);
  train(config, text.dir / "run");
  config.attention.at("compressive").set("compression", std::string("mean"));
  train(config, text.dir / "mean");
  const auto values = [&](const char* run) {
    std::vector<double> found;
    for (const MetricRecord& record : read_metrics((text.dir / run / "metrics.jsonl").string()))
      if (get_metric_number(record, "lr", -1) >= 0)
        found.push_back(get_metric_number(record, "auxiliary_loss", -1));
    return found;
  };
  const auto terms = values("run");
  REQUIRE(terms.size() == 4);
  CHECK(terms[3] > 0);
  CHECK(terms[3] < terms[0]);
  CHECK(values("mean") == std::vector<double>(4, -1));
}

TEST_CASE("a segment memory needs consecutive segments and no other positions") {
  const PeriodicText text;
  Config config = text.config(1);
  CHECK(find_model_problems(config).empty());
  config.data.options.set("streams", false);
  REQUIRE(find_model_problems(config).size() == 1);
  CHECK(find_model_problems(config)[0].key == "attention.memory");
  CHECK(find_model_problems(config)[0].message ==
        "a memory of 10 tokens needs the consecutive segments of a text, data.streams = true; expected 0 "
        "otherwise");
  config.data.options.set("streams", true);
  config.model.options.set("positions", "rotary");
  REQUIRE(find_model_problems(config).size() == 1);
  CHECK(find_model_problems(config)[0].key == "model.positions");
}
