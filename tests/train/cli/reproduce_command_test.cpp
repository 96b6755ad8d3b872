// Tests of `tapeformer reproduce` with very small models, and a test of `tapeformer generate` with LSH
// attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/cuda/devices.h"
#include "core/device.h"
#include "core/system/files.h"
#include "data/images/png.h"
#include "tests/support/devices.h"
#include "tests/train/cli/reproduce_words.h"
#include "tests/train/cli/tiny_run.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Returns the slope between the last two points of the curve `row` in a figure.
double last_slope(const Json& table, const std::string& figure, const std::string& row) {
  for (const Json& drawn : table["figures"])
    for (const Json& series : drawn["series"])
      if (drawn["name"] == figure && series["name"] == row) {
        const Json &last = series["points"].back(), &before = series["points"][series["points"].size() - 2];
        return (last[1].get<double>() - before[1].get<double>()) /
               (last[0].get<double>() - before[0].get<double>());
      }
  throw std::runtime_error("no curve of " + row + " in " + figure);
}

int64_t lines(const fs::path& file) {
  const std::string text = read_file(file);
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("empty lists of rows and seeds, and empty or repeated words, are errors") {
  const TempDir dir;
  const std::pair<std::string, std::string> lists[] = {{"", ": the value is empty"},
                                                       {",", "a word is empty"},
                                                       {"1,", "a word is empty"},
                                                       {"1,1", "occurs twice"}};
  for (const std::string option : {"--rows", "--seeds"})
    for (const auto& [list_bound, problem] : lists) {
      const std::string& list = list_bound;  // clang 14 cannot capture structured bindings
      CAPTURE(option);
      CAPTURE(list);
      const auto result =
          run_program(reproduce_command("copy-convergence", dir / "out", kTinyCopy, {option, list}));
      CHECK(result.code == 2);
      CHECK(contains(result.err, option));
      CHECK(contains(result.err, problem));
    }
}

TEST_CASE("reproduce lists its names and refuses other names") {
  const auto list = parse_json_output(run_program({"reproduce", "list", "--json"}));
  CHECK(list["reproductions"].size() >= 9);
  const auto unknown = run_program({"reproduce", "reformer-tabel2"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "did you mean \"reformer-table2\"?"));
  const auto elsewhere = run_program({"reproduce", "reformer-table2", "--configs", "/nowhere"});
  CHECK(elsewhere.code == 2);
  CHECK(contains(elsewhere.err, "/nowhere: no folder of configs; name one with --configs"));
  CHECK(run_program({"reproduce", "reformer-table2", "--scale", "huge"}).code == 2);
}

TEST_CASE(
    "reproduce reformer-table2 evaluates every training with every number of rounds, and repeats nothing") {
  const TempDir dir;
  const Words words = reproduce_command("reformer-table2", dir / "out", kTinyDuplication,
                                        {"--rows", "trained-full,trained-lsh-4"});
  const auto ran = run_program(words);
  CAPTURE(ran.err);
  const auto first = parse_json_output(ran);
  for (const char* name : {"trained-full", "trained-lsh-4"}) {
    const Json& row = row_of(first, name);
    CHECK(row["trainings"][0]["steps"] == 2);
    for (const char* column : {"full", "lsh-8", "lsh-4", "lsh-2", "lsh-1"}) {
      // The accuracy is the percentage of correct symbols among 3 * 63 predicted symbols, so the number of
      // correct symbols must be an integer.
      const double right = row["cells"][column]["mean"].get<double>() / 100 * 3 * 63;
      CHECK(right == doctest::Approx(std::round(right)).epsilon(1e-9));
    }
  }
  const auto evaluated = [&](const Words& sets) {
    Words eval = {"eval", (dir / "out/runs/trained-lsh-4-seed-1").string(), "--limit", "3", "--json"};
    eval.insert(eval.end(), sets.begin(), sets.end());
    return 100 * parse_json_output(run_program(eval))["accuracy"].get<double>();
  };
  CHECK(mean(first, "trained-lsh-4", "lsh-4") == evaluated({}));
  CHECK(mean(first, "trained-lsh-4", "full") ==
        evaluated({"--set", "attention.chunk_length=128", "--set", "attention.buckets=0"}));
  const auto& cell = row_of(first, "trained-lsh-4")["cells"]["lsh-1"];
  CHECK(cell["paper"] == 91.9);
  CHECK(cell["values"][0]["seed"] == 1);
  for (const char* origin : {"command", "config", "commit", "machine", "date"})
    CHECK(cell[origin].get<std::string>() != "");
  CHECK(row_of(first, "trained-lsh-1")["cells"]["lsh-1"]["status"] == "not run");
  int64_t cells = 0;
  for (const Json& row : first["rows"]) cells += static_cast<int64_t>(row["cells"].size());
  CHECK(cells > 0);
  CHECK(lines(dir / "out/table.csv") == 1 + cells);
  CHECK(contains(read_file(dir / "out/loss.svg"), "trained-lsh-4"));
  CHECK(contains(read_file(dir / "out/table.md"), "| trained-lsh-4 |"));
  CHECK(contains(read_file(dir / "out/table.html"), "<svg"));
  const auto written = fs::last_write_time(dir / "out/cells/trained-full-seed-1.json");
  const auto second = run_program(words);
  CHECK(parse_json_output(second)["rows"] == first["rows"]);
  CHECK(!contains(second.err, "running trained"));
  CHECK(fs::last_write_time(dir / "out/cells/trained-full-seed-1.json") == written);
  // Two rows with six evaluations each, and their training times.
  const auto verified = check_verification("reformer-table2", dir / "out");
  CHECK(verified["agree"] == 12);
  CHECK(verified["speeds_not_compared"] == 2);
}

TEST_CASE("reproduce trains chosen rows with several seeds at the same time, and adds rows later") {
  const TempDir dir;
  const auto run = [&](const Words& more) {
    const auto ran = run_program(reproduce_command("copy-convergence", dir / "out", kTinyCopy, more));
    CAPTURE(ran.err);
    CHECK(ran.code == 0);
    return parse_json_output(ran);
  };
  const auto first = run({"--rows", "linear", "--seeds", "1,2", "--jobs", "2"});
  const auto& loss = row_of(first, "linear")["cells"]["test_loss_nats"];
  REQUIRE(loss["values"].size() == 2);
  const double a = loss["values"][0]["value"], b = loss["values"][1]["value"];
  CHECK(a != b);
  // The evaluation at the end of a training run is not repeated. Its result is that of the command "eval",
  // and its provenance is that of the training run.
  CHECK(loss["date"] == row_of(first, "linear")["trainings"][1]["date"]);
  CHECK(loss["threads"] == row_of(first, "linear")["trainings"][1]["threads"]);
  CHECK(!fs::exists(dir / "out/logs/linear-seed-1.test.0.log"));
  CHECK(a == parse_json_output(run_program({"eval", (dir / "out/runs/linear-seed-1").string(), "--limit", "3",
                                            "--threads", "1", "--json"}))["nats_per_dim"]
                 .get<double>());
  CHECK(loss["mean"].get<double>() == doctest::Approx((a + b) / 2));
  CHECK(loss["spread"].get<double>() == doctest::Approx(std::abs(a - b) / std::sqrt(2)));
  CHECK(row_of(first, "softmax")["cells"]["test_loss_nats"]["status"] == "not run");
  CHECK(contains(read_file(dir / "out/table.md"), "| softmax | not run |"));
  CHECK(first["figures"][0]["series"].size() == 1);
  const auto second = run({"--rows", "lsh-4", "--seeds", "3"});
  CHECK(row_of(second, "linear")["cells"]["test_loss_nats"]["values"].size() == 2);
  CHECK(row_of(second, "lsh-4")["cells"]["test_loss_nats"]["values"][0]["seed"] == 3);
  CHECK(second["command"].get<std::string>().ends_with(" --seeds 1,2,3"));
  CHECK(contains(read_file(dir / "out/loss.svg"), "lsh-4"));
  CHECK(contains(read_file(dir / "out/runs/linear-seed-2/config.toml"), "seed = 2"));
  // The output folder of a reproduction with --runs contains no evaluations of these runs, so the
  // reproduction runs the command "eval".
  const auto other = parse_json_output(
      run_program(reproduce_command("copy-convergence", dir / "other", kTinyCopy,
                                    {"--rows", "linear", "--runs", (dir / "out/runs").string()})));
  CHECK(fs::exists(dir / "other/logs/linear-seed-1.test.0.log"));
  CHECK(row_of(other, "linear")["cells"]["test_loss_nats"]["values"][0]["value"].get<double>() ==
        doctest::Approx(a).epsilon(1e-5));
}

TEST_CASE("reproduce --dry-run estimates every row and writes nothing") {
  const TempDir dir;
  const auto ran = run_program(reproduce_command("copy-convergence", dir / "out", kTinyCopy,
                                                 {"--dry-run", "--seeds", "1,2", "--jobs", "2"}));
  CAPTURE(ran.err);
  const auto report = parse_json_output(ran);
  REQUIRE(report["rows"].size() == 4);
  double seconds = 0;
  for (const auto& row : report["rows"]) {
    CHECK(row["steps"] == 4);
    for (const char* field :
         {"parameters", "training_seconds", "measuring_seconds", "memory_bytes", "disk_bytes"})
      CHECK(row[field].get<double>() > 0);
    seconds += row["training_seconds"].get<double>() / 2 + row["measuring_seconds"].get<double>();
  }
  CHECK(report["trainings"] == 8);
  CHECK(report["jobs"] == 2);
  CHECK(report["seconds"].get<double>() == doctest::Approx(seconds));
  CHECK(!fs::exists(dir / "out"));

  const auto one_row = parse_json_output(
      run_program(reproduce_command("copy-convergence", dir / "out", kTinyCopy,
                                    {"--dry-run", "--rows", "softmax", "--seeds", "1,2,3", "--jobs", "2"})));
  CHECK(one_row["rows"].size() == 1);
  CHECK(one_row["trainings"] == 3);
  CHECK(one_row["jobs"] == 2);
}

TEST_CASE("a failed row does not end the other rows, and a repeated call runs it again") {
  const TempDir dir;
  const Words words =
      reproduce_command("copy-convergence", dir / "out", kTinyCopy, {"--rows", "softmax,linear"});
  fs::create_directories(dir / "out/runs");
  write_file(dir / "out/runs/softmax-seed-1", std::string("a file instead of a run directory"));
  const auto failed = run_program(words);
  CHECK(failed.code != 0);
  const auto table = parse_json_output(failed);
  CHECK(row_of(table, "softmax")["cells"]["accuracy_percent"]["status"] == "failed");
  CHECK(row_of(table, "linear")["cells"]["accuracy_percent"]["status"] == "measured");
  CHECK(contains(failed.err, "softmax, seed 1, training: "));
  CHECK(contains(read_file(dir / "out/table.md"), "| softmax | failed |"));
  CHECK(contains(read_file(dir / "out/table.html"), "Failed: softmax"));
  fs::remove(dir / "out/runs/softmax-seed-1");
  const auto repeated = run_program(words);
  CHECK(repeated.code == 0);
  CHECK(row_of(parse_json_output(repeated), "softmax")["cells"]["accuracy_percent"]["status"] == "measured");
}

TEST_CASE("reproduce refuses unknown rows, and folders that another table, scale, setting or process uses") {
  const TempDir dir;
  const auto error = [&](const std::string& name, const Words& sets, const Words& more) {
    const auto result = run_program(reproduce_command(name, dir / "out", sets, more));
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  REQUIRE(
      run_program(reproduce_command("copy-convergence", dir / "out", kTinyCopy, {"--rows", "linear"})).code ==
      0);
  CHECK(contains(error("reformer-table2", {}, {}), "belongs to the table \"copy-convergence\""));
  CHECK(
      contains(error("copy-convergence", kTinyCopy, {"--scale", "small"}), "belongs to the scale \"smoke\""));
  CHECK(contains(error("copy-convergence", {"train.steps=5"}, {}), "belongs to the settings"));
  const std::string manifest = read_file(dir / "out/reproduce.json");
  const std::string version = "\"version\": \"";
  const size_t at = manifest.find(version) + version.size();
  write_file(dir / "out/reproduce.json", manifest.substr(0, at) + "0.0" + manifest.substr(at));
  CHECK(contains(error("copy-convergence", kTinyCopy, {}), "belongs to the version \"0.0"));
  write_file(dir / "out/reproduce.json", std::string("nonsense"));
  CHECK(contains(error("copy-convergence", kTinyCopy, {}), "expected a JSON object"));
  CHECK(contains(error("copy-convergence", kTinyCopy, {"--rows", "linaer"}), "did you mean \"linear\"?"));
  CHECK(contains(error("copy-convergence", kTinyCopy, {"--seeds", "1,1"}), "occurs twice"));
  CHECK(contains(error("copy-convergence", kTinyCopy, {"--seeds", "1,x"}), "--seeds: expected numbers"));
  CHECK(
      contains(error("copy-convergence", kTinyCopy, {"--seeds", "1", "--seed", "2"}), "--seed and --seeds"));
  const FolderLock lock((dir / "out").string());
  CHECK(contains(error("copy-convergence", kTinyCopy, {}), "another process uses"));
}

TEST_CASE("reproduce refuses settings without effect") {
  const TempDir dir;
  const auto error = [&](const std::string& name, const Words& sets) {
    const auto result = run_program(reproduce_command(name, dir / "out", sets));
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(contains(error("attention-scaling", {"longest=1024"}),
                 "--set longest: \"attention-scaling\" does not take this setting; did you mean "
                 "measure.longest?"));
  CHECK(
      contains(error("attention-scaling", {"model.layers=1"}), "it takes measure.longest measure.patience"));
  CHECK(contains(error("attention-scaling", {"measure.longest=-1"}),
                 "--set measure.longest: expected an integer from 0"));
  CHECK(contains(error("speech-scaling", {"data.limit=3"}), "\"speech-scaling\" does not take this setting"));
  CHECK(contains(error("copy-convergence", {"model.mixtures=3"}),
                 "--set model.mixtures: belongs to the model type \"image\""));
  CHECK(contains(error("copy-convergence", {"model.layrs=3"}), "did you mean model.layers?"));
  CHECK(contains(error("copy-convergence", {"measure.longest=3"}), "unknown table [measure]"));
  CHECK(contains(error("copy-convergence", {"attention.nonsense=3"}), "attention.nonsense"));
  CHECK(contains(error("reformer-table2", {"attention.rounds=3"}), "sets attention.rounds itself"));
  CHECK(contains(error("reformer-table2", {"run.seed=3"}), "use --seed"));
}

TEST_CASE("reproduce attention-scaling measures every row by length and fits exponents") {
  const TempDir dir;
  const auto ran = run_program(reproduce_command("attention-scaling", dir / "out",
                                                 {"measure.shortest=128", "measure.longest=512",
                                                  "model.heads=1", "model.head_dim=8", "measure.repeats=1"}));
  CAPTURE(ran.err);
  const auto table = parse_json_output(ran);
  for (const char* row :
       {"softmax", "lsh-1", "lsh-4", "lsh-8", "linear", "reformer-1", "reformer-4", "reformer-8"}) {
    CAPTURE(row);
    for (const char* column : {"milliseconds_128", "milliseconds_512", "mebibytes_512"})
      CHECK(mean(table, row, column) > 0);
  }
  CHECK(std::isfinite(mean(table, "linear", "milliseconds_exponent")));
  CHECK(contains(read_file(dir / "out/time.svg"), "reformer-8"));
  // The memory at three lengths and its exponent.
  CHECK(check_verification("attention-scaling", dir / "out", {"--rows", "softmax,linear"})["agree"] == 2 * 4);
}

TEST_CASE("reproduce attention-patterns shows which keys a query attends to") {
  const TempDir dir;
  const auto ran =
      run_program(reproduce_command("attention-patterns", dir / "out", {},
                                    {"--rows", "softmax,gated-linear,gated-delta,local,axial-column,isab"}));
  CAPTURE(ran.err);
  const auto table = parse_json_output(ran);
  CHECK(mean(table, "softmax", "keys_per_query") == 65 / 2.0);  // causal
  CHECK(mean(table, "gated-linear", "keys_per_query") == 65 / 2.0);
  CHECK(mean(table, "gated-delta", "keys_per_query") < 65 / 2.0);         // it also removes values
  CHECK(mean(table, "local", "keys_per_query") == (36 + 56 * 8) / 64.0);  // windows of 8 tokens
  CHECK(mean(table, "axial-column", "keys_per_query") == 9 / 2.0);        // columns of 8 tokens
  CHECK(mean(table, "isab", "share_of_pairs") == 1);                      // not causal
  CHECK(check_verification("attention-patterns", dir / "out")["agree"] == 6 * 2);
  const Tensor picture = read_png(dir / "out/local-seed-1.png");
  CHECK(picture.shape() == Shape{130, 130, 1});
  const auto pixel = [&](int64_t query, int64_t key) {
    return picture.data<uint8_t>()[(1 + 2 * query) * 130 + 1 + 2 * key];
  };
  CHECK(pixel(20, 21) == 255);  // a later key
  CHECK(pixel(20, 12) == 255);  // a key before the window
  CHECK(pixel(20, 13) < 255);
}

TEST_CASE("cuda: reproduce uses --device and --seed") {
  if (list_cuda_devices().empty()) return;
  const TempDir dir;
  std::string device = "cuda";
  if constexpr (kHasCuda)
    if (tapeformer::cuda::is_emulated()) device = "cuda-emulated";
  const auto run_on_device = [&](const std::string& name, const Words& sets, const Words& more) {
    Words words = reproduce_command(name, dir / name, sets, more);
    words.insert(words.end(), {"--device", device});
    const auto result = run_program(words);
    CAPTURE(result.err);
    CHECK(result.code == 0);
    return parse_json_output(result);
  };
  const auto lengths = run_on_device(
      "attention-scaling",
      {"measure.shortest=16", "measure.longest=32", "model.heads=1", "model.head_dim=8", "measure.repeats=1"},
      {"--rows", "linear,softmax"});
  CHECK(lengths["device"] == device);
  CHECK(mean(lengths, "softmax", "mebibytes_32") > 0);
  Words tiny = kTinyDuplication;
  tiny.insert(tiny.end(), {"data.max_length=32", "model.axial_shape=[32]", "attention.chunk_length=8"});
  const auto table = run_on_device("reformer-table2", tiny, {"--seed", "7", "--rows", "trained-full"});
  CHECK(row_of(table, "trained-full")["cells"]["full"]["values"][0]["seed"] == 7);
  const std::string config = read_file(dir / "reformer-table2/runs/trained-full-seed-7/config.toml");
  CHECK(contains(config, "device = \"" + device + "\""));
  CHECK(contains(config, "seed = 7"));
}

TEST_CASE("generate recomputes the whole prefix for LSH attention, and logs the reason") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.model.attention = {"lsh"};
  config.attention = {{"lsh", find_attention_kind("lsh").default_options()}};
  config.attention.at("lsh").set("chunk_length", int64_t{4});
  write_run(dir / "run", config);
  const Words words = {"generate", (dir / "run").string(), "--count", "1", "--json"};
  const auto drawn = run_program(words);
  CHECK(parse_json_output(drawn)["mode"] == "recompute");
  CHECK(contains(drawn.err, "attention kind \"lsh\" has no recurrent form"));
  Words recurrent = words;
  recurrent.insert(recurrent.end(), {"--mode", "recurrent"});
  const auto refused = run_program(recurrent);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "use --mode recompute"));
}

