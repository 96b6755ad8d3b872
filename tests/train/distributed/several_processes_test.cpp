// Tests that training, evaluation and sampling in several processes on one machine give the results of one
// process.
#include <cmath>
#include <map>
#include <sstream>

#include "tests/data/support.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/cli/translation_run.h"
#include "tests/train/distributed/mpirun.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/metrics.h"
#include "train/tasks/registry/make_task.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Maps "CASE DTYPE" to the losses of all steps, followed by one sum for each state tensor of the model.
using Losses = std::map<std::string, std::vector<double>>;

Losses losses_of(Job& job) {
  const ProgramResult result = job.result();
  CAPTURE(result.err);
  CHECK(result.code == 0);
  Losses losses;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, dtype;
    words >> name >> dtype;
    for (double loss = 0; words >> loss;) losses[name + " " + dtype].push_back(loss);
  }
  CHECK(losses.size() == 24);
  return losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return largest;
}

std::string config_file(const TempDir& dir, int64_t steps, int64_t checkpoint_every = 0) {
  Config config = make_tiny_sequence_config();
  config.data.batch_size = 8;
  config.data.eval_limit = 20;
  config.model.options.set("dropout", 0.1);
  config.train.steps = steps;
  config.train.checkpoint_every = checkpoint_every;
  config.train.log_every = 1;
  write_file(dir / "config.toml", to_toml(config));
  return (dir / "config.toml").string();
}

std::vector<std::string> train_words(const TempDir& dir, const std::string& config, const std::string& run) {
  return {PROGRAM, "train", config, "--run-dir", (dir / run).string(), "--quiet"};
}

double largest_difference(const CheckpointContents& a, const CheckpointContents& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a.model_tensors) {
    const auto expected = tensor.to_vector(), found = b.model_tensors.at(name).to_vector();
    for (size_t i = 0; i < expected.size(); ++i)
      largest = std::max(largest, std::abs(expected[i] - found[i]));
  }
  return largest;
}

// Checks that a run of `total` steps can be interrupted after `saved` steps with two processes, and resumed
// with 1, 2 or 4 processes. The final weights must be close to the weights of an uninterrupted run with one
// process. If the run is resumed with two processes, the final weights must be bitwise equal to the weights
// of an uninterrupted run with two processes.
void check_resumes(const TempDir& dir, const std::string& config, int64_t saved, int64_t total) {
  REQUIRE(Job(1, train_words(dir, config, "whole")).wait() == 0);
  REQUIRE(Job(2, train_words(dir, config, "pair")).wait() == 0);
  const CheckpointContents whole = read_checkpoint_contents(dir / "whole"),
                           pair = read_checkpoint_contents(dir / "pair");
  for (const int processes : {1, 2, 4}) {
    CAPTURE(processes);
    const std::string run = "resumed-" + std::to_string(processes);
    auto words = train_words(dir, config, run);
    words.insert(words.end(), {"--set", "train.steps=" + std::to_string(saved)});
    REQUIRE(Job(2, words).wait() == 0);
    words.back() = "train.steps=" + std::to_string(total);
    words.emplace_back("--resume");
    const ProgramResult resumed = Job(processes, words).result();
    CAPTURE(resumed.err);
    REQUIRE(resumed.code == 0);
    const CheckpointContents contents = read_checkpoint_contents(dir / run);
    CHECK(contents.state.step == total);
    CHECK(largest_difference(whole, contents) < 1e-5);
    if (processes == 2) CHECK(largest_difference(pair, contents) == 0);
  }
}

}  // namespace

TEST_CASE("1, 2 and 4 processes have the same losses over 20 steps, and the same centroids after them") {
  if (is_mpirun_missing()) return;
  const TempDir data;
  write_tiny_an4(data.path(), 18, 3);
  write_tiny_mnist(data / "mnist", 60, 4, 28, 28);
  const std::vector<std::string> words = {LOSSES_PROGRAM, data.path().string()};
  Job first(1, words), second(2, words), fourth(4, words);  // all jobs run at the same time
  const Losses one = losses_of(first);
  for (Job* const job : {&second, &fourth}) {
    const int processes = job == &second ? 2 : 4;
    const Losses several = losses_of(*job);
    for (const auto& [name_bound, losses] : one) {
      const auto& name = name_bound;  // clang 14 cannot capture structured bindings
      CAPTURE(name);
      REQUIRE(several.contains(name));
      CHECK((losses.size() > 20) == name.starts_with("copy-routing"));
      const double difference = largest_difference(losses, several.at(name));
      MESSAGE(processes << " processes, " << name << ": largest relative difference " << difference);
      CHECK(difference < (name.ends_with("float64") ? 1e-10 : 1e-5));
    }
  }
}

