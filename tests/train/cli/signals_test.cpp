// Tests of the signals that stop a command. `train` saves a checkpoint and exits with status 75. Other
// commands exit with status 130.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>

#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "train/cli/pretrained/new_path.h"
#include "train/signals.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

struct NamedSignal {
  int number;
  std::string name;
};
const NamedSignal kStopSignals[] = {
    {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}};

// Waits until the condition holds or the process has ended.
void wait_until(pid_t child, const std::function<bool()>& condition) {
  siginfo_t ended{};
  while (!condition() && ended.si_pid == 0) {
    usleep(1000);
    waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
}

// A running command whose standard output and standard error are the files `out` and `err` in a folder.
struct Started {
  Started(const TempDir& dir, const std::vector<std::string>& words)
      : err(dir / "err"), pid(start_program(words, (dir / "out").string(), err.string())) {}

  // Sends the signal when the condition holds, or when the process has ended. Returns the exit status, and
  // stores the time from the signal to the end of the process in `seconds`.
  int stop(int signal, const std::function<bool()>& condition) {
    wait_until(pid, condition);
    const auto start = Clock::now();
    kill(pid, signal);
    const int code = wait_for_exit_code(pid);
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return code;
  }
  std::string messages() const { return read_file(err); }

  fs::path err;
  pid_t pid;
  double seconds = 0;
};

// Writes a config with `steps` steps and evaluations of at most `eval_limit` examples, and returns its path.
std::string write_config(const TempDir& dir, int64_t steps, int64_t eval_limit) {
  Config config = make_tiny_sequence_config();
  config.data.options.set("max_length", 256);
  config.data.eval_limit = eval_limit;
  config.model.options.set("layers", 2);
  config.train.steps = steps;
  config.train.log_every = 1;
  const std::string path = (dir / "config.toml").string();
  write_file(path, to_toml(config));
  return path;
}

nlohmann::json state_of(const fs::path& run) {
  return nlohmann::json::parse(read_file(run / "checkpoints/latest/state.json"));
}

}  // namespace

TEST_CASE("a signal that stops an import, an export or a merge removes the unfinished output") {
  for (const auto& [number, name] : kStopSignals) {
    CAPTURE(name);
    const TempDir dir;
    const pid_t child = fork();
    if (child == 0) {
      install_exit_handlers();
      suppress_signal_message();
      write_new_path(dir / "out", [&](const fs::path& path) {
        fs::create_directory(path);
        write_file(path / "weights", std::string("unfinished"));
        kill(getpid(), number);
        sleep(20);
      });
      _exit(0);
    }
    CHECK(wait_for_exit_code(child) == kInterruptedExitStatus);
    CHECK(fs::is_empty(dir.path()));
  }
}

TEST_CASE("a training that a signal stops writes a checkpoint and exits with 75") {
  for (const auto& [number, name] : kStopSignals) {
    CAPTURE(name);
    const TempDir dir;
    const fs::path run = dir / "run";
    Started training(dir, {"train", write_config(dir, 1000000, 8), "--run-dir", run.string()});
    CHECK(training.stop(number, [&] { return contains(read_file(run / "metrics.jsonl"), "\"step\":3,"); }) ==
          75);
    CHECK(contains(training.messages(), "repeat the command with --resume"));
    CHECK(state_of(run)["step"] >= 3);
  }
}

TEST_CASE("SIGHUP and SIGUSR1 stay ignored if they are ignored at the start, as with nohup") {
  const TempDir dir;
  const std::string run = dir / "run", out = dir / "out", err = dir / "err";
  const std::string code =
      "trap '' HUP USR1; exec '" PROGRAM "' train " + write_config(dir, 1000000, 8) + " --run-dir " + run;
  const pid_t training = start_command({"sh", "-c", code}, out, err);
  const auto wait_for_step = [&](int64_t step) {
    const std::string line = "\"step\":" + std::to_string(step) + ",";
    const fs::path metrics = run + "/metrics.jsonl";
    wait_until(training, [&] { return fs::exists(metrics) && contains(read_file(metrics), line); });
  };
  wait_for_step(3);
  kill(training, SIGHUP);
  kill(training, SIGUSR1);
  wait_for_step(6);
  CHECK(kill(training, SIGTERM) == 0);
  CHECK(wait_for_exit_code(training) == 75);
  CHECK(state_of(run)["step"] >= 6);
}

