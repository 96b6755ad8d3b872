// Tests of damaged, edited and malicious checkpoints. Loading such a checkpoint throws an error that names
// the file. Loading neither allocates much memory nor changes files outside of the run directory.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/allocator.h"
#include "tests/support/temp_dir.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/tasks/registry/load_task.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

Config short_training() {
  Config config = make_tiny_sequence_config();
  config.data.eval_limit = 4;
  config.train.steps = 2;
  config.train.checkpoint_every = 1;
  return config;
}

fs::path latest(const fs::path& run) {
  return fs::canonical(run / "checkpoints/latest");
}

std::string load_error(const fs::path& run) {
  return message_of<CheckpointError>([&] { load_task({.path = run.string()}); });
}

std::string resume_error(const Config& config, const fs::path& run) {
  return message_of<CheckpointError>([&] { train(config, run, true); });
}

// Edits the state.json of a checkpoint and updates the checksum in state.json. The checksum is the last
// entry, "crc32", and covers the text before this entry.
template <class F>
void edit_state(const fs::path& checkpoint, F&& edit) {
  auto state = nlohmann::ordered_json::parse(read_file(checkpoint / "state.json"));
  state.erase("crc32");
  edit(state);
  std::string text = state.dump(2);
  text.resize(text.size() - 2);
  text += ",\n  \"crc32\": \"" + format_crc32(compute_checksum(text).crc32) + "\"\n}\n";
  write_file(checkpoint / "state.json", text);
}

}  // namespace