TEST_CASE(
    "a checkpoint of 2 processes resumes with 1 and with 4, and evaluations do not depend on the number of "
    "processes") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  check_resumes(dir, config_file(dir, 20, 10), 10, 20);
  const std::vector<std::string> eval = {PROGRAM,  "eval",    (dir / "whole").string(),
                                         "--json", "--limit", "21"};
  const auto alone = parse_json_output(Job(1, eval).result()),
             shared = parse_json_output(Job(3, eval).result());
  CHECK(alone["nats_per_dim"] == shared["nats_per_dim"]);  // equal bit for bit
  CHECK(alone["accuracy"] == shared["accuracy"]);
  CHECK(shared["examples"] == 21);
}

TEST_CASE("trainings of adapters and of a part of the tensors do not depend on the number of processes") {
  if (is_mpirun_missing()) return;
  for (const bool has_adapters : {true, false}) {
    CAPTURE(has_adapters);
    const TempDir dir;
    const std::string base = config_file(dir, 2);
    REQUIRE(Job(1, train_words(dir, base, "base")).wait() == 0);
    Config config = load_config(base, {"model.init=" + (dir / "base").string(), "train.steps=6"});
    if (has_adapters)
      config.lora = {.rank = 2, .targets = {"layers.*"}, .dropout = 0.2};
    else
      config.train.freeze = {"layers.*.attention.*", "value_embedding.*"};
    write_file(dir / "config.toml", to_toml(config));
    check_resumes(dir, base, 3, 6);
  }
}

TEST_CASE("a run on speech resumes within an epoch with other numbers of processes") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  write_tiny_an4(dir / "corpus", 18, 3);
  Config config = make_tiny_speech_config(dir / "corpus", "transformer");
  config.data.options.set("spec_augment", true);
  config.data.options.set("time_width", 4);
  config.train.epochs = 0;
  config.train.eval_epochs = 0;
  config.train.eval_every = 15;
  config.train.steps = 15;
  config.optimizer.lr = 1e-3;
  write_file(dir / "config.toml", to_toml(config));
  const auto task = make_task(config, {});
  constexpr int64_t kSaved = 8;  // in the middle of an epoch
  const int64_t epochs = task->batches().count_complete_epochs(kSaved);
  REQUIRE(epochs > 0);
  REQUIRE(task->batches().count_complete_epochs(kSaved - 1) == epochs);
  check_resumes(dir, (dir / "config.toml").string(), kSaved, 15);
}

TEST_CASE("a translation model trains, resumes and is scored with other numbers of processes") {
  if (is_mpirun_missing()) return;
  TranslationFiles files;
  files.config.model.options.set("dropout", 0.1);
  files.config.train.steps = 12;
  files.config.train.checkpoint_every = 6;
  write_file(files.dir / "config.toml", to_toml(files.config));
  check_resumes(files.dir, (files.dir / "config.toml").string(), 6, 12);
  const std::vector<std::string> eval = {PROGRAM, "eval", (files.dir / "whole").string(), "--json"};
  const auto alone = parse_json_output(Job(1, eval).result()),
             shared = parse_json_output(Job(3, eval).result());
  for (const char* score : {"nats_per_token", "bleu", "chrf2"}) CHECK(alone[score] == shared[score]);
  CHECK(shared["examples"] == 20);
}

TEST_CASE("several processes draw the same sequences as one process") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  write_run(dir / "run", make_tiny_sequence_config());
  const std::vector<std::string> words = {PROGRAM,  "generate", (dir / "run").string(), "--count", "5",
                                          "--json", "--quiet"};
  const auto alone = parse_json_output(Job(1, words).result()),
             shared = parse_json_output(Job(3, words).result());
  CHECK(alone["sequences"].size() == 5);
  CHECK(alone["sequences"] == shared["sequences"]);
}

TEST_CASE("several processes draw images in batches of equal size, and the report contains the size") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  write_run(dir / "run", make_tiny_image_config());
  const auto generate = [&](int processes, const std::string& file) {
    return parse_json_output(
        Job(processes, {PROGRAM, "generate", (dir / "run").string(), "--count", "5", "--json", "--quiet",
                        "--data-dir", dir.path().string(), "--out", (dir / file).string()})
            .result());
  };
  const auto alone = generate(1, "alone.png"), shared = generate(2, "shared.png");
  CHECK(alone["batch"] == 5);
  CHECK(shared["batch"] == 3);
  CHECK(shared["processes"] == 2);
  CHECK(read_file(dir / "alone.png") == read_file(dir / "shared.png"));
}

