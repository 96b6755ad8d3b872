// Tests of the commands with environment variables that are missing, empty or invalid, as in containers, cron
// jobs and services of systemd.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

// Runs a command in an environment that contains only `variables`, which have the form NAME=value.
ProgramResult run_with(const Words& variables, const Words& words) {
  const TempDir dir;
  Words command = {"env", "-i"};
  command.insert(command.end(), variables.begin(), variables.end());
  command.emplace_back(PROGRAM);
  command.insert(command.end(), words.begin(), words.end());
  const std::string out = dir / "out", err = dir / "err";
  ProgramResult result;
  result.code = wait_for_exit_code(start_command(command, out, err));
  result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

nlohmann::json info_with(const Words& variables, const Words& words = {}) {
  Words info = {"info", "--json"};
  info.insert(info.end(), words.begin(), words.end());
  return parse_json_output(run_with(variables, info));
}

// A control group of this test with a processor quota. `folder` is empty if the test may not create one.
class QuotaGroup {
 public:
  explicit QuotaGroup(int processors) {
    const std::string name = "tapeformer-test-" + std::to_string(getpid());
    const std::string period = "100000", quota = std::to_string(processors * 100000);
    for (const fs::path mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"}) {
      std::error_code error;
      if (!fs::create_directory(mount / name, error)) continue;
      const bool first = fs::exists(mount / name / "cpu.cfs_quota_us");
      std::ofstream file(mount / name / (first ? "cpu.cfs_quota_us" : "cpu.max"));
      if (file << quota << (first ? "" : " " + period) << std::flush) {
        folder = mount / name;
        return;
      }
      fs::remove(mount / name, error);
    }
  }
  QuotaGroup(const QuotaGroup&) = delete;
  QuotaGroup& operator=(const QuotaGroup&) = delete;
  ~QuotaGroup() {
    std::error_code ignored;
    if (!folder.empty()) fs::remove(folder, ignored);
  }

  // Runs info in the group.
  ProgramResult run_info() const {
    const TempDir dir;
    const std::string code =
        "echo $$ > '" + (folder / "cgroup.procs").string() + "' && exec '" PROGRAM "' info --json";
    const std::string out = dir / "out", err = dir / "err";
    ProgramResult result;
    result.code =
        wait_for_exit_code(start_command({"env", "-u", "OMP_NUM_THREADS", "sh", "-c", code}, out, err));
    result.out = read_file(out);
    result.err = read_file(err);
    return result;
  }

  fs::path folder;
};

}  // namespace

TEST_CASE("without a data directory, fetch and prepare exit with 3 and name --data-dir") {
  const TempDir dir;
  write_file(dir / "train-images-idx3-ubyte", std::string("x"));
  for (const Words& variables : {Words{},
                                 {"HOME="},
                                 {"TAPEFORMER_DATA=", "XDG_DATA_HOME=", "HOME="},
                                 {"XDG_DATA_HOME=data"},
                                 {"HOME=here"}})
    for (const Words& words : {Words{"data", "fetch", "mnist", "--from", dir.path().string()},
                               {"data", "fetch", "fashion-mnist", "--from", dir.path().string()},
                               {"data", "prepare", "synthetic-speech"}}) {
      const ProgramResult result = run_with(variables, words);
      CAPTURE(words);
      CAPTURE(result.err);
      CHECK(result.code == 3);
      CHECK(
          contains(result.err, "no data directory to write to: --data-dir and TAPEFORMER_DATA are not set"));
    }
}

TEST_CASE("without a data directory, commands that read a data set say what names one") {
  const TempDir dir;
  write_file(dir / "speech.toml",
             std::string("[data]\ndataset = \"fsdd\"\n[model]\ntype = \"speech\"\n[train]\nsteps = 1\n"));
  for (const Words& words : {Words{"data", "verify", "mnist"},
                             {"data", "prepare", "mnist"},
                             {"train", (dir / "speech.toml").string(), "--dry-run"},
                             {"data", "verify", (dir / "speech.toml").string()}}) {
    const ProgramResult result = run_with({}, words);
    CAPTURE(result.err);
    CHECK(result.code == 3);
    CHECK(contains(
        result.err,
        "no data directory: --data-dir and TAPEFORMER_DATA are not set, and XDG_DATA_HOME and HOME"));
  }
  CHECK(run_with({}, {"data", "list"}).code == 0);
}

TEST_CASE("a data directory that cannot be written to is named with the reason") {
  const TempDir dir;
  write_file(dir / "file", std::string("x"));
  const std::string file = (dir / "file").string();
  for (const std::string& variable : Words{"TAPEFORMER_DATA=" + file, "TAPEFORMER_DATA=/proc/nowhere/",
                                           "XDG_DATA_HOME=" + file, "HOME=/dev/null/"}) {
    const std::string folder = variable.substr(variable.find('/'));
    for (const Words& words : {Words{"data", "fetch", "mnist", "--from", dir.path().string()},
                               {"data", "prepare", "synthetic-speech", "--sentences", "1"}}) {
      const ProgramResult result = run_with({variable}, words);
      CAPTURE(variable);
      CAPTURE(result.err);
      CHECK((result.code == 1 || result.code == 3));
      CHECK(contains(result.err, folder));
    }
  }
}

