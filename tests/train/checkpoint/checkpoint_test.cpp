#include "train/checkpoint/checkpoint.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "core/system/files.h"
#include "tests/support/file_size_limit.h"
#include "tests/train/config/config_fixture.h"
#include "train/checkpoint/safetensors.h"

using namespace tapeformer;
namespace fs = std::filesystem;

namespace {

CheckpointContents contents_of(double value, int64_t size = 4) {
  return {{{"w", Tensor::full({size}, value)}},
          {{"w.m", Tensor::full({size}, -value)}, {"step", Tensor::full({1}, value, DType::int64)}},
          {.training_seconds = value},
          "[run]\n"};
}

std::string save_checkpoint(const std::string& run_dir, int64_t step, CheckpointContents contents) {
  contents.state.step = step;
  return tapeformer::save_checkpoint(run_dir, contents);
}

double model_value(const std::string& folder, int64_t size = 4) {
  const Tensor w = Tensor::zeros({size});
  Checkpoint(folder).load_model({{"w", w}});
  const auto values = w.to_vector();
  REQUIRE(std::count(values.begin(), values.end(), values[0]) == size);
  return values[0];
}

std::string target(const TempFolder& run, const char* link) {
  return fs::read_symlink(run.path(std::string("checkpoints/") + link)).string();
}

int leftovers(const TempFolder& run) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(run.path("checkpoints")))
    count += entry.path().filename().string().find(".tmp-") != std::string::npos;
  return count;
}

}  // namespace