TEST_CASE("a host with more threads than processors is named in a warning") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  auto words = train_words(dir, config_file(dir, 1), "run");
  words.insert(words.end(), {"--threads", "64"});
  const ProgramResult result = Job(2, words).result();
  CAPTURE(result.err);
  CHECK(result.code == 0);
  const std::string warning = ": 2 processes with 128 threads in total may use only ";
  CHECK(contains(result.err, warning));
  CHECK(result.err.find(warning) == result.err.rfind(warning));
}

TEST_CASE("several processes draw the texts of one process") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 200; ++i) text += i % 3 == 0 ? "the cat sat.\r\n" : "so it was.\r\n";
  write_file(dir / "text.txt", text);
  Config config = make_tiny_sequence_config();
  config.data = {.dataset = "text", .batch_size = 4, .eval_limit = 4};
  config.data.options.set("path", (dir / "text.txt").string());
  config.data.options.set("tokenizer", "characters");
  config.data.options.set("sequence_length", 40);
  for (const char* share : {"valid_share", "test_share"}) config.data.options.set(share, 0.1);
  write_file(dir / "config.toml", to_toml(config));
  REQUIRE(Job(2, train_words(dir, (dir / "config.toml").string(), "run")).wait() == 0);
  std::vector<std::string> words = {
      PROGRAM, "generate", (dir / "run").string(), "--length", "20", "--count", "4", "--prompt", "the \r\n"};
  const ProgramResult alone = Job(1, words).result(), shared = Job(3, words).result();
  CAPTURE(shared.err);
  CHECK(shared.code == 0);
  CHECK(contains(shared.out, "the "));
  CHECK(shared.out == alone.out);
  CHECK(contains(shared.out, "\r\n"));
  CHECK(shared.out == run_program(std::vector(words.begin() + 1, words.end())).out);
  // mpirun gives process 0 a pseudo-terminal. The text contains carriage returns.
  if (forwards_all_output()) CHECK(Job(3, words, "", true).result().out == shared.out);
  words.emplace_back("--json");
  const auto texts = parse_json_output(Job(3, words).result())["texts"];
  CHECK(texts.size() == 4);
  CHECK(texts == parse_json_output(Job(1, words).result())["texts"]);
}

TEST_CASE("several processes get the same speech scores as one process") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  write_tiny_an4(dir / "corpus", 12, 7);
  Config config = make_tiny_speech_config(dir / "corpus");
  write_file(dir / "config.toml", to_toml(config));
  const auto words = train_words(dir, (dir / "config.toml").string(), "run");
  const ProgramResult trained = Job(2, words).result();
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  const auto eval = [&](int processes, const std::string& folder) {
    return parse_json_output(Job(processes, {PROGRAM, "eval", (dir / "run").string(), "--json",
                                             "--confusions", "9", "--trn", (dir / folder).string()})
                                 .result());
  };
  const auto alone = eval(1, "alone"), shared = eval(3, "shared");
  for (const char* field : {"per", "phones", "nats_per_utterance", "confusions", "examples"})
    CHECK(alone[field] == shared[field]);
  CHECK(read_file(dir / "alone/hyp.trn") == read_file(dir / "shared/hyp.trn"));
}

TEST_CASE("several processes train on an emulated CUDA device") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const std::string config = config_file(dir, 3);
  auto words = train_words(dir, config, "run");
  words.insert(words.end(), {"--device", "cuda-emulated"});
  const ProgramResult result = Job(2, words).result();
  if (result.code == 4) {
    MESSAGE("skipped: this build does not emulate CUDA");
    return;
  }
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  REQUIRE(Job(1, train_words(dir, config, "cpu")).wait() == 0);
  const auto device = read_metrics((dir / "run/metrics.jsonl").string()),
             cpu = read_metrics((dir / "cpu/metrics.jsonl").string());
  REQUIRE(device.size() == cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i)
    CHECK(get_metric_number(device[i], "loss_nats", -1) ==
          doctest::Approx(get_metric_number(cpu[i], "loss_nats", -2)).epsilon(1e-4));
}

TEST_CASE("only process 0 writes the log, which contains the number of threads") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const ProgramResult result =
      Job(2, {PROGRAM, "train", config_file(dir, 2), "--run-dir", (dir / "run").string()}).result();
  CHECK(result.code == 0);
  CAPTURE(result.err);
  const std::string line = "2 processes with 1 thread each";
  CHECK(contains(result.err, line));
  CHECK(result.err.find(line) == result.err.rfind(line));
  CHECK(read_metrics((dir / "run/metrics.jsonl").string()).size() == 3);  // two steps, one evaluation
}