TEST_CASE("a data directory with a trailing slash or a relative path is used") {
  const TempDir dir;
  for (const std::string& variable : Words{"TAPEFORMER_DATA=" + dir.path().string() + "/",
                                           "TAPEFORMER_DATA=" + fs::relative(dir.path()).string()}) {
    const ProgramResult result =
        run_with({variable}, {"data", "prepare", "synthetic-speech", "--sentences", "2"});
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(fs::exists(dir / "synthetic-speech"));
    fs::remove_all(dir / "synthetic-speech");
  }
}

TEST_CASE("training, evaluation and sampling work in an empty environment and with unknown locales") {
  for (const Words& variables :
       {Words{},
        {"PATH=", "HOME=", "TMPDIR=", "TERM=", "LANG=", "LC_ALL="},
        {"LANG=xx_YY.UTF-8", "LC_ALL=nowhere", "TERM=nothing", "TMPDIR=/nowhere", "HOME=/nowhere"},
        {"LC_ALL=de_DE.UTF-8", "LC_NUMERIC=de_DE.UTF-8"}}) {
    const TempDir dir;
    write_file(dir / "config.toml", to_toml(make_tiny_sequence_config()));
    const std::string run = dir / "run";
    for (const Words& words : {Words{"train", dir / "config.toml", "--run-dir", run},
                               {"eval", run, "--limit", "2", "--json"},
                               {"generate", run, "--count", "1", "--json"}}) {
      const ProgramResult result = run_with(variables, words);
      CAPTURE(result.err);
      CHECK(result.code == 0);
    }
  }
}

TEST_CASE("reproduce --dry-run names TMPDIR if its temporary folder cannot be created") {
  for (const std::string& folder : Words{"/proc/nowhere", "/dev/null"}) {
    const ProgramResult result =
        run_with({"TMPDIR=" + folder}, {"reproduce", "copy-convergence", "--dry-run"});
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(contains(result.err, "cannot create the temporary folder " + folder));
    CHECK(contains(result.err, "TMPDIR"));
  }
}

TEST_CASE("with a limit on the address space, commands succeed or exit with 1 and a message") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("skipped: sanitizers need much address space");
#else
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.model.options.set("heads", 8);
  config.model.options.set("head_dim", 32);
  config.model.options.set("feedforward", 1024);
  config.data.options.set("max_length", 64);
  config.data.batch_size = 16;
  config.data.eval_limit = 4;
  config.run.threads = 0;
  write_file(dir / "config.toml", to_toml(config));
  write_run(dir / "trained", config);
  const std::string train = "train " + (dir / "config.toml").string() + " --run-dir ";
  for (const int megabytes : {200, 300, 400, 500, 700, 900, 1500, 4000})
    for (const std::string& words : Words{"info", train + (dir / std::to_string(megabytes)).string(),
                                          "eval " + (dir / "trained").string()}) {
      CAPTURE(megabytes);
      CAPTURE(words);
      const std::string code = "ulimit -v " + std::to_string(megabytes * 1000) +
                               "; exec timeout -s KILL 120 '" PROGRAM "' " + words;
      const std::string out = dir / "out", err = dir / "err";
      const int status =
          wait_for_exit_code(start_command({"env", "OMP_NUM_THREADS=3", "sh", "-c", code}, out, err));
      const std::string message = read_file(err);
      CAPTURE(message);
      // The dynamic loader itself fails and exits with 127 if the libraries of CUDA exceed the limit.
      if (status == 127 && contains(message, "error while loading shared libraries") && megabytes < 4000)
        continue;
      CHECK((status == 0 || status == 1));
      if (status == 1) CHECK(contains(message, "memory"));
      if (megabytes == 4000) CHECK(status == 0);
    }
#endif
}

TEST_CASE("OMP_NUM_THREADS sets the default number of threads, and invalid values are ignored") {
  const int processors = info_with({})["processors"];
  CHECK(info_with({"OMP_NUM_THREADS=3"})["threads"] == 3);
  CHECK(contains(info_with({"OMP_NUM_THREADS=3"})["threads_reason"], "OMP_NUM_THREADS"));
  CHECK(info_with({"OMP_NUM_THREADS=3,1"})["threads"] == 3);
  CHECK(info_with({"OMP_NUM_THREADS=3"}, {"--threads", "2"})["threads"] == 2);
  CHECK(info_with({"OMP_NUM_THREADS=3"}, {"--threads", "2"})["threads_reason"] == "--threads");
  for (const std::string& invalid : Words{"OMP_NUM_THREADS=", "OMP_NUM_THREADS=-1", "OMP_NUM_THREADS=many"}) {
    CAPTURE(invalid);
    CHECK(info_with({invalid})["threads"] <= processors);
    CHECK_FALSE(contains(info_with({invalid})["threads_reason"], "OMP_NUM_THREADS"));
  }
}

TEST_CASE("a processor quota of the control group limits the default number of threads") {
  const QuotaGroup group(1);
  if (group.folder.empty() || std::thread::hardware_concurrency() < 2) {
    MESSAGE("skipped: no control group can be created, or there is only one processor");
    return;
  }
  const ProgramResult result = group.run_info();
  CAPTURE(result.err);
  const nlohmann::json info = parse_json_output(result);
  CHECK(info["threads"] == 1);
  CHECK(contains(info["threads_reason"], "quota of 1 of"));
  CHECK(contains(info["threads_reason"], group.folder.string()));
}