TEST_CASE(
    "reproduce runs a table of a user: rows and tasks with the seeds of the file, resumed and verified") {
  const TempDir dir;
  const std::string file = std::string(SOURCE_DIR) + "/docs/examples/sweep.toml";
  const auto run = [&](const Words& more) {
    const auto ran = run_program(reproduce_command(file, dir / "out", kTinyCopy, more));
    CAPTURE(ran.err);
    CHECK(ran.code == 0);
    return parse_json_output(ran);
  };
  const auto table = run({"--jobs", "2"});
  REQUIRE(table["rows"].size() == 4);
  CHECK(table["table"] == "sweep");
  CHECK(table["command"].get<std::string>().ends_with(" --seeds 1,2"));
  const Json& row = row_of(table, "3e-3-long");
  CHECK(row["config"] == "configs/copy/linear.toml");
  CHECK(row["line"] == "3e-3");
  CHECK(row["cells"]["nats_per_dim"]["values"].size() == 2);
  CHECK(row["cells"]["accuracy"]["mean"] >= 0);
  CHECK(table["figures"][0]["series"].size() == 4);
  const std::string config = read_file(dir / "out/runs/3e-3-long-seed-2/config.toml");
  CHECK(contains(config, "lr = 0.003"));
  CHECK(contains(config, "max_length = 64"));
  CHECK(contains(config, "layers = 1"));  // --set overrides the settings of the file
  CHECK(run({"--rows", "1e-3-short"})["rows"] == table["rows"]);
  const auto verified = parse_json_output(
      run_program(verify_command(file, dir / "out/table.json", dir / "again", {"--rows", "1e-3-long"})));
  CHECK(verified["agree"] == 2);  // the first seed of two is repeated
  CHECK(verified["differ"] == 0);

  write_file(dir / "wrong.toml", std::string("title = \"A table\"\nrow = []\n"));
  const auto wrong =
      run_program({"reproduce", (dir / "wrong.toml").string(), "--out", (dir / "wrong").string()});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "wrong.toml: table: unknown key \"row\"; did you mean \"rows\"?"));
  CHECK(run_program({"reproduce", (dir / "none.toml").string()}).code == 2);
}

