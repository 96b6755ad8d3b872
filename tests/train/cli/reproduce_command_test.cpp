// Tests of reproduce with very small models: files, rows and continuation. Test of generate with LSH
// attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core/cuda/devices.h"
#include "core/device.h"
#include "tests/support/devices.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

const std::string kConfigs = std::string(SOURCE_DIR) + "/configs";

Words reproduce(const std::string& name, const fs::path& out, const Words& sets) {
  Words words = {"reproduce", name, "--configs", kConfigs, "--out", out.string(), "--threads", "1", "--json"};
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  return words;
}

int64_t lines(const fs::path& file) {
  const std::string text = read_file(file);
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("reproduce lists its names and refuses other names") {
  const auto list = json_of(run_program({"reproduce", "list", "--json"}));
  CHECK(list["reproductions"].size() == 5);
  const auto unknown = run_program({"reproduce", "reformer-tabel2"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "did you mean \"reformer-table2\"?"));
  const auto elsewhere = run_program({"reproduce", "reformer-table2", "--configs", "/nowhere"});
  CHECK(elsewhere.code == 2);
  CHECK(contains(elsewhere.err, "/nowhere: no folder of configs; name one with --configs"));
  CHECK(run_program({"reproduce", "reformer-table2", "--scale", "huge"}).code == 2);
}

TEST_CASE(
    "reproduce reformer-table2 evaluates each of four trainings five times, and a second call continues") {
  const TempDir dir;
  const Words words = reproduce("reformer-table2", dir / "out",
                                {"train.steps=2", "data.batch_size=2", "data.eval_limit=3",
                                 "model.head_dim=4", "model.axial_dims=[16]", "model.feedforward=8"});
  const auto first = json_of(run_program(words));
  REQUIRE(first["accuracy_percent"].size() == 4);
  for (const auto& row : first["accuracy_percent"]) {
    CHECK(row["steps"] == 2);
    for (const char* column : {"full", "lsh-8", "lsh-4", "lsh-2", "lsh-1"}) {
      REQUIRE(row[column].is_number());
      const double right =
          row[column].get<double>() / 100 * 3 * 63;  // number of correct symbols in three sequences
      CHECK(right == doctest::Approx(std::round(right)).epsilon(1e-9));
    }
  }
  const auto evaluated = [&](const Words& sets) {
    Words eval = {"eval", (dir / "out/trained-lsh-4").string(), "--limit", "3", "--json"};
    eval.insert(eval.end(), sets.begin(), sets.end());
    return 100 * json_of(run_program(eval))["accuracy"].get<double>();
  };
  CHECK(first["accuracy_percent"][1]["lsh-4"] == evaluated({}));
  CHECK(first["accuracy_percent"][1]["full"] ==
        evaluated({"--set", "attention.chunk_length=128", "--set", "attention.buckets=0"}));
  CHECK(first["accuracy_percent"][1]["trained"] == "lsh-4");
  CHECK(first["accuracy_percent"][1]["paper_lsh-1"] == 91.9);
  CHECK(lines(dir / "out" / "table2.csv") == 1 + 4 * 5);
  CHECK(contains(read_file(dir / "out" / "table2.svg"), "trained lsh-4"));
  const auto second = run_program(words);
  CHECK(json_of(second) == first);
  CHECK(contains(second.err, "resumed from"));
}

TEST_CASE("reproduce copy-convergence draws a curve for each kind and logs the device once") {
  const TempDir dir;
  const auto result =
      run_program(reproduce("copy-convergence", dir / "out",
                            {"train.steps=4", "train.log_every=2", "data.batch_size=2", "data.eval_limit=3",
                             "model.layers=1", "model.head_dim=2", "model.feedforward=8"}));
  const auto report = json_of(result);
  const size_t announced = result.err.find("info: device ");
  CHECK(announced != std::string::npos);
  CHECK(result.err.find("info: device ", announced + 1) == std::string::npos);
  REQUIRE(report["runs"].size() == 4);
  CHECK(report["runs"][0]["attention"] == "softmax");
  CHECK(report["runs"][3]["attention"] == "lsh-4");
  CHECK(lines(dir / "out" / "copy-convergence.csv") == 1 + 4 * 2);
  CHECK(contains(read_file(dir / "out" / "copy-convergence.svg"), "lsh-1"));
}

TEST_CASE("reproduce accepted all settings and ignored those without effect") {
  const TempDir dir;
  const auto error = [&](const std::string& name, const Words& sets) {
    const auto result = run_program(reproduce(name, dir / "out", sets));
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(contains(error("attention-scaling", {"longest=1024"}),
                 "--set longest: \"attention-scaling\" does not take this setting; did you mean "
                 "measure.longest?"));
  CHECK(
      contains(error("attention-scaling", {"model.layers=1"}), "it takes measure.shortest measure.longest"));
  CHECK(contains(error("attention-scaling", {"measure.longest=0"}),
                 "--set measure.longest: expected an integer from 1"));
  CHECK(contains(error("speech-scaling", {"data.limit=3"}), "\"speech-scaling\" does not take this setting"));
  CHECK(contains(error("copy-convergence", {"model.mixtures=3"}),
                 "--set model.mixtures: belongs to models of type \"image\""));
  CHECK(contains(error("copy-convergence", {"model.layrs=3"}), "did you mean model.layers?"));
  CHECK(contains(error("copy-convergence", {"measure.longest=3"}), "unknown table [measure]"));
  CHECK(contains(error("copy-convergence", {"attention.nonsense=3"}), "attention.nonsense"));
  CHECK(contains(error("reformer-table2", {"attention.rounds=3"}), "sets attention.rounds itself"));
  CHECK(contains(error("reformer-table2", {"run.seed=3"}), "use --seed"));
}

TEST_CASE("cuda: reproduce ignored --device and --seed") {
  if (other_devices().empty()) {
    MESSAGE("skipped: " << why_no_device());
    return;
  }
  const TempDir dir;
  const std::string device = tapeformer::cuda::emulated() ? "cuda-emulated" : "cuda";
  const auto on_device = [&](const std::string& name, const Words& sets, const std::string& out) {
    Words words = reproduce(name, dir / out, sets);
    words.insert(words.end(), {"--device", device, "--seed", "7"});
    const auto result = run_program(words);
    CAPTURE(result.err);
    CHECK(result.code == 0);
    return json_of(result);
  };
  const auto lengths = on_device("attention-scaling",
                                 {"measure.shortest=16", "measure.longest=32", "measure.heads=1",
                                  "measure.head_dim=8", "measure.repeats=1"},
                                 "a");
  CHECK(lengths["device"] == "cuda:0");
  CHECK(lengths["lengths"].size() == 4 * 2);
  CHECK(lengths["lengths"][0]["peak_bytes"] > 0);
  const Words small = {"model.layers=1", "model.heads=1", "model.hidden=4", "model.head_dim=8",
                       "model.feedforward=8"};
  Words speech = {"measure.shortest=16", "measure.longest=16", "measure.batch_frames=32",
                  "measure.epoch_frames=32", "measure.repeats=1"};
  speech.insert(speech.end(), small.begin(), small.end());
  CHECK(on_device("speech-scaling", speech, "b")["device"] == "cuda:0");

  const auto table = on_device(
      "reformer-table2",
      {"train.steps=1", "data.batch_size=1", "data.eval_limit=1", "model.head_dim=4", "model.axial_dims=[16]",
       "model.feedforward=8", "data.max_length=32", "model.axial_shape=[32]", "attention.chunk_length=8"},
      "c");
  CHECK(table["accuracy_percent"][0]["seed"] == 7);
  const std::string config = read_file(dir / "c/trained-full/config.toml");
  CHECK(contains(config, "device = \"" + device + "\""));
  CHECK(contains(config, "seed = 7"));
  CHECK(contains(config, "threads = 1"));
}

TEST_CASE("generate recomputes the whole prefix for LSH attention, and logs the reason") {
  const TempDir dir;
  Config config = tiny_sequence_config();
  config.model.attention = {"lsh"};
  config.attention = {{"lsh", attention_kind("lsh").defaults()}};
  config.attention.at("lsh").set("chunk_length", int64_t{4});
  write_run(dir / "run", config);
  const Words words = {"generate", (dir / "run").string(), "--count", "1", "--json"};
  const auto drawn = run_program(words);
  CHECK(json_of(drawn)["mode"] == "recompute");
  CHECK(contains(drawn.err, "attention kind \"lsh\" has no recurrent form"));
  Words recurrent = words;
  recurrent.insert(recurrent.end(), {"--mode", "recurrent"});
  const auto refused = run_program(recurrent);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "use --mode recompute"));
}
