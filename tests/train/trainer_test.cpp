#include "train/loop/trainer.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "core/system/files.h"
#include "ops/elementwise.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"
#include "tests/train/quiet_training.h"
#include "train/checkpoint/run_directory.h"
#include "train/checkpoint/safetensors.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Returns a config of a small model on the copy task, which needs no data files.
Config tiny_config(int64_t steps) {
  Config config;
  config.run.name = "tiny";
  config.run.device = "cpu";
  config.run.threads = 1;
  config.data = {.dataset = "copy", .batch_size = 4, .eval_limit = 8, .options = {{"max_length", 16}}};
  config.model.type = "sequence";
  config.model.options.set("layers", 2);
  config.model.options.set("heads", 2);
  config.model.options.set("head_dim", 8);
  config.model.options.set("feedforward", 32);
  config.model.options.set("dropout", 0.1);
  config.attention = {{"linear", find_attention_kind("linear").default_options()}};
  config.optimizer.lr = 1e-3;
  config.optimizer.ema = 0.9;
  config.schedule.kind = "cosine";
  config.train.steps = steps;
  config.train.checkpoint_every = 5;
  config.train.eval_every = 10;
  config.train.log_every = 1;
  return config;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_same_final_state(const fs::path& a, const fs::path& b, const std::string& step) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    CHECK(bytes_of(a / "checkpoints" / step / name) == bytes_of(b / "checkpoints" / step / name));
}

}  // namespace

TEST_CASE("runs with the same seed and number of threads are identical") {
  const TempDir dir;
  train(tiny_config(12), dir.path() / "a");
  train(tiny_config(12), dir.path() / "b");
  check_same_final_state(dir.path() / "a", dir.path() / "b", "step-00000012");
  Config other = tiny_config(12);
  other.run.seed = 2;
  train(other, dir.path() / "c");
  CHECK(bytes_of(dir.path() / "a/checkpoints/latest/model.safetensors") !=
        bytes_of(dir.path() / "c/checkpoints/latest/model.safetensors"));
}

TEST_CASE(
    "a run that SIGTERM stops at any moment and that is resumed equals an uninterrupted run, byte for byte") {
  const TempDir dir;
  const Config config = tiny_config(60);
  train(config, dir.path() / "whole");
  int stops = 0;
  TrainResult result;
  // Ignores signals that arrive before or after a run, because the default action would end the test.
  const auto old = signal(SIGTERM, SIG_IGN);
  for (int attempt = 0; attempt < 50 && (result.step < 60 || result.stop_signal); ++attempt) {
    std::jthread killer([&](const std::stop_token& done) {
      while (!done.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(15 << attempt / 6));
        kill(getpid(), SIGTERM);
      }
    });
    result = train(config, dir.path() / "parts", true);
    stops += result.stop_signal == SIGTERM;
  }
  signal(SIGTERM, old);
  CHECK(result.step == 60);
  CHECK(stops >= 1);
  check_same_final_state(dir.path() / "whole", dir.path() / "parts", "step-00000060");
  const auto whole = read_metrics((dir.path() / "whole/metrics.jsonl").string());
  const auto parts = read_metrics((dir.path() / "parts/metrics.jsonl").string());
  REQUIRE(whole.size() == parts.size());
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char* field : {"step", "loss_nats", "grad_norm", "lr"})
      CHECK(get_metric_number(whole[i], field, -1) == get_metric_number(parts[i], field, -1));
}

TEST_CASE("training with weight decay keeps the rates and time steps of gated-delta, also in a resumed run") {
  const TempDir dir;
  Config config = tiny_config(1);
  config.model.attention = {"gated-delta"};
  config.attention = {{"gated-delta", find_attention_kind("gated-delta").default_options()}};
  // With this form and a rate of 0, a step is only the decay.
  config.optimizer = {.kind = "adafactor", .lr = 0, .weight_decay = 0.5};
  config.optimizer.options.set("form", std::string("trax"));
  train(config, dir.path() / "run");
  config.train.steps = 2;
  train(config, dir.path() / "run", true);
  const SafetensorsFile first((dir.path() / "run/checkpoints/step-00000001/model.safetensors").string()),
      second((dir.path() / "run/checkpoints/step-00000002/model.safetensors").string());
  int kept = 0;
  for (const auto& [name, entry] : first.entries()) {
    const std::string& key = name;
    CAPTURE(key);
    const bool decays = !key.ends_with("gates.log_rate") && !key.ends_with("gates.time_step");
    kept += !decays;
    CHECK(max_difference(second.read(key), mul(first.read(key), decays ? 0.5 : 1)) == 0);
  }
  CHECK(kept == 4);
}

