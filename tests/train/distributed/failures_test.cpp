// Tests of failures. If one of several processes fails, all processes must end, and a message must name the
// process that failed.
#include <csignal>

#include "tests/train/cli/tiny_run.h"
#include "tests/train/distributed/mpirun.h"
#include "tests/train/tasks/speech/tiny_speech.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

std::string write_config(const TempDir& dir, int64_t steps) {
  Config config = make_tiny_sequence_config();
  config.data.eval_limit = 8;
  config.train.steps = steps;
  config.train.log_every = 1;
  write_file(dir / "config.toml", to_toml(config));
  return (dir / "config.toml").string();
}

std::vector<std::string> train_words(const TempDir& dir, const std::string& config) {
  return {PROGRAM, "train", config, "--run-dir", (dir / "run").string(), "--quiet"};
}

constexpr const char* kOtherSetting = "if [ $rank = 1 ]; then set -- \"$@\" --set ";

// Runs the program of losses.cpp with two processes. `fault` is the name of a fault in losses.cpp.
ProgramResult faulty(const std::string& fault) {
  const TempDir corpus;
  write_tiny_an4(corpus.path(), 6, 2);
  return Job(2, {LOSSES_PROGRAM, corpus.path().string(), fault}).result();
}

}  // namespace

TEST_CASE("if a process is killed, the other processes end within 30 seconds with a message that names it") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  Job job(4, train_words(dir, write_config(dir, 1000000)));
  REQUIRE(Job::wait_for(dir / "run/metrics.jsonl", "\"step\":3,"));
  const double killed = job.seconds();
  kill(job.pid_of(1), SIGKILL);
  const ProgramResult result = job.result();
  CAPTURE(result.err);
  CHECK(result.code != 0);
  CHECK(job.seconds() - killed < 30);
  // Either the launcher or another process names the killed process.
  const bool named = contains(result.err, "process 1 (PID") || contains(result.err, "process rank 1");
  CHECK(named);
}

TEST_CASE("after SIGTERM to any process, process 0 writes a checkpoint and all processes exit with 75") {
  if (is_mpirun_missing()) return;
  for (const int rank : {0, 1}) {
    const TempDir dir;
    Job job(2, train_words(dir, write_config(dir, 1000000)));
    REQUIRE(Job::wait_for(dir / "run/metrics.jsonl", "\"step\":3,"));
    kill(job.pid_of(rank), SIGTERM);
    const ProgramResult result = job.result();
    CAPTURE(result.err);
    CHECK(result.code == 75);
    CHECK(list_checkpoint_steps((dir / "run").string()).size() == 1);
  }
}

TEST_CASE(
    "after SIGHUP to a process, or SIGUSR1 to mpirun, process 0 writes a checkpoint, and all exit with 75") {
  if (is_mpirun_missing()) return;
  for (const bool signal_mpirun : {false, true}) {
    const TempDir dir;
    Job job(2, train_words(dir, write_config(dir, 1000000)));
    REQUIRE(Job::wait_for(dir / "run/metrics.jsonl", "\"step\":3,"));
    signal_mpirun ? kill(job.launcher_pid(), SIGUSR1) : kill(job.pid_of(1), SIGHUP);
    const ProgramResult result = job.result();
    CAPTURE(result.err);
    CHECK(result.code == 75);
    CHECK(list_checkpoint_steps((dir / "run").string()).size() == 1);
  }
}

TEST_CASE("if a process cannot read its data, all processes exit with 3 and a message names it") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  write_tiny_an4(dir / "corpus", 6, 2);
  write_file(dir / "config.toml", to_toml(make_tiny_speech_config(dir / "corpus")));
  const ProgramResult result = Job(2, train_words(dir, (dir / "config.toml").string()),
                                   std::string(kOtherSetting) + "data.path=/nowhere; fi;")
                                   .result();
  CAPTURE(result.err);
  CHECK(result.code == 3);
  CHECK(contains(result.err, "process 1: "));
  CHECK(contains(result.err, "/nowhere"));
  CHECK(count_errors(result.err) == 1);
  CHECK_FALSE(contains(result.err, "interrupted"));
  CHECK_FALSE(fs::exists(dir / "run"));
}

