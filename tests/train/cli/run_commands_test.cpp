// Tests of the commands eval, generate and complete with small untrained models: results, pictures and
// invalid runs.
#include <doctest/doctest.h>

#include <cmath>

#include "data/images/png.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "train/evaluate.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

bool no_images() {
  if (fs::exists("/usr/share/datasets/fashion-mnist")) return false;
  MESSAGE("skipped: dataset-fashion-mnist is not installed");
  return true;
}

using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Returns the pixels of cell (row, column) of a grid that write_image_grid creates for images of 7 x 7.
std::vector<int> grid_cell(const Tensor& grid, int64_t row, int64_t column) {
  constexpr int64_t kSide = 7, kScale = 4, kGap = 2, kStep = kSide * kScale + kGap;
  std::vector<int> pixels;
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x)
      pixels.push_back(grid.data<uint8_t>()[(kGap + row * kStep + y * kScale) * grid.size(1) + kGap +
                                            column * kStep + x * kScale]);
  return pixels;
}

std::vector<int> test_image(int64_t index) {
  const auto set = make_split(make_tiny_image_config(), "test");
  const auto values = set->batch(std::vector<int64_t>{index}).tokens.to_vector();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("eval prints the results of the library") {
  if (no_images()) return;
  const TempDir dir;
  const Config config = make_tiny_image_config();
  write_run(dir / "run", config);
  const auto model = make_model(config, get_dataset_info(config));
  const auto images = make_split(config, "test");
  for (const std::string dtype : {"float32", "float64"}) {
    CAPTURE(dtype);
    if (dtype == "float64") model->convert(DType::float64);
    const auto expected = evaluate(*model, *images, 4, 10);
    const auto figures = parse_json_output(
        run_program({"eval", (dir / "run").string(), "--limit", "10", "--dtype", dtype, "--json"}));
    CHECK(figures["split"] == "test");
    CHECK(figures["examples"] == 10);
    CHECK(figures["seconds"] > 0);
    CHECK(!figures.contains("accuracy"));
    const double tolerance = dtype == "float64" ? 1e-12 : 1e-5;
    CHECK(std::abs(figures["nats_per_dim"].get<double>() - expected.nats_per_dim) < tolerance);
    CHECK(std::abs(figures["bits_per_dim"].get<double>() - expected.nats_per_dim / std::log(2)) < tolerance);
  }
}

TEST_CASE("eval evaluates the whole split, regardless of data.eval_limit") {
  if (no_images()) return;
  const TempDir dir;
  Config config = make_tiny_image_config();
  config.data.eval_limit = 5;
  config.data.options.set("validation", 100);
  config.train.eval_batch_size = 100;
  write_run(dir / "run", config);
  const std::string run = (dir / "run").string();
  CHECK(parse_json_output(run_program({"eval", run, "--json"}))["examples"] == 10000);
  CHECK(parse_json_output(run_program({"eval", run, "--json", "--split", "valid"}))["examples"] == 100);
}

TEST_CASE("a run is found by its folder, its checkpoints folder and a checkpoint folder") {
  const TempDir dir;
  const fs::path run = dir / "run";
  Config config = make_tiny_sequence_config();
  write_run(run, config, 1);
  mark_best_checkpoint(run.string(), 1);
  config.run.seed = 4;  // initialises different weights
  write_run(run, config, 2);
  const auto bits = [](const Words& words) {
    const auto result = run_program(joined({"eval"}, joined(words, {"--limit", "8", "--json"})));
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return parse_json_output(result)["bits_per_dim"].get<double>();
  };
  const double latest = bits({run.string()});
  for (const fs::path& path : {run / "", run / "checkpoints", run / "checkpoints" / "latest",
                               run / "checkpoints" / "step-00000002", run / "checkpoints" / ""})
    CHECK(bits({path.string()}) == latest);
  const double best = bits({run.string(), "--checkpoint", "best"});
  CHECK(best != latest);
  for (const std::string name : {"step-00000001", "1"})
    CHECK(bits({run.string(), "--checkpoint", name}) == best);
  fs::remove(run / "checkpoints" / "latest");  // as in a copy of the run directory without symlinks
  CHECK(bits({run.string()}) == latest);

  for (const std::string name : {"step-00000009", "9"}) {
    const auto absent = run_program({"eval", run.string(), "--checkpoint", name});
    CHECK(absent.code == 3);
    CHECK(contains(absent.err, "no checkpoint \"" + name + "\"; the steps are 1, 2"));
  }
  CHECK(run_program({"eval", (run / "checkpoints" / "best").string(), "--checkpoint", "best"}).code == 2);
}

TEST_CASE("eval of sequences prints the accuracy") {
  const TempDir dir;
  write_run(dir / "run", make_tiny_sequence_config());
  const auto figures =
      parse_json_output(run_program({"eval", (dir / "run").string(), "--limit", "8", "--json"}));
  const Config config = make_tiny_sequence_config();
  const auto model = make_model(config, get_dataset_info(config));
  const auto expected = evaluate(*model, *make_split(config, "test"), 3, 8);  // with another batch size
  REQUIRE(expected.accuracy.has_value());
  CHECK(*expected.accuracy > 0);
  CHECK(figures["accuracy"].get<double>() == doctest::Approx(*expected.accuracy).epsilon(1e-12));
  CHECK(figures["nats_per_dim"].get<double>() == doctest::Approx(expected.nats_per_dim).epsilon(1e-6));
}

TEST_CASE(
    "eval of LSH attention: --seed changes the rotations, and more buckets than positions are an error") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.data.options.set("max_length", 64);
  config.model.attention = {"lsh"};
  config.attention = {{"lsh", find_attention_kind("lsh").default_options()}};
  config.attention.at("lsh").set("chunk_length", int64_t{4});
  config.attention.at("lsh").set("rounds", int64_t{1});
  write_run(dir / "run", config);
  const Words command = {"eval", (dir / "run").string(), "--limit", "8", "--json"};
  const auto nats = [&](const Words& more) {
    return parse_json_output(run_program(joined(command, more)))["nats_per_dim"];
  };
  CHECK(nats({}) == nats({}));
  CHECK(nats({"--seed", "0"}) == nats({}));
  CHECK(nats({"--seed", "1"}) != nats({}));
  const auto result = run_program(joined(command, {"--set", "attention.buckets=4096"}));
  CHECK(result.code != 0);
  CHECK(contains(result.err, "4096 buckets are more than the"));
}

