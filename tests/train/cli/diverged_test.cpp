// Tests of exit status 5, which commands return if a training diverges or if weights or logits are not
// finite.
#include <doctest/doctest.h>

#include <limits>

#include "core/cuda/devices.h"
#include "core/device.h"
#include "tests/support/devices.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/loop/trainer.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Words = std::vector<std::string>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void check_diverged(const Words& words, const Words& parts) {
  const auto result = run_program(words);
  CAPTURE(words.front());
  CAPTURE(result.err);
  CHECK(result.code == 5);
  CHECK(result.out == "");
  for (const std::string& part : parts) CHECK(contains(result.err, part));
}

const char kCopyConfig[] = R"([run]
device = "cpu"
threads = 1
[data]
dataset = "copy"
batch_size = 4
max_length = 16
eval_limit = 4
[model]
type = "sequence"
layers = 1
heads = 2
head_dim = 8
feedforward = 16
)";

}  // namespace

TEST_CASE("a training that diverges exits with 5 and gives advice") {
  const TempDir dir;
  write_file(dir / "c.toml",
             std::string(kCopyConfig) + "[optimizer]\nkind = \"sgd\"\nlr = 1e25\n[train]\nsteps = 9\n");
  check_diverged({"train", (dir / "c.toml").string(), "--run-dir", (dir / "run").string(), "--json"},
                 {"at step 1", "Lower optimizer.lr"});
}

TEST_CASE("eval, generate and train --resume exit with 5 for weights with NaN and name the tensor") {
  const TempDir dir;
  const std::string run = (dir / "run").string();
  write_run(run, make_tiny_sequence_config());
  const std::string name = "layers.0.linear1.bias";
  fill_parameter(run, name, kNaN);
  const Words parts = {name + " has 16 non-finite elements of 16", "the checkpoint cannot be used"};
  check_diverged({"eval", run, "--limit", "4", "--json"}, parts);
  check_diverged({"generate", run, "--count", "1", "--json"}, parts);

  write_file(dir / "c.toml", std::string(kCopyConfig) + "[train]\nsteps = 2\n");
  const Words train = {"train", (dir / "c.toml").string(), "--run-dir", (dir / "trained").string(), "--json"};
  REQUIRE(run_program(train).code == 0);
  fill_parameter(dir / "trained", name, kNaN);
  Words resume = train;
  resume.insert(resume.end(), {"--resume", "--set", "train.steps=4"});
  check_diverged(resume, parts);
  CHECK_FALSE(contains(run_program(resume).err, "Lower optimizer.lr"));
}

TEST_CASE("train exits with 5 for weights of model.init with NaN or infinity and names the tensor") {
  const TempDir dir;
  const std::string run = (dir / "run").string();
  write_run(run, make_tiny_sequence_config());
  write_file(dir / "c.toml", std::string(kCopyConfig) + "[train]\nsteps = 2\n");
  for (const double value : {kNaN, -std::numeric_limits<double>::infinity()}) {
    fill_parameter(run, "norm.bias", value);
    for (const char* option : {"--dry-run", "--json"}) {
      const Words words = {"train", (dir / "c.toml").string(), "--run-dir", (dir / "new").string(),
                           "--set", "model.init=" + run,       option};
      check_diverged(words, {"model.init: " + run + "/checkpoints/step-",
                             ": norm.bias has 16 non-finite elements of 16: the checkpoint cannot be used"});
      const std::string text = run_program(words).err;
      for (const char* advice : {"optimizer.lr", "example"}) CHECK_FALSE(contains(text, advice));
    }
    CHECK_FALSE(std::filesystem::exists(dir / "new"));
  }
}

TEST_CASE("complete exits with 5 for weights with NaN and names the tensor") {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    MESSAGE("skipped: dataset-fashion-mnist is not installed");
    return;
  }
  const TempDir dir;
  write_run(dir / "run", make_tiny_image_config());
  fill_parameter(dir / "run", "predictor.bias", kNaN);
  for (const Words& words : {Words{"complete", "--index", "1"}, {"generate", "--count", "1"}})
    check_diverged({words[0], (dir / "run").string(), words[1], words[2], "--json"},
                   {"predictor.bias has 6 non-finite elements of 6"});
  CHECK_FALSE(std::filesystem::exists(dir / "run/samples"));
}

TEST_CASE("generate and eval exit with 5 if finite weights have infinite logits") {
  const TempDir dir;
  const std::string run = (dir / "run").string();
  write_run(run, make_tiny_sequence_config());
  fill_parameter(run, "predictor.weight", 3e38);
  check_diverged({"eval", run, "--limit", "4", "--json"}, {"logits"});
  for (const char* mode : {"recurrent", "recompute"})
    check_diverged({"generate", run, "--count", "1", "--mode", mode, "--json"}, {"logits"});
}

TEST_CASE("eval and transcribe exit with 5 for speech models that are not finite, and print no error rate") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  Config config = make_tiny_speech_config(dir / "an4", "transformer");
  config.model.options.set("causal", true);
  config.data.options.set("cmvn", "global");
  config.train.epochs = 1;
  Trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true}).run();
  const std::string run = (dir / "run").string(), file = (dir / "an4/feat/clstk/test0/test-0.mfc").string();
  const Words commands[] = {{"eval", run, "--json"},
                            {"eval", run, "--beam", "4", "--json"},
                            {"transcribe", run, file, "--json"},
                            {"transcribe", run, file, "--beam", "4", "--json"},
                            {"transcribe", run, file, "--stream", "--json"}};
  fill_parameter(run, "head.weight", 3e38);
  for (const Words& words : commands) check_diverged(words, {"logits"});
  fill_parameter(run, "head.weight", kNaN);
  for (const Words& words : commands) check_diverged(words, {"head.weight has", "non-finite elements"});
}

// The loss is finite, because the result of the value projection is 0. The gradient of the value projection
// overflows, because it contains products of inputs of about 1e30 and an output weight of 3e38.
TEST_CASE(
    "a training with a finite loss and an infinite gradient norm exits with 5 and keeps the checkpoint") {
  Words devices = {"cpu"};
  if constexpr (kHasCuda)
    if (explain_missing_device().empty())
      devices.push_back(tapeformer::cuda::is_emulated() ? "cuda-emulated" : "cuda");
  for (const std::string& device : devices) {
    CAPTURE(device);
    const TempDir dir;
    const std::string run = (dir / "run").string(), attention = "layers.0.attention.";
    write_file(dir / "c.toml", std::string(kCopyConfig) + "norm = \"pre\"\n[train]\nsteps = 1\n");
    Words words = {"train", (dir / "c.toml").string(), "--run-dir", run, "--device", device, "--json"};
    REQUIRE(run_program(words).code == 0);
    fill_parameter(run, "layers.0.norm1.weight", 1e30);
    for (const std::string projection : {"query_projection", "key_projection", "value_projection"})
      for (const std::string tensor : {".weight", ".bias"})
        fill_parameter(run, attention + projection + tensor, 0);
    CheckpointContents contents = read_checkpoint_contents(run);
    contents.model_tensors.at(attention + "out_projection.weight").data<float>()[0] = 3e38F;
    save_checkpoint(run, contents);
    words.insert(words.end(), {"--resume", "--set", "train.steps=3"});
    check_diverged(words, {"the norm of the gradients is", "at step 1;", "the checkpoint of step 1 is kept"});
    CHECK(list_checkpoint_steps(run) == std::vector<int64_t>{1});
  }
}