TEST_CASE("a training continues from the checkpoint before a damaged one after the damaged one is removed") {
  const TempDir dir;
  Config config = short_training();
  config.train.steps = 4;
  config.train.keep_last = 4;
  train(config, dir / "run");
  const fs::path damaged = latest(dir / "run");
  std::string bytes = read_file(damaged / "model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(damaged / "model.safetensors", bytes);
  const std::string advice = "remove it to continue from an earlier one in " + damaged.parent_path().string();
  CHECK(resume_error(config, dir / "run").ends_with(advice));
  Config tuned = config;
  tuned.model.init = (dir / "run").string();
  for (const std::string& error :
       {load_error(dir / "run"), message_of<CheckpointError>([&] { train(tuned, dir / "tuned"); })})
    CHECK(contains(error, (damaged / "model.safetensors").string()));
  // Settings do not hide that a file is damaged.
  CHECK(contains(message_of<CheckpointError>([&] {
                   load_task({.path = (dir / "run").string(), .config_settings = {"model.layers=2"}});
                 }),
                 "model.safetensors: is damaged"));
  fs::remove_all(damaged);
  CHECK(train(config, dir / "run", true).step == 4);

  fill_parameter(dir / "run", "norm.bias", std::nan(""));
  CHECK(message_of<DivergenceError>([&] { train(config, dir / "run", true); }).ends_with(advice));
}

TEST_CASE("a flipped bit in any file of a checkpoint is an error that names the file") {
  const TempDir dir;
  const Config config = short_training();
  train(config, dir / "run");
  const fs::path checkpoint = latest(dir / "run");
  for (const std::string name : {"model.safetensors", "config.toml", "state.json", "optimizer.safetensors"}) {
    const std::string whole = read_file(checkpoint / name);
    const size_t stride = whole.size() / 40 + 1;
    for (size_t at = 0; at < whole.size(); at += stride) {
      CAPTURE(name);
      CAPTURE(at);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      write_file(checkpoint / name, damaged);
      const bool of_model = name != "optimizer.safetensors";
      CHECK(contains(of_model ? load_error(dir / "run") : resume_error(config, dir / "run"),
                     (checkpoint / name).string()));
      if (!of_model) CHECK(load_error(dir / "run") == "");  // loading the model does not need the file
    }
    write_file(checkpoint / name, whole);
  }
  // A damaged tensor name is reported as a damaged file, not as a mismatched config.
  const std::string whole = read_file(checkpoint / "model.safetensors");
  for (const std::string name : {"linear1.weight", "linear1.bias"}) {
    std::string renamed = whole;
    renamed.replace(renamed.find(name), 7, "linear9");
    write_file(checkpoint / "model.safetensors", renamed);
    CHECK(contains(load_error(dir / "run"), "model.safetensors: is damaged"));
    CHECK(contains(resume_error(config, dir / "run"), "model.safetensors: is damaged"));
  }
  write_file(checkpoint / "model.safetensors", whole);
  CHECK(load_error(dir / "run") == "");
  CHECK(train(config, dir / "run", true).step == 2);
}

TEST_CASE("a checkpoint without checksums is an error") {
  const TempDir dir;
  const Config config = short_training();
  train(config, dir / "run");
  const fs::path checkpoint = latest(dir / "run");
  auto state = nlohmann::ordered_json::parse(read_file(checkpoint / "state.json"));
  state.erase("crc32");
  write_file(checkpoint / "state.json", state.dump(2) + "\n");
  CHECK(contains(load_error(dir / "run"), "does not match the checksum in it"));
  state.erase("files");
  write_file(checkpoint / "state.json", state.dump(2) + "\n");
  CHECK(contains(load_error(dir / "run"), "state.json: files: is missing"));
}

TEST_CASE("a wrong entry in state.json is an error that names file and entry") {
  const TempDir dir;
  const Config config = short_training();
  train(config, dir / "run");
  const fs::path checkpoint = latest(dir / "run");
  const std::string whole = read_file(checkpoint / "state.json");
  const nlohmann::ordered_json nothing;
  const std::vector<std::tuple<std::string, nlohmann::ordered_json, std::string>> cases = {
      {"step", -1, "expected an integer from 0 to"},
      {"step", 1.5, "got 1.5"},
      {"step", "2", "got \"2\""},
      {"step", 3, "expected 2 as in the folder's name, got 3"},
      {"step", 18446744073709551615u, "expected an integer"},
      {"evaluated_step", 3, "expected an integer from -1 to 2, got 3"},
      {"optimizer_steps", 100, "expected an integer from 0 to 2, got 100"},
      {"best_loss", "low", "expected a finite number"},
      {"seconds", -1, "expected a number of seconds"},
      {"seconds", nothing, "got null"},
      {"plateau_factor", 7, "expected a number from 0 to 1, got 7"},
      {"plateau_bad_evaluations", -3, "expected an integer from 0"},
      {"task", 3, "expected an object, got 3"},
      {"files", 3, "expected an object, got 3"}};
  for (const auto& [key_bound, value, expected] : cases) {
    const auto& key = key_bound;  // clang 14 cannot capture structured bindings
    CAPTURE(key);
    for (const bool checksum_is_right : {true, false}) {
      write_file(checkpoint / "state.json", whole);
      if (checksum_is_right) {
        edit_state(checkpoint, [&, &key = key, &value = value](auto& state) { state[key] = value; });
      } else {
        auto state = nlohmann::ordered_json::parse(whole);
        state[key] = value;
        write_file(checkpoint / "state.json", state.dump());
      }
      for (const std::string& error : {load_error(dir / "run"), resume_error(config, dir / "run")}) {
        CAPTURE(error);
        CHECK(contains(error, (checkpoint / "state.json").string() + ": " + key + ": "));
        CHECK(contains(error, expected));
      }
    }
  }
  write_file(checkpoint / "state.json", whole);
  edit_state(checkpoint, [](auto& state) { state.erase("seconds"); });
  CHECK(contains(load_error(dir / "run"), "seconds: is missing"));
}

TEST_CASE("a huge number or deep nesting in state.json is an error that names the file") {
  const TempDir dir;
  train(short_training(), dir / "run");
  const fs::path path = latest(dir / "run") / "state.json";
  const std::string whole = read_file(path);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const auto& [entry, expected] :
       {std::pair<std::string, std::string>("1e+320", "too large"), {deep, "is nested deeper than 32"}}) {
    write_file(path, "{\n  \"extra\": " + entry + "," + whole.substr(1));
    const std::string error = load_error(dir / "run");
    CHECK(contains(error, path.string() + ": "));
    CHECK(contains(error, expected));
  }
}

TEST_CASE("sizes in state.json and config.toml that do not match the tensors allocate no memory") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  for (const std::string encoder : {"lstm", "transformer"}) {
    CAPTURE(encoder);
    Config config = make_tiny_speech_config(dir / "an4", encoder);
    config.train.epochs = 0;
    config.train.steps = 1;
    const fs::path run = dir / encoder;
    train(config, run);
    const fs::path checkpoint = latest(run);
    const auto load = [&](const std::vector<std::string>& sets = {}) {
      get_device_allocator(kCpu).reset_peak();
      const int64_t before = get_device_allocator(kCpu).stats().peak_bytes;
      const auto load_it = [&] { load_task({.path = run.string(), .config_settings = sets}); };
      // A damaged checkpoint causes a CheckpointError. A wrong value in `sets` causes a ConfigError.
      const std::string error =
          sets.empty() ? message_of<CheckpointError>(load_it) : message_of<ConfigError>(load_it);
      CHECK(get_device_allocator(kCpu).stats().peak_bytes - before < (int64_t{1} << 20));
      return error;
    };
    CHECK(load() == "");
    const std::string layers = encoder == "lstm" ? "model.hidden=100000" : "model.feedforward=1000000";
    for (const std::string& set : {std::string("model.layers=9999"), layers})
      CHECK(contains(load({set}), "does not match the tensors"));
    const std::string whole = read_file(checkpoint / "state.json");
    const std::string state = (checkpoint / "state.json").string();
    edit_state(checkpoint, [](auto& json) { json["task"]["dims"] = 100000000; });
    CHECK(contains(load(), state + ": task.dims: expected an integer"));
    edit_state(checkpoint, [](auto& json) { json["task"]["dims"] = 900000; });
    CHECK(contains(load(), "state.json does not match the tensors"));
    write_file(checkpoint / "state.json", whole);
    edit_state(checkpoint, [](auto& json) {
      for (int i = 0; i < 100000; ++i) json["task"]["phones"].push_back("p" + std::to_string(i));
    });
    CHECK(contains(load(), "state.json does not match the tensors"));
  }
}