TEST_CASE("--out refuses names of other picture formats") {
  const TempDir dir;
  const std::string run = (dir / "nowhere").string();
  for (const std::string command : {"generate", "complete"}) {
    const auto result = run_program({command, run, "--out", (dir / "x.jpg").string()});
    CHECK(result.code == 2);  // the file name is checked before the run is opened
    CHECK(contains(result.err, "x.jpg: expected a file name that ends in .png"));
  }
}

TEST_CASE("generate of sequences refuses options of images") {
  const TempDir dir;
  write_run(dir / "run", make_tiny_sequence_config());
  const std::pair<std::string, std::string> options[] = {
      {"--out", (dir / "x.png").string()}, {"--batch", "2"}, {"--scale", "exp"}};
  for (const auto& [option, value] : options) {
    const auto result = run_program({"generate", (dir / "run").string(), "--count", "1", option, value});
    CHECK(result.code == 2);
    CHECK(contains(result.err, option + " is for models of images"));
  }
}

TEST_CASE("commands exit with 3 for a path without a run") {
  const TempDir dir;
  const fs::path run = dir / "run", checkpoint = run / "checkpoints" / "step-00000001";
  const auto fails = [&](const fs::path& path, const std::string& expected) {
    for (const std::string command : {"eval", "generate", "complete"}) {
      const auto result = run_program({command, path.string()});
      CAPTURE(path.string());
      CAPTURE(result.err);
      CHECK(result.code == 3);
      CHECK(result.out == "");
      CHECK(contains(result.err, expected));
    }
  };
  const auto fresh = [&] {
    fs::remove_all(run);
    write_run(run, make_tiny_sequence_config());
  };
  fails(dir / "nowhere", "nowhere");
  fs::create_directories(dir / "empty");
  fails(dir / "empty", "empty");
  write_file(dir / "file", std::string("no run"));
  fails(dir / "file", "file");
  for (const std::string name : {"model.safetensors", "config.toml"}) {
    fresh();
    write_file(checkpoint / name, std::string("garbage \x01\x02"));
    fails(run, name);
    fresh();
    write_file(checkpoint / name, std::string());
    if (name != "config.toml") fails(run, name);
    fresh();
    fs::remove(checkpoint / name);
    if (name != "model.safetensors") fails(run, name);
  }
  fresh();
  fs::resize_file(checkpoint / "model.safetensors", fs::file_size(checkpoint / "model.safetensors") - 1);
  fails(run, "model.safetensors");
  fresh();
  Config other = make_tiny_sequence_config();
  other.model.options.set("feedforward", 32);
  write_file(checkpoint / "config.toml", to_toml(other));
  fails(run, "config.toml: is damaged or was edited");
}