TEST_CASE("different configs and data are refused before the first step, with the difference") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const ProgramResult config =
      Job(3, train_words(dir, write_config(dir, 5)), std::string(kOtherSetting) + "optimizer.lr=0.5; fi;")
          .result();
  CAPTURE(config.err);
  CHECK(config.code == 2);
  CHECK(contains(config.err, "process 1: optimizer.lr = 0.5, but process 0 has 1e-04"));
  CHECK_FALSE(fs::exists(dir / "run"));

  write_tiny_an4(dir / "corpus", 6, 2);
  write_tiny_an4(dir / "other", 7, 2);
  write_file(dir / "speech.toml", to_toml(make_tiny_speech_config(dir / "corpus")));
  const ProgramResult data =
      Job(2, train_words(dir, (dir / "speech.toml").string()),
          std::string(kOtherSetting) + "data.path=" + (dir / "other").string() + "; fi;")
          .result();
  CAPTURE(data.err);
  CHECK(data.code == 2);
  CHECK(contains(data.err, "process 1: training data = "));
  CHECK_FALSE(fs::exists(dir / "run"));
}

TEST_CASE("different commands, arguments or run directories of the processes are refused") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const auto train = train_words(dir, write_config(dir, 2));
  REQUIRE(Job(2, train).wait() == 0);
  const std::string run = dir / "run";
  struct Case {
    std::vector<std::string> words;
    std::string change;  // shell command that changes the arguments of process 1
    std::string message;
  };
  const std::string program = train.front();
  for (const Case& c :
       {Case{train, "set -- \"$1\" eval '" + run + "'", "process 1: command = eval, but process 0 has train"},
        Case{{program, "eval", run},
             "set -- \"$@\" --limit 1",
             "process 1: arguments = " + run + " --limit 1, but"},
        Case{train, "set -- \"$@\" --resume", "process 1: resume = true, but process 0 has false"},
        Case{train, "set -- \"$@\" --run-dir other",
             "process 1: run directory = other, but process 0 has "}}) {
    const ProgramResult result = Job(2, c.words, "if [ $rank = 1 ]; then " + c.change + "; fi;").result();
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, c.message));
  }
}

TEST_CASE("programs from different commits are refused before the first step") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const ProgramResult result =
      Job(3, train_words(dir, write_config(dir, 5)),
          "if [ $rank = 2 ]; then shift; set -- '" OTHER_COMMIT_PROGRAM "' \"$@\"; fi;")
          .result();
  CAPTURE(result.err);
  CHECK(result.code == 2);
  CHECK(contains(result.err, "process 2: version of the program = "));
  CHECK(contains(result.err, ", commit another, "));
  CHECK(contains(result.err, "but process 0 has "));
  CHECK_FALSE(fs::exists(dir / "run"));
}

TEST_CASE("a program without MPI trains alone, and ends with a message if mpirun starts it") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  auto words = train_words(dir, write_config(dir, 2));
  words.front() = PROGRAM_WITHOUT_MPI;
  const ProgramResult two = Job(2, words).result();
  CAPTURE(two.err);
  CHECK(two.code == 2);
  // mpirun may kill a process before its message.
  CHECK(contains(
      two.err,
      " of 2, but this program was built without MPI; build it with -DTAPEFORMER_MPI=ON, or start it "
      "alone"));
  CHECK_FALSE(fs::exists(dir / "run"));
  CHECK(Job(1, words).wait() == 0);
}

TEST_CASE("an error that occurs on all processes is printed once") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  auto words = train_words(dir, write_config(dir, 5));
  words.insert(words.end(), {"--set", "model.layrs=3"});
  const ProgramResult result = Job(3, words).result();
  CAPTURE(result.err);
  CHECK(result.code == 2);
  const std::string message = "did you mean";
  CHECK(contains(result.err, message));
  CHECK(result.err.find(message) == result.err.rfind(message));
  CHECK_FALSE(contains(result.err, "interrupted by SIGTERM"));
}

TEST_CASE("a batch that the processes cannot divide is an error that names the nearest sizes") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const ProgramResult result = Job(3, train_words(dir, write_config(dir, 5))).result();
  CAPTURE(result.err);
  CHECK(result.code == 2);
  CHECK(contains(result.err,
                 "data.batch_size = 4 cannot be divided by 3 processes; the nearest sizes are 3 and 6"));
}

TEST_CASE("an error of process 0 alone ends all processes at once with its exit status and one message") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const std::string config = write_config(dir, 2), file = (dir / "file").string();
  write_file(dir / "file", std::string());
  fs::create_directories(dir / "used");
  write_file(dir / "used/file", std::string());
  struct Case {
    std::string run_dir, message;
    int code;
  };
  for (const Case& c : {Case{(dir / "used").string(), "used is not empty: continue it with --resume", 2},
                        Case{file + "/run", "cannot use " + file, 1}}) {
    Job job(2, {PROGRAM, "train", config, "--run-dir", c.run_dir, "--quiet"}, kRecordStatus);
    const ProgramResult result = job.result();
    CAPTURE(result.err);
    CHECK(result.code == c.code);
    CHECK(contains(result.err, c.message));
    CHECK(count_errors(result.err) == 1);
    CHECK_FALSE(contains(result.err, "MPI_ABORT"));
    for (const int rank : {0, 1}) CHECK(job.status_of(rank) == c.code);
  }
}