TEST_CASE("parameters of an attention kind that do not match the tensors are not allocated") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.model.attention = {"synthesizer"};
  config.attention = {
      {"synthesizer",
       find_attention_kind("synthesizer").make_options({{"terms", std::vector<std::string>{"random"}}})}};
  train(config, dir / "run");
  const std::string run = (dir / "run").string();
  CHECK_NOTHROW(load_task({.path = run}));
  get_device_allocator(kCpu).reset_peak();
  const int64_t before = get_device_allocator(kCpu).stats().peak_bytes;
  const std::string error = message_of<ConfigError>(
      [&] { load_task({.path = run, .config_settings = {"data.max_length=20000"}}); });
  CHECK(contains(error, "the model has more parameters than model.safetensors"));
  CHECK(get_device_allocator(kCpu).stats().peak_bytes - before < (int64_t{1} << 26));
}

TEST_CASE("--resume does not write through links in the run directory") {
  const TempDir dir;
  const Config config = short_training();
  train(config, dir / "run");
  Config longer = config;
  longer.train.steps = 3;
  for (const std::string name : {"config.toml", "metrics.jsonl"}) {
    const fs::path file = dir / "run" / name, victim = dir / "victim";
    const std::string whole = read_file(file);
    fs::rename(file, victim);
    fs::create_symlink(victim, file);
    CHECK(contains(resume_error(longer, dir / "run"),
                   file.string() + ": expected a regular file, found a symbolic link"));
    CHECK(read_file(victim) == whole);
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    CHECK(contains(resume_error(longer, dir / "run"), file.string() + ": expected a regular file"));
    fs::remove(file);
    fs::rename(victim, file);
  }
  fs::rename(dir / "run/checkpoints", dir / "elsewhere");
  fs::create_directory_symlink(dir / "elsewhere", dir / "run/checkpoints");
  CHECK(contains(resume_error(longer, dir / "run"), "checkpoints: expected a folder, found a symbolic link"));
  CHECK(load_error(dir / "run") == "");  // reading is allowed
  fs::remove(dir / "run/checkpoints");
  fs::rename(dir / "elsewhere", dir / "run/checkpoints");
  fs::create_directory_symlink(dir / "run", dir / "link");
  CHECK(train(longer, dir / "link", true).step == 3);  // the path of a run directory may be a link
  CHECK(fs::is_symlink(dir / "link"));
}

TEST_CASE("links to checkpoints must contain the name of a folder in checkpoints") {
  const TempDir dir;
  const Config config = short_training();
  train(config, dir / "run");
  train(config, dir / "other");
  const fs::path link = dir / "run/checkpoints/latest";
  const std::vector<std::string> targets = {"../../other/checkpoints/step-00000002",
                                            (dir / "other/checkpoints/latest").string(), "..", "sideways"};
  for (const std::string& target : targets) {
    CAPTURE(target);
    fs::remove(dir / "run/checkpoints/sideways");
    fs::create_directory_symlink(dir / "other/checkpoints/step-00000002", dir / "run/checkpoints/sideways");
    fs::remove(link);
    fs::create_directory_symlink(target, link);
    CHECK(contains(load_error(dir / "run"), link.string() + ": "));
    CHECK(contains(resume_error(config, dir / "run"), link.string() + ": "));
  }
}

TEST_CASE("a pipe instead of a file of a checkpoint is an error and does not block") {
  const TempDir dir;
  for (const std::string name : {"model.safetensors", "config.toml", "state.json", "optimizer.safetensors"}) {
    const Config config = short_training();
    const fs::path run = dir / name;
    train(config, run);
    const fs::path file = latest(run) / name;
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    const std::string error = name == "optimizer.safetensors" ? resume_error(config, run) : load_error(run);
    CHECK(contains(error, file.string() + ": expected a regular file"));
  }
}
