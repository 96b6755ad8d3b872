// Tests of `tapeformer bench`: each benchmark runs at a small size and reports plausible figures.
#include <doctest/doctest.h>

#include "core/cuda/devices.h"
#include "core/device.h"
#include "tests/train/cli/program.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the name of the CUDA device for --device, or "" if there is none.
std::string cuda_name() {
  if constexpr (kHasCuda) {
    if (cuda::is_emulated()) return "cuda-emulated";
    if (cuda::find_device_problem(0).empty()) return "cuda";
  }
  return "";
}

}  // namespace

TEST_CASE("bench list prints the names that bench accepts") {
  const auto list = parse_json_output(run_program({"bench", "list", "--json"}))["benchmarks"];
  CHECK(!list.empty());
  for (const auto& entry : list) {
    const auto help = run_program({"bench", entry["name"], "--help"});
    CHECK(help.code == 0);
    CHECK(contains(help.out, "tapeformer bench " + entry["name"].get<std::string>()));
  }
}

// Checks that the roofline figures of a benchmark that took `seconds` are consistent. The number of
// operations must be about matrix_gflops multiplied by seconds_at_matrix_rate. The number of bytes must be
// about the memory bandwidth multiplied by seconds_at_memory_rate.
void check_roofline(const nlohmann::json& figures, double seconds) {
  const double matrix = figures["seconds_at_matrix_rate"], memory = figures["seconds_at_memory_rate"];
  CHECK(figures["gflops"].get<double>() * seconds ==
        doctest::Approx(figures["matrix_gflops"].get<double>() * matrix).epsilon(0.5));
  CHECK(figures["gigabytes"].get<double>() ==
        doctest::Approx(figures["memory_gigabytes_per_second"].get<double>() * memory).epsilon(0.5));
  CHECK(matrix > 0);
  CHECK(memory > 0);
  const bool by_matrix = figures["share_of_matrix_rate"] >= figures["share_of_memory_rate"];
  CHECK(figures["nearer_limit"] == (by_matrix ? "matrix rate" : "memory bandwidth"));
}

TEST_CASE("bench small-op reports the time of an op with and without recording") {
  const auto figures =
      parse_json_output(run_program({"bench", "small-op", "--ops", "100", "--repeats", "3", "--json"}));
  CHECK(figures["benchmark"] == "small-op");
  CHECK(figures["elements"] == 16);
  CHECK(figures["microseconds_unrecorded"] > 0);
  CHECK(figures["microseconds_per_op"] > figures["microseconds_unrecorded"]);
}

TEST_CASE("bench train-step reports the work of a step, also in bfloat16 and for a config") {
  const auto figures =
      parse_json_output(run_program({"bench", "train-step", "--layers", "1", "--heads", "2", "--length", "32",
                                     "--batch", "2", "--repeats", "2", "--json", "--threads", "1"}));
  CHECK(figures["threads"] == 1);
  CHECK(figures["seconds_per_step"] > 0);
  CHECK(figures["precision"] == "float32");
  check_roofline(figures, figures["seconds_per_step"]);
  // The linear layers access `weights` and `activations` in the forward pass and for each of the two
  // gradients, 3 times in total. Attention and the residual stream each access 12 tensors (tokens, width).
  // The optimizer accesses 7 numbers per parameter.
  const double tokens = 64, width = 64, hidden = 1024, outputs = 30;
  const double weights = 4 * width * width + 2 * width * hidden + width * outputs;
  const double activations = tokens * (4 * 2 * width + 2 * (width + hidden) + width + outputs);
  const double parameters = figures["parameters"];
  CHECK(figures["gigabytes"].get<double>() ==
        doctest::Approx(1e-9 * 4 *
                        (3 * (weights + activations) + (12 + 12) * tokens * width + 7 * parameters)));
  CHECK(figures["peak_bytes"] > figures["parameters"]);
  CHECK(figures["peak_resident_bytes"] > figures["peak_bytes"]);

  const auto halves = parse_json_output(run_program(
      {"bench", "train-step", "--layers", "1", "--heads", "2", "--length", "32", "--batch", "2", "--repeats",
       "2", "--json", "--threads", "1", "--device", "cpu", "--precision", "bfloat16"}));
  CHECK(halves["precision"] == "bfloat16");
  check_roofline(halves, halves["seconds_per_step"]);
  CHECK(halves["gigabytes"] < 0.8 * figures["gigabytes"].get<double>());
  // One CPU thread cannot reach 100 TFLOP/s. Such a rate would mean that the benchmark did not compute the
  // matrix products.
  CHECK(halves["matrix_gflops"] < 1e5);

  // The work of LSH attention is linear in the length. The work of softmax attention would be quadratic.
  const auto lsh_work = [](const char* length) {
    return parse_json_output(run_program(
        {"bench", "train-step", "--layers", "1", "--heads", "1", "--attention", "lsh", "--length", length,
         "--batch", "1", "--repeats", "1", "--json", "--dropout", "0"}))["gflop_of_attention"]
        .get<double>();
  };
  CHECK(lsh_work("512") == doctest::Approx(2 * lsh_work("256")));

  const auto of_config = parse_json_output(
      run_program({"bench", "train-step", "--config", SOURCE_DIR "/configs/quickstart.toml", "--set",
                   "model.layers=1", "--set", "data.batch_size=1", "--repeats", "1", "--json"}));
  CHECK(of_config["batch"] == 1);
  CHECK(of_config["precision"] == "float32");
  CHECK(run_program({"bench", "train-step", "--set", "model.layers=1"}).code == 2);
  CHECK(run_program({"bench", "train-step", "--precision", "float16"}).code == 2);
  CHECK(run_program({"bench", "train-step", "--attention", "linaer"}).code == 2);
}

