// Tests of the benchmarks of tapeformer_bench: each runs at a small size and reports plausible figures.
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>

#include "data/files/text_lines.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/speech_run.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

TEST_CASE("bench sgemm measures the products of a training step") {
  const auto figures = parse_json_output(run_program(
      {"bench", "sgemm", "--layers", "1", "--length", "64", "--batch", "1", "--repeats", "2", "--json"}));
  CHECK(figures["gflops"] > 0);
  CHECK(figures["copy_gigabytes_per_second"] > 0);
  // Each of the six kinds of linear layers has a forward product and two products for its gradients.
  REQUIRE(figures["products"].size() == 18);
  double flops = 0;
  for (const auto& row : figures["products"])
    flops += 2.0 * row["m"].get<double>() * row["n"].get<double>() * row["k"].get<double>() *
             row["count"].get<double>();
  // A training step needs 6 operations per weight and token, without biases and embeddings.
  const double weights = 4 * 256 * 256 + 2 * 256 * 1024 + 256 * 30;
  CHECK(flops == 6 * weights * 64);
}

TEST_CASE("bench reversible reports the memory of an added layer for each way to store activations") {
  const auto figures = parse_json_output(
      run_program({"bench",     "reversible", "--deepest", "4", "--heads",       "1",  "--head-dim",   "8",
                   "--length",  "64",         "--batch",   "2", "--feedforward", "64", "--vocabulary", "512",
                   "--repeats", "1",          "--threads", "1", "--json"}));
  REQUIRE(figures["depths"].size() == 6);
  CHECK(figures["reversible_added_layer_bytes"] == 0);
  CHECK(figures["recompute_added_layer_bytes"] >= 2 * 64 * 8 * 4);
  CHECK(figures["stored_added_layer_bytes"] > figures["recompute_added_layer_bytes"]);
  REQUIRE(figures["chunks"].size() == 9);
  for (const auto& row : figures["chunks"])
    if (row["chunks"] == 16) CHECK(row["share_of_peak"] < 0.9);
  CHECK(run_program({"bench", "reversible", "--attention", "linaer"}).code == 2);
  CHECK(run_program({"bench", "reversible", "--clock", "sun"}).code == 2);
}

TEST_CASE("bench filterbank reports its speed relative to real time") {
  const auto figures =
      parse_json_output(run_program({"bench", "filterbank", "--seconds", "2", "--repeats", "1", "--json"}));
  CHECK(figures["frames"] == 198);
  CHECK(figures["times_real_time"] > 1);
  CHECK(run_program({"bench", "filterbank", "--bins", "500"}).code == 2);
}

TEST_CASE("bench ctc reports the time of the loss and of its gradient") {
  const auto figures =
      parse_json_output(run_program({"bench", "ctc", "--batch", "2", "--frames", "50", "--classes", "5",
                                     "--labels", "9", "--repeats", "2", "--json"}));
  CHECK(figures["milliseconds"] > 0);
  CHECK(figures["milliseconds_forward"] > 0);
  // The logits are random, so the labels are improbable.
  CHECK(figures["loss"] > 1);
  for (const char* const labels : {"6", "9223372036854775807"})
    CHECK(run_program({"bench", "ctc", "--frames", "10", "--labels", labels}).code == 2);
}

TEST_CASE("bench stream reports error rates of streams and of single recordings") {
  const TempDir dir;
  const std::string run = trained_on_tones(dir.path(), 60);
  const auto report = parse_json_output(
      run_program({"bench", "stream", "--run", run, "--seconds", "3,20", "--pause", "0.5", "--json"}));
  CHECK(report["recordings"] == 6);
  REQUIRE(report["streams"].size() == 2);
  for (const auto& row : report["streams"]) {
    CHECK(row["per_one_by_one"] < 10);
    CHECK(row["per_stream"] < row["per_one_by_one"].get<double>() + 5);
    CHECK(row["phones"] > 0);
  }
  CHECK(report["streams"][0]["seconds"] >= 3);
  CHECK(report["streams"][1]["seconds"] >= 20);
  CHECK(report["streams"][1]["seconds"] < 24);
  const auto none = run_program({"bench", "stream"});
  CHECK(none.code == 2);
  CHECK(contains(none.err, "bench stream needs --run"));
  CHECK(run_program({"bench", "stream", "--run", (dir / "missing").string()}).code != 0);
}

TEST_CASE("bench stream runs the commands of wav.scp with --allow-commands") {
  const TempDir dir;
  const std::string run = trained_on_tones(dir.path(), 1);
  std::istringstream list(read_file(dir / "corpus/test/wav.scp"));
  std::string commands;
  for (std::string line; std::getline(list, line);) {
    const size_t space = line.find(' ');
    commands += line.substr(0, space) + " cat " + (dir / "corpus/test").string() + "/" +
                line.substr(space + 1) + " |\n";
  }
  const auto figures = [&](bool allowed) {
    std::vector<std::string> words = {"bench", "stream", "--run", run, "--seconds", "3", "--json"};
    if (allowed) words.emplace_back("--allow-commands");
    return run_program(words);
  };
  const auto files = parse_json_output(figures(false));
  write_file(dir / "corpus/test/wav.scp", commands);
  const auto refused = figures(false);
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "commands are run only with --allow-commands"));
  const auto piped = parse_json_output(figures(true));
  CHECK(piped["recordings"] == 6);
  CHECK(piped["streams"][0]["per_stream"] == files["streams"][0]["per_stream"]);
  const auto wrong = run_program({"bench", "stream", "--run", run, "--seconds", "x"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, " --seconds: expected"));
}

TEST_CASE("if a model rejects a setting, a benchmark names the option that sets it") {
  const auto error_of = [](const std::vector<std::string>& words) { return run_program(words).err; };
  CHECK(contains(error_of({"bench", "reversible", "--attention", "lsh", "--length", "8"}), "--attention: "));
  CHECK(contains(error_of({"bench", "lsh-attention", "--buckets", "7"}),
                 "--buckets: expected an even number, got 7"));
}