TEST_CASE("a run that was killed after a checkpoint continues from it") {
  const TempDir dir;
  Config config = tiny_config(20);
  SUBCASE("an ordinary model") {}
  SUBCASE("a Performer that draws new features between checkpoints") {
    config.model.attention = {"performer"};
    config.attention = {
        {"performer", find_attention_kind("performer")
                          .make_options({{"features", int64_t{16}}, {"redraw_steps", int64_t{7}}})}};
  }
  SUBCASE("a reversible model with axial positions and chunks") {
    config.model.options.set("norm", "pre");
    config.model.options.set("reversible", true);
    config.model.options.set("feedforward_chunks", 3);
    config.model.options.set("loss_chunks", 4);
    config.model.options.set("positions", "axial");
    config.model.options.set("axial_shape", std::vector<int64_t>{4, 4});
    config.model.options.set("axial_dims", std::vector<int64_t>{8, 8});
    const Trainer trainer(config, {.run_dir = "", .data_dir = "", .resume = false, .quiet = true});
    const AutoregressiveModelOptions& options =
        dynamic_cast<const AutoregressiveModel&>(trainer.model()).options();
    CHECK(options.encoder.reversible);
    CHECK(options.encoder.feedforward_chunks == 3);
    CHECK(options.loss_chunks == 4);
    CHECK(options.axial_shape.shape == std::vector<int64_t>{4, 4});
  }
  train(config, dir.path() / "whole");
  train(config, dir.path() / "cut");
  // Removes the checkpoints after step 10, as if the process had been killed. The metrics still contain later
  // steps.
  for (const char* step : {"step-00000015", "step-00000020"})
    fs::remove_all(dir.path() / "cut/checkpoints" / step);
  fs::remove(dir.path() / "cut/checkpoints/latest");
  fs::create_directory_symlink("step-00000010", dir.path() / "cut/checkpoints/latest");
  CHECK(train(config, dir.path() / "cut", true).step == 20);
  check_same_final_state(dir.path() / "whole", dir.path() / "cut", "step-00000020");
}

TEST_CASE("the error about resuming with other settings names every key that differs") {
  const TempDir dir;
  train(tiny_config(5), dir.path() / "run");
  Config other = tiny_config(9);  // train.steps may change
  other.model.options.set("layers", 3);
  other.optimizer.lr = 0.5;
  const std::string text = message_of<ConfigError>([&] { train(other, dir.path() / "run", true); });
  CHECK(contains(text, "model.layers = 3, but the checkpoint has 2"));
  CHECK(contains(text, "optimizer.lr = 0.5, but the checkpoint has 0.001"));
  CHECK_FALSE(contains(text, "train.steps"));
  CHECK_FALSE(contains(text, "--"));  // errors of the library name no command-line options
  // Without resume, the run directory must be empty.
  CHECK_THROWS_AS(train(tiny_config(5), dir.path() / "run"), RunDirectoryError);
}

TEST_CASE("a loss that is not finite ends the run, names step and examples, and keeps the last checkpoint") {
  const TempDir dir;
  Config config = tiny_config(40);
  config.optimizer.kind = "sgd";
  config.optimizer.lr = 1e25;
  config.optimizer.ema = 0;
  config.schedule.kind = "constant";
  config.schedule.warmup_steps = 0;
  config.train.checkpoint_every = 1;
  config.train.eval_every = 0;
  try {
    train(config, dir.path() / "run");
    FAIL("the run did not diverge");
  } catch (const DivergenceError& error) {
    CHECK(contains(error.what(), "training examples"));
    CHECK(contains(error.what(), "at step 1"));
    CHECK(contains(error.what(), "the checkpoint of step 1 is kept"));
  }
  CHECK(fs::exists(dir.path() / "run/checkpoints/latest/model.safetensors"));
}

TEST_CASE("accumulating two micro-batches equals one batch") {
  const TempDir dir;
  Config whole = tiny_config(3);
  whole.model.options.set("dropout", 0.0);
  whole.data.shuffle = false;
  whole.data.dataset = "fashion-mnist";
  whole.data.options = {{"downscale", 7}};
  whole.model.type = "image";
  Config halves = whole;
  halves.data.batch_size = 2;
  halves.train.accumulate = 2;
  train(whole, dir.path() / "whole");
  train(halves, dir.path() / "halves");
  const auto a = read_metrics((dir.path() / "whole/metrics.jsonl").string());
  const auto b = read_metrics((dir.path() / "halves/metrics.jsonl").string());
  for (size_t i = 0; i < 3; ++i)
    CHECK(get_metric_number(a[i], "loss_nats", -1) ==
          doctest::Approx(get_metric_number(b[i], "loss_nats", -2)).epsilon(1e-5));
}

