// Tests that train small models for a few seconds. The models must learn the copy task, the duplication task,
// the maximum of a set, or the training sentences of a speech corpus.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "tests/train/quiet_training.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/build.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/speech/evaluate.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Settings = std::vector<std::string>;

const Settings kSoftmax = {"model.attention=softmax", "train.steps=500"};
const Settings kLinear = {"model.attention=linear", "train.steps=1000"};
// Settings of LSH attention with the preset of trax. The chunks of 8 tokens are shorter than the sequences,
// so the hashes determine the keys of a query.
const Settings kLsh = {"model.attention=lsh", "attention.preset=trax", "attention.chunk_length=8",
                       "attention.rounds=4", "train.steps=800"};

std::vector<int64_t> indices_below(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

double figure_of(const TrainResult& result, const std::string& figure) {
  for (const auto& [name, value] : result.evaluation->results)
    if (name == figure) return std::get<double>(value);
  throw std::runtime_error("the evaluation has no " + figure);
}

// Trains a model and returns the percentage of correctly predicted symbols in 200 test sequences.
double accuracy(const std::string& task, const Settings& kind) {
  Settings settings = {"data.dataset=" + task,    "data.max_length=16",       "data.symbols=6",
                       "data.batch_size=16",      "data.eval_limit=200",      "run.device=cpu",
                       "run.threads=1",           "model.layers=2",           "model.heads=4",
                       "model.head_dim=8",        "model.feedforward=64",     "model.dropout=0",
                       "model.norm=pre",          "optimizer.kind=adam",      "optimizer.lr=5e-3",
                       "schedule.kind=cosine",    "schedule.warmup_steps=30", "train.eval_every=0",
                       "train.checkpoint_every=0"};
  settings.insert(settings.end(), kind.begin(), kind.end());
  const Config config = load_config(std::string(SOURCE_DIR) + "/configs/copy/linear.toml", settings,
                                    {.unused_key_policy = UnusedKeyPolicy::ignore});
  const TempDir dir;
  return 100 * figure_of(train(config, dir / "run"), "accuracy");
}

}  // namespace

TEST_CASE("learning: softmax attention learns to copy and to duplicate") {
  CHECK(accuracy("copy", kSoftmax) > 99);
  CHECK(accuracy("duplication", kSoftmax) > 99);
}

TEST_CASE("learning: softmax attention learns to reverse") {
  CHECK(accuracy("palindrome", kSoftmax) > 99);
}

TEST_CASE("learning: the delta rule follows the parity of bits only with negative eigenvalues") {
  for (const bool negative : {true, false}) {
    const double found =
        accuracy("parity", {"data.max_length=32", "data.min_length=3", "model.attention=gated-delta",
                            "model.positions=none", "attention.preset=delta-net",
                            concat_text("attention.negative_eigenvalues=", negative ? "true" : "false"),
                            "optimizer.lr=3e-3", "train.steps=500"});
    if (negative)
      CHECK(found > 90);
    else
      CHECK(found < 80);
  }
}

TEST_CASE("learning: linear attention learns to copy and to duplicate") {
  CHECK(accuracy("copy", kLinear) > 99);
  CHECK(accuracy("duplication", kLinear) > 99);
}

TEST_CASE("learning: LSH attention learns to copy and to duplicate") {
  CHECK(accuracy("copy", kLsh) > 99);
  CHECK(accuracy("duplication", kLsh) > 99);
}

TEST_CASE("learning: a Set Transformer learns the maximum of a set") {
  const TempDir dir;
  const Config config =
      load_config(std::string(SOURCE_DIR) + "/configs/survey/set-maximum.toml",
                  {"data.eval_limit=500", "run.device=cpu", "run.threads=1", "train.eval_every=0"});
  const auto targets = make_split(config, "valid")->batch(indices_below(500)).targets.to_vector();
  const double mean = std::accumulate(targets.begin(), targets.end(), 0.0) / 500;
  double error_of_mean = 0;
  for (const double target : targets) error_of_mean += std::abs(target - mean) / 500;
  CHECK(error_of_mean > 0.1);
  CHECK(figure_of(train(config, dir / "run"), "mean_absolute_error") < 0.4 * error_of_mean);
}

TEST_CASE("learning: a CTC model recognizes its training sentences") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  Config config = make_tiny_speech_config(dir / "an4", "transformer");
  config.train.epochs = 25;
  train(config, dir / "run");
  const LoadedTask run = load_task({.path = (dir / "run").string(), .checkpoint_name = "best"});
  CHECK(run.task->open_evaluation({.split = "train"})->evaluate().selection_metric < 10);
}