TEST_CASE("reproduce mnist-speed measures models without training, and compares them with the paper") {
  const TempDir dir;
  const auto ran = run_program(reproduce_command("mnist-speed", dir / "out", {"model.layers=1"},
                                                 {"--rows", "lsh-1,linear,gated-delta"}));
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const auto table = parse_json_output(ran);
  CHECK(mean(table, "lsh-1", "recompute_cpu_seconds_ratio") ==
        doctest::Approx(46 / mean(table, "lsh-1", "recompute_cpu_seconds")));
  CHECK(mean(table, "linear", "recurrent_images_per_second_bfloat16") > 0);
  CHECK(row_of(table, "gated-delta")["cells"]["recurrent_cpu_seconds_ratio"]["text"] == "–");
  CHECK(!row_of(table, "lsh-1")["cells"].contains("recurrent_cpu_seconds"));
  CHECK(check_verification("mnist-speed", dir / "out")["speeds_not_compared"] > 0);
}

TEST_CASE("reproduce reformer-complexity and reformer-speed fit exponents") {
  const TempDir dir;
  const auto run = [&](const std::string& name, const Words& sets, const Words& more) {
    const auto ran = run_program(reproduce_command(name, dir / name, sets, more));
    CAPTURE(ran.err);
    CHECK(ran.code == 0);
    return parse_json_output(ran);
  };
  const auto complexity =
      run("reformer-complexity",
          {"measure.longest=256", "measure.deepest=8", "measure.widest=512", "measure.repeats=1"},
          {"--rows", "transformer,reformer,attention-lsh"});
  CHECK(std::isfinite(mean(complexity, "attention-lsh", "time_attention")));
  CHECK(row_of(complexity, "attention-lsh")["cells"]["memory_attention"]["paper"] == 1);
  CHECK(!row_of(complexity, "attention-lsh")["cells"].contains("memory_depth"));
  CHECK(complexity["reference"] == "formula");
  // An additional Reformer layer needs memory only for the gradients of its weights, which are five matrices
  // (width, width) and some vectors.
  const double matrices = 5.0 * 64 * 64 * sizeof(float) / (1 << 20);
  const double added = last_slope(complexity, "memory_depth", "reformer");
  CHECK(added >= matrices);
  CHECK(added < 1.1 * matrices);
  CHECK(last_slope(complexity, "memory_depth", "transformer") > 1.5 * added);
  CHECK(mean(complexity, "transformer", "memory_feedforward") > 0);
  CHECK(row_of(complexity, "reformer")["cells"]["memory_depth"]["paper"] == 0);
  const auto speed =
      run("reformer-speed", {"measure.shortest=128", "measure.tokens=256", "measure.repeats=1"},
          {"--rows", "full,lsh-1"});
  CHECK(mean(speed, "lsh-1", "seconds_256") > 0);
  CHECK(check_verification("reformer-complexity", dir / "reformer-complexity",
                           {"--rows", "reformer"})["agree"] > 0);
  CHECK(check_verification("reformer-speed", dir / "reformer-speed")["speeds_not_compared"] > 0);
}