TEST_CASE("accumulation weights micro-batches by their numbers of unmasked tokens, which equals one batch") {
  const TempDir dir;
  Config whole = tiny_config(4);
  whole.model.options.set("dropout", 0.0);
  whole.data.shuffle = false;
  whole.optimizer.kind = "sgd";  // so that updates are proportional to the gradient
  whole.optimizer.lr = 0.1;
  whole.train.checkpoint_every = 0;
  Config parts = whole;
  parts.data.batch_size = 1;
  parts.train.accumulate = 4;
  train(whole, dir.path() / "whole");
  train(parts, dir.path() / "parts");
  const auto a = read_metrics((dir.path() / "whole/metrics.jsonl").string());
  const auto b = read_metrics((dir.path() / "parts/metrics.jsonl").string());
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < 4; ++i)
    for (const char* field : {"loss_nats", "grad_norm"})
      CHECK(get_metric_number(a[i], field, -1) ==
            doctest::Approx(get_metric_number(b[i], field, -2)).epsilon(2e-6));
  const auto weights = [&](const char* run) {
    return SafetensorsFile((dir.path() / run / "checkpoints/latest/model.safetensors").string());
  };
  const SafetensorsFile of_whole = weights("whole"), of_parts = weights("parts");
  for (const auto& [name_bound, entry] : of_whole.entries()) {
    const auto& name = name_bound;  // clang 14 cannot capture structured bindings
    CAPTURE(name);
    CHECK(max_difference(of_whole.read(name), of_parts.read(name)) < 2e-6);
  }
}

TEST_CASE("train.dropout_steps disables dropout, but not the random rotations of LSH attention") {
  const TempDir dir;
  Config config = tiny_config(4);
  config.model.attention = {"lsh"};
  config.attention = {{"lsh", find_attention_kind("lsh").default_options()}};
  config.attention.at("lsh").set("chunk_length", int64_t{4});
  config.model.options.set("dropout", 0.0);
  train(config, dir.path() / "never");
  config.train.dropout_steps = 1;
  train(config, dir.path() / "after");
  check_same_final_state(dir.path() / "never", dir.path() / "after", "step-00000004");
}

TEST_CASE(
    "weights that are not finite end the run although the loss is finite, and no checkpoint contains them") {
  const TempDir dir;
  Config config = tiny_config(3);
  config.optimizer.ema = 0;
  config.model.options.set("positions", "axial");  // a table of 4 x 8 positions, the last of which are unused
  config.model.options.set("axial_shape", std::vector<int64_t>{4, 8});
  config.model.options.set("axial_dims", std::vector<int64_t>{8, 8});
  for (const int64_t log_every : {1, 100}) {  // the check runs at logged steps and before checkpoints
    config.train.log_every = log_every;
    const fs::path run = dir.path() / std::to_string(log_every);
    Trainer trainer(config, {.run_dir = run, .data_dir = "", .resume = false, .quiet = true});
    for (const auto& [name, parameter] : trainer.model().parameters())
      if (name == "positions.0") parameter.data<float>()[parameter.numel() - 1] = NAN;
    const std::string text = message_of<DivergenceError>([&] { trainer.run(); });
    CAPTURE(text);
    CHECK(contains(text, "has 1 non-finite elements of"));
    CHECK(contains(text, "positions"));
    CHECK_FALSE(fs::exists(run / "checkpoints/latest"));
  }
}

TEST_CASE("resuming from a checkpoint with NaN names the tensor and gives no advice on the learning rate") {
  const TempDir dir;
  const Config config = tiny_config(5);
  train(config, dir.path() / "run");
  const SafetensorsFile model((dir.path() / "run/checkpoints/latest/model.safetensors").string()),
      optimizer((dir.path() / "run/checkpoints/latest/optimizer.safetensors").string());
  CheckpointContents contents;
  for (const auto& [name, entry] : model.entries()) contents.model_tensors[name] = model.read(name);
  for (const auto& [name, entry] : optimizer.entries())
    contents.optimizer_tensors[name] = optimizer.read(name);
  contents.state = Checkpoint((dir.path() / "run/checkpoints/latest").string()).read_state();
  contents.config_toml = to_toml(config);
  contents.model_tensors.at("predictor.bias").data<float>()[2] = INFINITY;
  save_checkpoint((dir.path() / "run").string(), contents);
  Config longer = config;
  longer.train.steps = 9;
  const std::string text = message_of<DivergenceError>([&] { train(longer, dir.path() / "run", true); });
  CAPTURE(text);
  CHECK(contains(text, "predictor.bias has 1 non-finite elements of 11"));
  CHECK_FALSE(contains(text, "optimizer.lr"));
}