TEST_CASE("bench attention reports the time, the memory and the work for each length") {
  const auto figures = parse_json_output(run_program({"bench", "attention", "--shortest", "32", "--longest",
                                                      "64", "--heads", "1", "--repeats", "1", "--json"}));
  REQUIRE(figures["lengths"].size() >= 2);
  for (const auto& row : figures["lengths"]) {
    CHECK(row["seconds"] > 0);
    // The memory includes at least q, k, v, the result and their gradients: eight tensors of 64 floats per
    // token.
    CHECK(row["bytes_per_token"] >= 8 * 64 * 4);
    check_roofline(row, row["seconds"]);
  }
  const auto linear = parse_json_output(run_program({"bench", "attention", "--kind", "linear", "--shortest",
                                                     "64", "--longest", "64", "--repeats", "1", "--json"}));
  CHECK(linear["lengths"].size() == 1);
  // Linear attention has a state of 64 × 64 per head. Each token needs two multiply-adds per element of the
  // state, and the gradients need four.
  const auto& row = linear["lengths"][0];
  CHECK(row["gflops"].get<double>() * row["seconds"].get<double>() ==
        doctest::Approx(1e-9 * 3 * 2 * 2 * 64 * 64 * 64 * 8));
  CHECK(row["gigabytes"].get<double>() == doctest::Approx(1e-9 * 12 * 64 * 64 * 8 * 4));
  CHECK(run_program({"bench", "attention", "--dtype", "float32", "--precision", "bfloat16"}).code == 2);
  const auto unknown = run_program({"bench", "attention", "--kind", "linaer"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "--kind: unknown attention kind \"linaer\""));
  const auto not_causal =
      parse_json_output(run_program({"bench", "attention", "--kind", "linformer", "--shortest", "256",
                                     "--longest", "256", "--heads", "1", "--repeats", "1", "--json"}));
  CHECK(not_causal["lengths"].size() == 1);
  const auto unmasked =
      parse_json_output(run_program({"bench", "attention", "--kind", "linear", "--mask", "none", "--shortest",
                                     "64", "--longest", "64", "--heads", "1", "--repeats", "1", "--json"}));
  CHECK(unmasked["lengths"][0]["seconds"] > 0);
  // An attention kind reports its number of operations only for causal attention.
  CHECK(!unmasked["lengths"][0].contains("gflops"));
  CHECK(run_program({"bench", "attention", "--mask", "full"}).code == 2);
  std::vector<std::string> devices{"cpu"};
  if constexpr (kHasCuda)
    if (cuda::is_emulated()) devices.push_back("cuda-emulated");
  for (const std::string& device : devices) {
    CAPTURE(device);
    const auto halves = parse_json_output(run_program(
        {"bench", "attention", "--kind", "linear", "--shortest", "1024", "--longest", "1024", "--heads", "1",
         "--repeats", "1", "--patience", "100", "--dtype", "bfloat16", "--device", device, "--json"}));
    CHECK(halves["dtype"] == "bfloat16");
    // q, k, v, the result and their gradients are eight bfloat16 tensors with 64 elements per token. The
    // float32 states of linear attention are smaller.
    CHECK(halves["lengths"][0]["bytes_per_token"] >= 8 * 64 * 2);
    CHECK(halves["lengths"][0]["bytes_per_token"] < 8 * 64 * 4);
    if (device != "cpu")
      CHECK(halves["lengths"][0]["gigabytes"].get<double>() == doctest::Approx(1e-9 * 12 * 64 * 1024 * 2));
  }
}