TEST_CASE("after a full disk on process 0, all processes exit with 1, and one message is printed") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  // The limit would also stop MPI from creating its files in shared memory, so the processes use TCP.
  setenv("OMPI_MCA_btl", "self,tcp", 1);
  setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
  Job job(2, train_words(dir, write_config(dir, 3)),
          "if [ $rank = 0 ]; then ulimit -f 12; fi;" + std::string(kRecordStatus));
  const ProgramResult result = job.result();
  unsetenv("OMPI_MCA_btl");
  unsetenv("OMPI_MCA_btl_tcp_if_include");
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(contains(result.err, "error: checkpoint of step 3 not saved: "));
  CHECK(contains(result.err, "safetensors"));
  CHECK(count_errors(result.err) == 1);
  CHECK_FALSE(contains(result.err, "has ended"));
  for (const int rank : {0, 1}) CHECK(job.status_of(rank) == 1);
}

TEST_CASE("an error of MPI is not reported as a lost process if all processes run") {
  if (is_mpirun_missing()) return;
  const ProgramResult result = faulty("mismatch");
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(contains(result.err, "MPI_Allreduce: "));
  CHECK_FALSE(contains(result.err, "process lost: MPI_"));
}

TEST_CASE("a benchmark with a batch that the processes cannot divide names the nearest sizes") {
  if (is_mpirun_missing()) return;
  const ProgramResult result = Job(2, {PROGRAM, "bench", "distributed", "--batch", "3"}).result();
  CAPTURE(result.err);
  CHECK(result.code == 2);
  CHECK(contains(result.err, "--batch = 3 cannot be divided by 2 processes; the nearest sizes are 2 and 4"));
}

TEST_CASE("the version, the help and info need no other processes") {
  setenv("OMPI_COMM_WORLD_RANK", "5", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--version"}, {"--help"}, {"train", "--help"}, {"score", "-h"}}) {
    const ProgramResult result = run_program(words);
    CAPTURE(words);
    CHECK(result.code == 0);
    CHECK(result.err.empty());
  }
  const ProgramResult info = run_program({"info"});
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  CHECK(info.code == 0);
  CHECK(contains(info.out, "OMPI_COMM_WORLD_RANK=5 is not below OMPI_COMM_WORLD_SIZE=2"));
  if (is_mpirun_missing()) return;
  CHECK(parse_json_output(Job(2, {PROGRAM, "info", "--json"}).result())["processes"] == "2");
  const ProgramResult help = Job(2, {PROGRAM, "score", "--help"}).result();
  CHECK(help.code == 0);
}

TEST_CASE("if a loss is not finite on one process, all processes exit with 5 and a message names it") {
  if (is_mpirun_missing()) return;
  const ProgramResult result = faulty("nan");
  CAPTURE(result.err);
  CHECK(result.code == 5);
  CHECK(contains(result.err, "at step 10"));
  CHECK(contains(result.err, "(process 1)"));
}

TEST_CASE("weights that differ between processes end the run with an error that names step and process") {
  if (is_mpirun_missing()) return;
  const ProgramResult result = faulty("drift");
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(
      contains(result.err, "after step 11, the weights of process 1 differ from the weights of process 0: "));
}

TEST_CASE("an exception on one process ends all processes, and the message names the process") {
  if (is_mpirun_missing()) return;
  const ProgramResult result = faulty("throw");
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(contains(result.err, "process 1: a fault of the test"));
}

TEST_CASE("a process ends with a message if its launcher and MPI report different numbers of processes") {
  const TempDir dir;
  setenv("OMPI_COMM_WORLD_RANK", "5", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const ProgramResult wrong_rank = run_program({"train", write_config(dir, 2)});
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const ProgramResult alone = run_program({"train", write_config(dir, 2)});
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  CHECK(wrong_rank.code == 2);
  CHECK(contains(wrong_rank.err, "OMPI_COMM_WORLD_RANK=5 is not below OMPI_COMM_WORLD_SIZE=2"));
  CAPTURE(alone.err);
  CHECK(alone.code == 2);
  const bool without_mpi = contains(alone.err, "this program was built without MPI");
  const bool other_mpi = contains(alone.err, "process 1 of 2, but MPI reports process 0 of 1");
  CHECK((without_mpi || other_mpi));
  CHECK(contains(alone.err, "or unset OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"));
}