TEST_CASE("a dry run writes no files and reports memory and time") {
  const TempDir dir;
  Trainer trainer(tiny_config(1),
                  {.run_dir = dir.path() / "run", .data_dir = "", .resume = false, .quiet = true});
  const DryRunResult report = trainer.dry_run();
  CHECK(report.parameter_count == count_parameters(trainer.model()));
  CHECK(report.memory_bytes > 0);
  REQUIRE(report.loss);
  CHECK(std::isfinite(*report.loss));
  CHECK(report.estimated_seconds == report.seconds_per_step * static_cast<double>(report.total_steps));
  CHECK_FALSE(fs::exists(dir.path() / "run"));
  Config limited = tiny_config(1'000'000'000);
  limited.train.time_limit_minutes = 3;
  CHECK(Trainer(limited, {.run_dir = dir.path() / "run", .data_dir = "", .resume = false, .quiet = true})
            .dry_run()
            .estimated_seconds == 180);
}

TEST_CASE("TensorBoard: a finished run that is resumed gets no further event file") {
  const TempDir dir;
  Config config = tiny_config(2);
  config.run.tensorboard = true;
  const auto event_files = [&] {
    int count = 0;
    for (const auto& file : fs::directory_iterator(dir.path() / "run"))
      count += contains(file.path().filename().string(), "tfevents");
    return count;
  };
  train(config, dir.path() / "run");
  CHECK(event_files() == 1);
  train(config, dir.path() / "run", true);
  CHECK(event_files() == 1);
  config.train.steps = 3;
  train(config, dir.path() / "run", true);
  CHECK(event_files() == 2);
}

TEST_CASE("a run directory in which another process trains is refused") {
  const TempDir dir;
  train(tiny_config(2), dir.path() / "run");
  const FolderLock other((dir.path() / "run").string());
  CHECK(contains(message_of<ConfigError>([&] { train(tiny_config(2), dir.path() / "run", true); }),
                 "another process trains in it"));
}

TEST_CASE("a message says once that a long evaluation is running") {
  const auto messages = [](double seconds) {
    const TempDir dir;
    Config config = tiny_config(2);
    config.train.eval_batch_size = 2;  // four batches
    std::ostringstream text;
    std::streambuf* const standard_error = std::cerr.rdbuf(text.rdbuf());
    Trainer trainer(config,
                    {.run_dir = dir / "run", .data_dir = "", .evaluation_message_delay_seconds = seconds});
    trainer.run();
    std::cerr.rdbuf(standard_error);
    return text.str();
  };
  const std::string message = "step 2: evaluating 8 examples\n";
  const std::string text = messages(0);
  CHECK_MESSAGE(contains(text, message), text);
  CHECK(text.find(message) == text.rfind(message));
  CHECK(!contains(messages(1000), message));
}

TEST_CASE("a run writes a checkpoint at its time limit") {
  const TempDir dir;
  Config config = tiny_config(1000000);
  config.train.time_limit_minutes = 0.2 / 60;
  config.train.eval_every = 0;
  config.train.checkpoint_every = 0;
  const TrainResult result = train(config, dir.path() / "run");
  CHECK(result.is_time_up);
  CHECK(result.step > 0);
  CHECK(fs::exists(dir.path() / "run/checkpoints/latest/state.json"));

  // A resumed run has no time left, so it takes no step.
  const TrainResult resumed = train(config, dir.path() / "run", true);
  CHECK(resumed.is_time_up);
  CHECK(resumed.step == result.step);
}

TEST_CASE("a run directory or a config with text that is not UTF-8 is refused before training") {
  const TempDir dir;
  Config config = tiny_config(1);
  CHECK(contains(message_of<ConfigError>([&] { train(config, dir / "caf\xe9"); }),
                 "the path is not valid UTF-8"));
  CHECK(fs::is_empty(dir.path()));
  config.run.name = "caf\xe9";
  CHECK(contains(message_of<ConfigError>([&] { train(config, dir / "run"); }), "not valid UTF-8: name = "));
  CHECK(fs::is_empty(dir.path()));
}