TEST_CASE("reproduce survey-table trains classifiers and measures time and memory by length") {
  const TempDir dir;
  const auto ran = run_program(reproduce_command("survey-table", dir / "out",
                                                 {"train.steps=2", "data.batch_size=2", "data.eval_limit=4",
                                                  "measure.shortest=128", "measure.longest=256"},
                                                 {"--rows", "linear,linformer,linear-pretrained"}));
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const auto table = parse_json_output(ran);
  CHECK(mean(table, "linear-pretrained", "pretrained_accuracy_percent") >= 0);
  CHECK(contains(read_file(dir / "out/logs/linear-pretrained-seed-1.log"), "linear-pretrained-pretraining"));
  for (const std::string row : {"linear", "linformer"}) {
    CAPTURE(row);
    CHECK(row_of(table, row)["cells"]["accuracy_percent"].contains("paper"));
    CHECK(std::isfinite(mean(table, row, "milliseconds_exponent")));
  }
  CHECK(row_of(table, "linear")["cells"]["class"]["text"] == "KR");
  CHECK(row_of(table, "linear")["cells"]["decoding"]["text"] == "yes, constant state");
  CHECK(row_of(table, "linformer")["cells"]["decoding"]["text"] == "no");
  CHECK(row_of(table, "linformer")["cells"]["complexity_holds"]["text"] == "too few lengths");
  CHECK(mean(table, "linear", "parameters_added") == 0);
  // Each of the two layers has two projections of 128 positions to 32 rows.
  CHECK(mean(table, "linformer", "parameters_added") == 2 * 2 * 128 * 32);
  // An autoregressive model needs a causal form, which Linformer does not have.
  std::map<std::string, std::string> lines;
  for (const auto& row : table["rows"]) lines[row["name"]] = row["line"];
  CHECK(lines.at("linear-mnist") == "linear");
  CHECK(lines.at("linformer-cifar10") == "linformer");
  CHECK(lines.count("linformer-mnist") == 0);
  CHECK(lines.at("big-bird-cifar10") == "big-bird");
  CHECK(lines.count("big-bird") == 0);
  CHECK(table["printed"]["rows"].size() == 22);
  CHECK(contains(read_file(dir / "out/table.csv"), "linear,decoding,,\"yes, constant state\""));
  CHECK(check_verification("survey-table", dir / "out")["agree"] > 0);
}

TEST_CASE("reproduce recall-table trains each kind on three tasks and shows it in one line") {
  const TempDir dir;
  const auto ran = run_program(reproduce_command(
      "recall-table", dir / "out", {"train.steps=2", "data.batch_size=2", "data.eval_limit=4"},
      {"--rows", "linear-mqar,linear-parity,linear-palindrome,lsh-parity"}));
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const auto table = parse_json_output(ran);
  for (const std::string task : {"mqar", "parity", "palindrome"}) {
    CAPTURE(task);
    CHECK(mean(table, "linear-" + task, task + "_accuracy_percent") >= 0);
    CHECK(mean(table, "linear-" + task, task + "_bits_per_token") > 0);
    CHECK(row_of(table, "linear-" + task)["line"] == "linear");
  }
  CHECK(mean(table, "lsh-parity", "parity_accuracy_percent") >= 0);
  CHECK(mean(table, "linear-mqar", "training_seconds") >= 0);
  CHECK(check_verification("recall-table", dir / "out")["agree"] == 4 * 2);
}