TEST_CASE("bench generate allocates no memory per token") {
  const auto figures = parse_json_output(run_program(
      {"bench", "generate", "--layers", "1", "--batch", "3", "--tokens", "8", "--repeats", "2", "--json"}));
  REQUIRE(figures["cases"].size() == 2);
  CHECK(figures["cases"][0]["batch"] == 1);
  CHECK(figures["cases"][0]["threads"] == 1);
  CHECK(figures["cases"][1]["batch"] == 3);
  for (const auto& row : figures["cases"]) {
    CHECK(row["milliseconds_per_token"] > 0);
    CHECK(row["allocations_per_token"] == 0);
    check_roofline(row, row["milliseconds_per_token"].get<double>() / 1e3);
    // A step reads all weights once, and reads and writes a state of constant size.
    CHECK(row["gigabytes"].get<double>() == doctest::Approx(1e-9 * (4 * figures["parameters"].get<double>() +
                                                                    2 * row["state_bytes"].get<double>())));
  }
  CHECK(run_program({"bench", "generate", "--tokens", "784"}).code == 2);
}

TEST_CASE("bench generate measures recomputation at some positions, whose mean is near that of all") {
  const auto measure = [](const std::string& positions) {
    return run_program({"bench", "generate", "--layers", "1", "--heads", "2", "--attention", "softmax",
                        "--mode", "recompute", "--batch", "1", "--tokens", "200", "--positions", positions,
                        "--repeats", "3", "--json"});
  };
  const double all = parse_json_output(measure("0"))["cases"][0]["milliseconds_per_token"],
               some = parse_json_output(measure("40"))["cases"][0]["milliseconds_per_token"];
  // Other programs disturb the times. A sum instead of a mean would be 40 times as much.
  CHECK(some > all / 8);
  CHECK(some < 8 * all);
  const auto refused = measure("201");
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "--positions 201"));
  CHECK(contains(run_program({"bench", "generate", "--positions", "3"}).err, "only recomputation"));
}

TEST_CASE("bench generate measures tokens after a context that the parallel form has read") {
  const auto run = [](const std::string& mode, const std::string& context) {
    return run_program({"bench", "generate", "--layers", "1", "--length", "64", "--batch", "1", "--tokens",
                        "4", "--repeats", "1", "--mode", mode, "--context", context, "--json"});
  };
  const auto report = parse_json_output(run("recurrent", "56"));
  CHECK(report["cases"][1]["context"] == 56);
  CHECK(report["cases"][1]["milliseconds_per_token"].get<double>() > 0);
  CHECK(contains(run("recurrent", "57").err, "more than the 64 positions of the model"));
  CHECK(contains(run("recompute", "8").err, "only the recurrent form reads a context"));
}

TEST_CASE("bench lstm reports the time and the work of a stack of layers") {
  const auto figures =
      parse_json_output(run_program({"bench", "lstm", "--batch", "2", "--frames", "9", "--hidden", "6",
                                     "--layers", "2", "--repeats", "2", "--json"}));
  // The two layers have two directions each, and inputs of 40 and 12 features.
  CHECK(figures["parameters"] == 2 * (24 * (40 + 6 + 2) + 24 * (12 + 6 + 2)));
  CHECK(figures["milliseconds"] > 0);
  CHECK(figures["gflops_forward"] > 0);
  check_roofline(figures, figures["milliseconds"].get<double>() / 1e3);
  // A forward and a backward pass need 6 operations per weight and frame.
  const double weights = 2 * 24 * (40 + 6) + 2 * 24 * (12 + 6);
  CHECK(figures["gflops"].get<double>() * figures["milliseconds"].get<double>() ==
        doctest::Approx(1e-6 * 6 * weights * 2 * 9));
}

