// Tests of `tapeformer reproduce` with several processes. Each process trains some of the rows and seeds of a
// table.
#include <csignal>

#include "tests/train/cli/tiny_run.h"
#include "tests/train/distributed/mpirun.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> reproduce_words(const fs::path& out, const std::string& rows,
                                         const std::string& steps) {
  std::vector<std::string> words = {PROGRAM,
                                    "reproduce",
                                    "copy-convergence",
                                    "--configs",
                                    std::string(SOURCE_DIR) + "/configs",
                                    "--out",
                                    out.string(),
                                    "--rows",
                                    rows,
                                    "--seeds",
                                    "1,2",
                                    "--threads",
                                    "1",
                                    "--json"};
  for (const char* setting : {"train.log_every=1", "data.batch_size=2", "data.eval_limit=3", "model.layers=1",
                              "model.head_dim=2", "model.feedforward=8"})
    words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"--set", "train.steps=" + steps});
  return words;
}

}  // namespace

TEST_CASE("two processes reproduce the table of one process, and name the failures of both") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  const auto alone =
      parse_json_output(Job(1, reproduce_words(dir / "alone", "softmax,linear", "4")).result());
  const ProgramResult result = Job(2, reproduce_words(dir / "shared", "softmax,linear", "4")).result();
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  // Only process 0 writes a log. Only the first seed of each row is trained.
  CHECK(contains(result.err, "running softmax-seed-1"));
  CHECK(contains(result.err, "running linear-seed-1"));
  CHECK_FALSE(contains(result.err, "seed-2"));
  const auto shared = parse_json_output(result);
  REQUIRE(shared["rows"].size() == alone["rows"].size());
  for (size_t i = 0; i < shared["rows"].size(); ++i)
    for (const auto& [column, cell] : alone["rows"][i]["cells"].items())
      if (column.ends_with("loss_nats"))
        CHECK(shared["rows"][i]["cells"][column]["values"] == cell["values"]);

  fs::create_directories(dir / "failed/runs");
  write_file(dir / "failed/runs/linear-seed-2", std::string("a file in the place of a run directory"));
  const ProgramResult failed = Job(2, reproduce_words(dir / "failed", "linear", "4")).result();
  CAPTURE(failed.err);
  CHECK(failed.code != 0);
  const std::string name = "linear, seed 2, training: ";
  CHECK(contains(failed.err, name));
  CHECK(failed.err.find(name) == failed.err.rfind(name));
  CHECK(parse_json_output(failed)["rows"].size() == shared["rows"].size());
}

TEST_CASE("after SIGTERM to one process, reproduce stops all trainings and writes their checkpoints") {
  if (is_mpirun_missing()) return;
  const TempDir dir;
  Job job(2, reproduce_words(dir / "out", "softmax", "1000000"));
  for (const char* seed : {"1", "2"})
    REQUIRE(Job::wait_for(dir / "out/runs" / (std::string("softmax-seed-") + seed) / "metrics.jsonl",
                          "\"step\":3,"));
  kill(job.pid_of(1), SIGTERM);
  const ProgramResult result = job.result();
  CAPTURE(result.err);
  CHECK(result.code == 75);
  CHECK(contains(result.err, "a signal stopped the reproduction"));
  for (const char* seed : {"1", "2"}) {
    const fs::path run = dir / "out/runs" / (std::string("softmax-seed-") + seed);
    CHECK(Job::wait_for(run / "checkpoints/latest/state.json"));
  }
}