TEST_CASE("a command that another command runs stops if the other command is killed") {
  const TempDir dir;
  const fs::path run = dir / "run";
  const std::string code = "TAPEFORMER_PARENT=$$ '" PROGRAM "' train " + write_config(dir, 1000000, 8) +
                           " --run-dir '" + run.string() + "' & wait";
  const pid_t parent = start_command({"sh", "-c", code}, dir / "out", dir / "err");
  wait_until(parent, [&] { return contains(read_file(run / "metrics.jsonl"), "\"step\":3,"); });
  kill(parent, SIGKILL);
  CHECK(wait_for_exit_code(parent) == 128 + SIGKILL);
  const fs::path state = run / "checkpoints/latest/state.json";
  for (int i = 0; i < 1000 && !fs::exists(state); ++i) usleep(10000);
  CHECK(state_of(run)["step"] >= 3);
}

TEST_CASE("the second SIGINT ends a process at once, also if SIGTERM came between") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    suppress_signal_message();
    signal(SIGINT, SIG_DFL);  // a shell starts processes in the background with SIGINT ignored
    const StopSignalScope signals;
    raise(SIGINT);
    raise(SIGTERM);
    if (signals.last_signal() != SIGTERM) _exit(1);
    raise(SIGINT);
    _exit(2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
}

TEST_CASE("the second SIGINT calls the handler that was installed before, which stays installed") {
  static volatile std::sig_atomic_t calls = 0;
  const auto previous = signal(SIGINT, [](int) { calls = calls + 1; });
  {
    const StopSignalScope signals;
    raise(SIGINT);
    CHECK(signals.last_signal() == SIGINT);
    CHECK(calls == 0);
    raise(SIGINT);
    CHECK(calls == 1);
  }
  raise(SIGINT);
  CHECK(calls == 2);
  signal(SIGINT, previous);
}

TEST_CASE("a signal during an evaluation loses no step, and the resumed run evaluates again") {
  const TempDir dir;
  const fs::path run = dir / "run";
  const std::string config = write_config(dir, 2, 100000);
  Started training(dir, {"train", config, "--run-dir", run.string()});
  const int code = training.stop(SIGTERM, [&] { return fs::exists(run / "checkpoints/latest/state.json"); });
  CHECK(code == 75);
  CHECK(training.seconds < 5);  // a complete evaluation takes minutes
  CHECK(state_of(run)["step"] == 2);
  CHECK(state_of(run)["evaluated_step"] == -1);
  CHECK_FALSE(contains(read_file(run / "metrics.jsonl"), "\"test\""));

  const auto resumed =
      run_program({"train", config, "--run-dir", run.string(), "--resume", "--set", "data.eval_limit=8"});
  CHECK(resumed.code == 0);
  CHECK(state_of(run)["evaluated_step"] == 2);
  CHECK(contains(read_file(run / "metrics.jsonl"), "\"test\""));
  CHECK(fs::exists(run / "checkpoints/best/model.safetensors"));
}

TEST_CASE("a command that has nothing to save prints a line and exits with 130 after a signal") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.data.options.set("max_length", 256);
  write_run(dir / "run", config);
  const std::string run = (dir / "run").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"eval", run, "--limit", "100000000"},
                                                {"generate", run, "--count", "1000000"},
                                                {"bench", "small-op", "--repeats", "1000000"}})
    for (const auto& [number, name] : kStopSignals) {
      CAPTURE(words.front());
      Started command(dir, words);
      CHECK(command.stop(number, [&] { return !command.messages().empty(); }) == 130);
      CHECK(command.seconds < 5);
      CHECK(contains(command.messages(), "interrupted by " + name + "\n"));
    }
}

TEST_CASE("after a signal, reproduce explains how to continue") {
  const TempDir dir;
  const std::vector<std::string> words = {
      "reproduce", "copy-convergence", "--out", (dir / "results").string(), "--set", "train.log_every=1"};
  Started reproduction(dir, words);
  CHECK(reproduction.stop(SIGTERM, [&] {
    return contains(read_file(dir / "results/runs/softmax-seed-1/metrics.jsonl"), "\"step\":3,");
  }) == 75);
  CHECK(contains(reproduction.messages(), "To continue, repeat the command"));
}