TEST_CASE("commands exit with 2 or 3 for settings that contradict the run") {
  const TempDir dir;
  write_run(dir / "run", make_tiny_sequence_config());
  const std::string run = (dir / "run").string();
  const auto typo = run_program({"eval", run, "--set", "data.batch_sise=3"});
  CHECK(typo.code == 2);
  CHECK(contains(typo.err, "did you mean"));
  // The value in --set is wrong, and the checkpoint is valid.
  const auto layers = run_program({"eval", run, "--set", "model.layers=2"});
  CHECK(layers.code == 2);
  CHECK(contains(layers.err, "the settings do not match the weights of the checkpoint"));
  CHECK(run_program({"eval", run, "--split", "tset"}).code == 2);
  CHECK(run_program({"eval"}).code == 2);
}

TEST_CASE("settings with which the weights would compute another function are errors") {
  const TempDir dir;
  const auto run_of = [&](const std::string& kind) {
    Config config = make_tiny_sequence_config();
    config.model.attention = {kind};
    config.attention = {{kind, find_attention_kind(kind).default_options()}};
    write_run(dir / kind, config);
    return (dir / kind).string();
  };
  const auto eval = [](const std::string& run, const Words& settings) {
    Words words = {"eval", run, "--limit", "2", "--json"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return run_program(words);
  };
  const std::vector<std::pair<std::string, Words>> refused = {
      {"gated-delta",
       {"attention.activation=none", "attention.qk_norm=none", "attention.output_gate=sigmoid",
        "attention.output_norm=none", "attention.preset=kda", "attention.negative_eigenvalues=true"}},
      {"gated-linear", {"attention.decay=fixed"}},
      {"linear",
       {"attention.feature_map=relu", "model.attention=softmax", "model.activation=gelu", "model.norm=pre",
        "model.positions=none", "model.heads=4"}},
      {"softmax", {"model.attention=linear"}}};
  for (const auto& [kind, settings] : refused) {
    const std::string run = run_of(kind);
    for (const std::string& setting : settings) {
      CAPTURE(setting);
      const auto result = eval(run, {setting});
      CHECK(result.code == 2);
      const std::string key = setting.substr(0, setting.find('='));
      CHECK(contains(result.err, key + ": the weights are those of a training with "));
      CHECK(contains(result.err, ", and do not fit "));
    }
  }
  const auto both = eval(run_of("linear"), {"model.heads=4", "model.head_dim=4"});
  CHECK(contains(both.err, "model.heads: the weights are those of a training with 2, and do not fit 4"));
  CHECK(contains(both.err, "model.head_dim: the weights are those of a training with 8, and do not fit 4"));
  // The value of the run, options of evaluations, and another kind of softmax attention.
  const std::vector<std::pair<std::string, Words>> accepted = {
      {"gated-delta", {"attention.activation=preset", "model.feedforward_chunks=2"}},
      {"linear", {"attention.eps=1e-4"}},
      {"softmax", {"model.attention=local", "attention.window=4"}}};
  for (const auto& [kind, settings] : accepted) {
    const auto result = eval(run_of(kind), settings);
    CAPTURE(result.err);
    CHECK(result.code == 0);
  }
}

TEST_CASE("without the data set, eval exits with 3 and generate succeeds") {
  const TempDir dir;
  write_run(dir / "run", make_tiny_image_config("mnist"));
  const std::string run = (dir / "run").string(), nowhere = (dir / "nowhere").string();
  for (const std::string command : {"eval", "complete"}) {
    const auto result = run_program({command, run, "--data-dir", nowhere});
    CHECK(result.code == 3);
    CHECK(contains(result.err, "mnist"));
    CHECK(contains(result.err, nowhere));
  }
  const auto drawn = run_program({"generate", run, "--data-dir", nowhere, "--count", "2", "--json"});
  CHECK(drawn.code == 0);
  CHECK(contains(drawn.err, "mnist was not found"));
  CHECK(parse_json_output(drawn)["count"] == 2);
}

TEST_CASE("generate writes a grid that does not depend on the batch size") {
  if (no_images()) return;
  const TempDir dir;
  write_run(dir / "run", make_tiny_image_config());
  const auto many = run_program({"generate", (dir / "run").string(), "--count", "9000000"});
  CHECK(many.code == 2);  // before the images are generated
  CHECK(contains(many.err, "a grid of 9000000 images exceeds 100000000 pixels"));
  const auto draw = [&](const Words& more) {
    const fs::path picture = dir / "grid.png";
    const auto result = run_program(joined(
        {"generate", (dir / "run").string(), "--count", "5", "--out", picture.string(), "--json"}, more));
    REQUIRE(result.code == 0);
    const auto figures = parse_json_output(result);
    CHECK(figures["count"] == 5);
    CHECK(figures["seconds"] > 0);
    CHECK(std::abs(figures["images_per_second"].get<double>() * figures["seconds"].get<double>() - 5) < 1e-9);
    CHECK(figures["out"] == picture.string());
    return read_file(picture);
  };
  const std::string all = draw({}), cut = draw({"--batch", "2"});
  CHECK(all == cut);
  CHECK(draw({"--seed", "7"}) != all);
  const Tensor grid = read_png(dir / "grid.png");
  CHECK(grid.shape() == Shape{2 * 30 + 2, 3 * 30 + 2, 1});
  for (int i = 0; i < 5; ++i) CHECK(grid_cell(grid, i / 3, i % 3)[0] == test_image(i)[0]);
  draw({"--mode", "recompute"});
}

TEST_CASE("pictures are written to the samples folder of the run") {
  if (no_images()) return;
  const TempDir dir;
  write_run(dir / "run", make_tiny_image_config(), 12);
  const std::string run = (dir / "run").string();
  CHECK(run_program({"generate", run, "--count", "1"}).code == 0);
  CHECK(run_program({"complete", run, "--index", "0", "--samples", "1"}).code == 0);
  CHECK(fs::exists(dir / "run/samples/generate-step-00000012.png"));
  CHECK(fs::exists(dir / "run/samples/complete-step-00000012.png"));
  const fs::path picture = dir / "run/samples/generate-step-00000012.png", victim = dir / "victim.png";
  fs::rename(picture, victim);
  const std::string before = read_file(victim);
  fs::create_symlink(victim, picture);
  const auto linked = run_program({"generate", run, "--count", "2"});
  CHECK(linked.code == 1);
  CHECK(contains(linked.err, "is a symbolic link"));
  CHECK(read_file(victim) == before);
  write_file(dir / "file", std::string("no folder"));
  const auto refused = run_program({"generate", run, "--out", (dir / "file/x.png").string()});
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "--out"));
}