TEST_CASE("a checkpoint has its four files, and latest points to it") {
  TempFolder run;
  const auto folder = save_checkpoint(run.path("deep/run"), 1200, contents_of(7));
  CHECK(folder == run.path("deep/run/checkpoints/step-00001200"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  CHECK(names ==
        std::vector<std::string>{"config.toml", "model.safetensors", "optimizer.safetensors", "state.json"});

  const Checkpoint checkpoint(find_checkpoint(run.path("deep/run"), false));
  CHECK(fs::path(checkpoint.folder()).filename() == "step-00001200");
  CHECK(checkpoint.read_state().step == 1200);
  CHECK(checkpoint.read_state().training_seconds == 7);
  CHECK(read_file(checkpoint.config_path()) == "[run]\n");
  const Tensor m = Tensor::zeros({4}), step = Tensor::zeros({1}, DType::int64);
  checkpoint.load_optimizer({{"w.m", m}, {"step", step}});
  CHECK(m.to_vector()[3] == -7);
  CHECK(step.item() == 7);
}

TEST_CASE("saving the same step again replaces its checkpoint") {
  TempFolder run;
  save_checkpoint(run.path(""), 5, contents_of(1));
  save_checkpoint(run.path(""), 5, contents_of(2));
  CHECK(model_value(find_checkpoint(run.path(""), false)) == 2);
  CHECK(leftovers(run) == 0);
  CHECK(list_checkpoint_steps(run.path("")) == std::vector<int64_t>{5});
}

TEST_CASE("pruning keeps the newest checkpoints and the checkpoints that latest and best point to") {
  TempFolder run;
  for (int step = 10; step <= 60; step += 10) {
    save_checkpoint(run.path(""), step, contents_of(step));
    if (step == 20) mark_best_checkpoint(run.path(""), step);
  }
  prune_checkpoints(run.path(""), 2);
  CHECK(list_checkpoint_steps(run.path("")) == std::vector<int64_t>{20, 50, 60});
  // `latest` points to the checkpoint that was saved last, even if another checkpoint has a larger step.
  save_checkpoint(run.path(""), 30, contents_of(30));
  prune_checkpoints(run.path(""), 1);
  CHECK(list_checkpoint_steps(run.path("")) == std::vector<int64_t>{20, 30, 60});
  CHECK(target(run, "best") == "step-00000020");
  CHECK(target(run, "latest") == "step-00000030");
  CHECK(model_value(find_checkpoint(run.path(""), true)) == 20);
  CHECK(leftovers(run) == 0);
  CHECK_THROWS_AS(mark_best_checkpoint(run.path(""), 99), CheckpointError);
}

TEST_CASE("unfinished files of a killed process are removed, and checkpoints and other files stay") {
  TempFolder run;
  save_checkpoint(run.path(""), 1, contents_of(1));
  run.write("checkpoints/step-00000002.tmp-0123456789abcdef/model.safetensors", "half");
  run.write("config.toml.tmp-0123456789abcdef", "half");
  run.write("notes.tmp-1", "mine");
  run.write("checkpoints/notes.txt", "mine");
  run.write("checkpoints/step-x/notes.txt", "mine");
  CHECK(leftovers(run) == 1);
  remove_unfinished_checkpoints(run.path(""));
  CHECK(leftovers(run) == 0);
  prune_checkpoints(run.path(""), 1);
  CHECK_FALSE(fs::exists(run.path("config.toml.tmp-0123456789abcdef")));
  CHECK(fs::exists(run.path("notes.tmp-1")));
  CHECK(fs::exists(run.path("checkpoints/notes.txt")));
  CHECK(fs::exists(run.path("checkpoints/step-x/notes.txt")));
  CHECK(list_checkpoint_steps(run.path("")) == std::vector<int64_t>{1});
  remove_unfinished_checkpoints(run.path("none"));
  CHECK(list_checkpoint_steps(run.path("none")).empty());
}

TEST_CASE("find_checkpoint() accepts run directories, checkpoint folders and copies without symlinks") {
  TempFolder run;
  CHECK_THROWS_WITH_AS(
      find_checkpoint(run.path("none"), true),
      (run.path("none") + ": expected a run directory with checkpoints or a checkpoint folder with "
                          "model.safetensors, found nothing")
          .c_str(),
      CheckpointError);
  CHECK_THROWS_AS(find_checkpoint(run.path(""), true), CheckpointError);
  const auto first = save_checkpoint(run.path(""), 1, contents_of(1));
  save_checkpoint(run.path(""), 2, contents_of(2));
  CHECK(model_value(find_checkpoint(first, true)) == 1);
  CHECK(model_value(find_checkpoint(run.path("checkpoints/latest"), true)) == 2);
  CHECK(model_value(find_checkpoint(run.path(""), true)) == 2);  // there is no best checkpoint
  fs::remove(run.path("checkpoints/latest"));
  CHECK(model_value(find_checkpoint(run.path(""), false)) == 2);
  fs::create_symlink("step-00000009", run.path("checkpoints/latest"));
  CHECK(model_value(find_checkpoint(run.path(""), false)) == 2);
  fs::remove(run.path("checkpoints/latest"));
  fs::copy(first, run.path("checkpoints/latest"));  // a folder instead of a link, as after `cp -rL`
  save_checkpoint(run.path(""), 3, contents_of(3));
  CHECK(target(run, "latest") == "step-00000003");
}

TEST_CASE("the error about a missing file of a checkpoint names it") {
  TempFolder run;
  const auto folder = save_checkpoint(run.path(""), 1, contents_of(1));
  fs::remove(folder + "/state.json");
  fs::remove(folder + "/optimizer.safetensors");
  CHECK_THROWS_WITH_AS(
      Checkpoint(folder).read_state(),
      ("checkpoint: cannot open " + folder + "/state.json: No such file or directory").c_str(),
      CheckpointError);
  CHECK_THROWS_AS(Checkpoint(folder).load_optimizer({}), CheckpointError);
}

TEST_CASE("a full disk while writing a checkpoint does not change older checkpoints") {
  TempFolder run;
  save_checkpoint(run.path(""), 1, contents_of(1));
  mark_best_checkpoint(run.path(""), 1);
  CheckpointContents big_model = contents_of(2, 10'000), big_state = contents_of(2);
  big_state.state.task_json = "{\"text\": \"" + std::string(40'000, ' ') + "\"}";
  for (const auto* contents : {&big_model, &big_state})
    for (const int64_t step : {1, 2}) {
      std::string error;
      {
        const test::FileSizeLimit limit(8192);
        try {
          save_checkpoint(run.path(""), step, *contents);
        } catch (const CheckpointError& caught) {
          error = caught.what();
        }
      }
      const std::string start = "checkpoint of step " + std::to_string(step) + " not saved: cannot write ";
      CHECK_MESSAGE(error.starts_with(start), error);
      CHECK(error.find(contents == &big_model ? "model.safetensors: " : "state.json: ") != std::string::npos);
      CHECK(leftovers(run) == 0);
      CHECK(list_checkpoint_steps(run.path("")) == std::vector<int64_t>{1});
      CHECK(model_value(find_checkpoint(run.path(""), false)) == 1);
      CHECK(model_value(find_checkpoint(run.path(""), true)) == 1);
    }
  save_checkpoint(run.path(""), 2, big_model);  // the disk has space again
  CHECK(model_value(find_checkpoint(run.path(""), false), 10'000) == 2);
}

TEST_CASE("a write to a full disk is an error") {
  const std::string data(1 << 20, 'x');
  CHECK_THROWS_WITH_AS(File("/dev/full", O_WRONLY).write(data.data(), data.size()),
                       "cannot write /dev/full: No space left on device", FileError);
}

TEST_CASE("a read-only folder is an error") {
  TempFolder run;
  run.write("checkpoints", "a file in the way");
  CHECK_THROWS_AS(save_checkpoint(run.path(""), 1, contents_of(1)), CheckpointError);
}

namespace {

constexpr int64_t kKilledSize = 30'000;

// Saves, marks and prunes checkpoints in an endless loop, and writes a byte to the descriptor `done` after
// each round. Returns only if this byte cannot be written.
void save_in_a_loop(const std::string& run_dir, int64_t step, CheckpointContents& contents, int done) {
  for (;; ++step) {
    float* values = contents.model_tensors.at("w").data<float>();
    std::fill(values, values + kKilledSize, static_cast<float>(step));
    save_checkpoint(run_dir, step, contents);
    if (step % 3 == 0) mark_best_checkpoint(run_dir, step);
    if (step % 4 == 0) save_checkpoint(run_dir, step, contents);
    prune_checkpoints(run_dir, 2);
    if (write(done, "", 1) != 1) return;
  }
}

// Runs save_in_a_loop() in a child process. Kills the child process after `rounds` rounds of the loop and a
// delay of `share` * `round_time`. If `rounds` is not 0, sets `round_time` to the mean time of the rounds
// before the delay, so that the kill can interrupt a save on both slow and fast disks.
void save_and_kill(const std::string& run_dir, int64_t step, CheckpointContents& contents, int rounds,
                   double share, std::chrono::duration<double>& round_time) {
  int done[2];
  REQUIRE(pipe(done) == 0);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      save_in_a_loop(run_dir, step, contents, done[1]);
    } catch (...) {
    }
    _exit(1);  // the test fails if the process exits before it is killed
  }
  close(done[1]);
  char byte = 0;
  for (int round = 0; round < rounds; ++round) CHECK(read(done[0], &byte, 1) == 1);
  if (rounds > 0) round_time = (std::chrono::steady_clock::now() - start) / rounds;
  std::this_thread::sleep_for(round_time * share);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(done[0]);
  REQUIRE(WIFSIGNALED(status));
}

// Checks that a checkpoint folder is complete, and returns its step.
int64_t whole_step(const std::string& folder) {
  const int64_t step = Checkpoint(folder).read_state().step;
  CHECK(model_value(folder, kKilledSize) == static_cast<double>(step));
  CHECK_NOTHROW(SafetensorsFile(folder + "/optimizer.safetensors").read("w.m"));
  CHECK(fs::exists(folder + "/config.toml"));
  return step;
}

}  // namespace

TEST_CASE("after kill -9 at any moment, latest points to a complete checkpoint") {
  TempFolder run;
  // The contents are created before the fork, because the child must not start threads.
  CheckpointContents contents = contents_of(0, kKilledSize);
  std::chrono::duration<double> round_time{0.02};
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 2);
  int interrupted = 0;
  int64_t last = 0;
  for (int round = 0; round < 24; ++round) {
    save_and_kill(run.path(""), last + 1, contents, round % 4 == 0 ? 0 : 1, share(random), round_time);
    if (!fs::exists(run.path("checkpoints"))) continue;
    interrupted += leftovers(run) > 0;
    for (const auto& entry : fs::directory_iterator(run.path("checkpoints"))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-")) CHECK(whole_step(entry.path().string()) == std::stoll(name.substr(5)));
    }
    if (round % 4 != 0) REQUIRE(fs::is_symlink(run.path("checkpoints/latest")));
    for (const char* link : {"checkpoints/latest", "checkpoints/best"})
      if (fs::is_symlink(run.path(link))) CHECK(whole_step(run.path(link)) > 0);
    if (!fs::is_symlink(run.path("checkpoints/latest"))) continue;
    const int64_t step = whole_step(run.path("checkpoints/latest"));
    CHECK(step >= last + (round % 4 == 0 ? 0 : 1));
    last = step;
    remove_unfinished_checkpoints(run.path(""));
    CHECK(leftovers(run) == 0);
  }
  CHECK(interrupted > 0);  // some kills interrupted a save
}