TEST_CASE("if a model rejects a setting, bench names the option or the config key that sets it") {
  const auto error_of = [](std::vector<std::string> words) {
    words.insert(words.begin(), "bench");
    const auto result = run_program(words);
    CHECK(result.code == 2);
    return result.err;
  };
  const std::string chunk = "expected at most the length of the sequences, 8";
  CHECK(contains(error_of({"train-step", "--attention", "lsh", "--length", "8"}),
                 "--attention: chunk_length: " + chunk));
  CHECK(contains(error_of({"generate", "--heads", "1", "--head-dim", "1", "--tokens", "1"}),
                 "--head-dim: the width, 1, is too small"));
  const std::string config = SOURCE_DIR "/configs/quickstart.toml";
  const std::string error = error_of({"train-step", "--config", config, "--set", "model.attention=lsh",
                                      "--set", "attention.chunk_length=4096"});
  CHECK(contains(error, "attention.chunk_length: expected at most the length of the sequences"));
}

TEST_CASE("a command that needs too much memory names the config keys to change") {
  const auto result = run_program({"bench", "attention", "--shortest", "16777216", "--longest", "16777216",
                                   "--batch", "4096", "--heads", "1024", "--head-dim", "1024"});
  CHECK(result.code == 1);
  CHECK(contains(result.err, "out of memory: asked for"));
  CHECK(contains(result.err, "; lower data.batch_size"));
}

TEST_CASE("cuda: benchmarks of models measure the device in --device, and other benchmarks refuse it") {
  const std::string device = cuda_name();
  if (device.empty()) return;
  const std::vector<std::vector<std::string>> commands = {
      {"train-step", "--layers", "1", "--heads", "2", "--length", "32", "--batch", "2", "--repeats", "1"},
      {"attention", "--kind", "linear", "--shortest", "64", "--longest", "64", "--heads", "1", "--repeats",
       "1"},
      {"lstm", "--batch", "2", "--frames", "5", "--hidden", "4", "--layers", "1", "--repeats", "1"}};
  for (std::vector<std::string> words : commands) {
    CAPTURE(words.front());
    words.insert(words.begin(), "bench");
    words.insert(words.end(), {"--json", "--device", device});
    const auto figures = parse_json_output(run_program(words));
    CHECK(figures["device"] == "cuda:0");
    if (words[1] == "attention") continue;  // another test covers bfloat16 in "bench attention"
    // bfloat16 tensors have half as many bytes, but the weights and the residual stream stay float32.
    words.insert(words.end(), {"--precision", "bfloat16"});
    const auto halves = parse_json_output(run_program(words));
    CHECK(halves["precision"] == "bfloat16");
    CHECK(halves["gigabytes"] < 0.8 * figures["gigabytes"].get<double>());
    CHECK(halves["gigabytes"] >= 0.5 * figures["gigabytes"].get<double>());
  }
  const auto drawn =
      parse_json_output(run_program({"bench", "generate", "--layers", "1", "--heads", "1", "--batch", "2",
                                     "--tokens", "4", "--repeats", "1", "--json", "--device", device}));
  REQUIRE(drawn["cases"].size() == 2);
  for (const auto& row : drawn["cases"]) {
    CHECK(row["device"] == "cuda:0");
    CHECK(row["milliseconds_per_token"] > 0);
    CHECK(row["allocations_per_token"] == 0);
  }
  const auto refused = run_program({"bench", "small-op", "--device", device});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "measures the CPU"));
}

TEST_CASE("benchmarks refuse options that a config replaces, and models of other types") {
  const auto error = [](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"bench"};
    all.insert(all.end(), words.begin(), words.end());
    const auto result = run_program(all);
    CHECK(result.code == 2);
    return result.err;
  };
  const std::string config = std::string(SOURCE_DIR) + "/configs/quickstart.toml";
  for (const std::string benchmark : {"train-step", "attention"}) {
    CAPTURE(benchmark);
    CHECK(contains(error({benchmark, "--config", config, "--heads", "2"}),
                   "--heads has an effect only if config is empty"));
  }
  CHECK(contains(error({"train-step", "--config", SOURCE_DIR "/configs/quickstart-speech.toml"}),
                 "expected a model of images or sequences"));
  for (const std::string benchmark : {"attention", "attention-pattern"})
    CHECK(contains(error({benchmark, "--config", SOURCE_DIR "/configs/speech/an4-bilstm.toml"}),
                   "model.attention belongs to Transformers, and model.encoder is \"lstm\""));
  CHECK(contains(error({"train-step", "--mixtures", "65"}), "--mixtures: expected an integer"));
}