TEST_CASE("complete shows the given part and a grey rest") {
  if (no_images()) return;
  const TempDir dir;
  write_run(dir / "run", make_tiny_image_config());
  const auto result = run_program({"complete", (dir / "run").string(), "--index", "4,0", "--keep", "0.6",
                                   "--samples", "2", "--out", (dir / "grid.png").string(), "--json"});
  REQUIRE(result.code == 0);
  const auto figures = parse_json_output(result);
  CHECK(figures["index"] == nlohmann::json({4, 0}));
  const auto kept = figures["kept_dims"].get<size_t>();
  CHECK(kept == 29);  // 60 % of 49 pixels, rounded down
  const Tensor grid = read_png(dir / "grid.png");
  REQUIRE(grid.shape() == Shape{2 * 30 + 2, 4 * 30 + 2, 1});
  for (const auto& [row, index] : {std::pair{0, 4}, {1, 0}}) {
    const auto original = test_image(index);
    CHECK(grid_cell(grid, row, 0) == original);
    auto occluded = original;
    std::fill(occluded.begin() + static_cast<int64_t>(kept), occluded.end(), 128);
    CHECK(grid_cell(grid, row, 1) == occluded);
    for (const int column : {2, 3}) {
      const auto completed = grid_cell(grid, row, column);
      CHECK(std::equal(original.begin(), original.begin() + static_cast<int64_t>(kept), completed.begin()));
      CHECK(completed != occluded);
    }
    CHECK(grid_cell(grid, row, 2) != grid_cell(grid, row, 3));
  }
}

TEST_CASE("complete refuses models and indices without images") {
  const TempDir dir;
  write_run(dir / "copy", make_tiny_sequence_config());
  const auto sequences = run_program({"complete", (dir / "copy").string()});
  CHECK(sequences.code == 2);
  CHECK(contains(sequences.err, "copy"));
  if (no_images()) return;
  write_run(dir / "run", make_tiny_image_config());
  for (const std::string index : {"10000", "-1", "a", "1,,2", ""})
    CHECK(run_program({"complete", (dir / "run").string(), "--index", index}).code == 2);
  CHECK(run_program({"complete", (dir / "run").string(), "--keep", "1.5"}).code == 2);
}

TEST_CASE("generate continues sequences from their given parts") {
  const TempDir dir;
  write_run(dir / "run", make_tiny_sequence_config());
  const auto report = parse_json_output(
      run_program({"generate", (dir / "run").string(), "--count", "3", "--greedy", "--json"}));
  CHECK(report["count"] == 3);
  CHECK(report["batch"] == 1);
  REQUIRE(report["sequences"].size() == 3);
  for (const auto& row : report["sequences"]) {
    CHECK(row["given"].back() == 0);  // the last given token is the separator
    CHECK(row["drawn"].size() == row["expected"].size());
    CHECK(row["given"].size() + row["drawn"].size() == 17);
    for (size_t i = 0; i + 1 < row["given"].size(); ++i) CHECK(row["expected"][i] == row["given"][i]);
  }
}
