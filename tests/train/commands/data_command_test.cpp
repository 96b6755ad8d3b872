// tapeformer data, on Fashion-MNIST from its Debian package and on copies of it.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "data/download.h"
#include "tests/train/commands/program.h"

using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

const fs::path kPackage = "/usr/share/datasets/fashion-mnist";
const std::string kTestLabels = "t10k-labels-idx1-ubyte.gz";

// True, with the message that ctest reports as skipped, where the package is not installed.
bool no_package() {
  if (fs::exists(kPackage / kTestLabels)) return false;
  MESSAGE("skipped: dataset-fashion-mnist is not installed");
  return true;
}

}  // namespace

TEST_CASE("data list names every set and where it is") {
  const TempDir empty;
  const auto sets =
      json_of(run_program({"data", "list", "--json", "--data-dir", empty.path().string()}))["sets"];
  CHECK(sets.size() >= 3);
  for (const auto& set : sets) {
    if (set["name"] == "fashion-mnist") continue;  // found beside the data directories
    CHECK(set["files"] == 0);
    CHECK(set["folder"] == "not found");
  }
  CHECK(json_of(run_program({"data", "list", "mnist", "--json"}))["sets"].size() == 1);
  CHECK(run_program({"data", "list", "nmist"}).code == 2);
}

TEST_CASE("data verify reads every byte") {
  if (no_package()) return;
  const auto good = run_program({"data", "verify", "fashion-mnist", "--json"});
  CHECK(good.code == 0);
  CHECK(json_of(good)["good"] == true);
  CHECK(json_of(good)["files"].size() == 4);

  const TempDir dir;
  for (const auto& file : fs::directory_iterator(kPackage)) {
    fs::create_directories(dir / "fashion-mnist");
    fs::copy(file.path(), dir / "fashion-mnist" / file.path().filename());
  }
  const fs::path cut = dir / "fashion-mnist" / kTestLabels;
  fs::resize_file(cut, fs::file_size(cut) - 100);
  const auto bad =
      run_program({"data", "verify", "fashion-mnist", "--json", "--data-dir", dir.path().string()});
  CHECK(bad.code == 3);
  CHECK(contains(bad.err, cut.string()));
  const auto report = json_of(bad);
  CHECK(report["good"] == false);
  int bad_files = 0;
  for (const auto& file : report["files"]) bad_files += file["good"] == false;
  CHECK(bad_files == 1);
}

TEST_CASE("missing data exits with 3 and says where it was looked for") {
  const TempDir empty;
  for (const std::string action : {"verify", "prepare"}) {
    const auto result = run_program({"data", action, "mnist", "--data-dir", empty.path().string()});
    CHECK(result.code == 3);
    CHECK(contains(result.err, (empty / "mnist").string()));
    CHECK(contains(result.err, tapeformer::can_download()
                                   ? "to get it: tapeformer data fetch mnist, or download"
                                   : "to get it: download"));
  }
}

TEST_CASE("data prepare reads a whole set") {
  if (no_package()) return;
  const auto splits = json_of(run_program({"data", "prepare", "fashion-mnist", "--json"}))["splits"];
  REQUIRE(splits.size() == 2);
  CHECK(splits[0]["examples"] == 60000);
  CHECK(splits[1]["examples"] == 10000);
  CHECK(splits[1]["tokens_per_example"] == 784);
}

TEST_CASE("data fetch takes what is missing from another place and verifies it") {
  if (no_package()) return;
  const TempDir dir;
  const std::vector<std::string> words = {
      "data",   "fetch",      "fashion-mnist",    "--from", kPackage.string(),
      "--json", "--data-dir", dir.path().string()};
  for (const bool again : {false, true}) {
    CAPTURE(again);
    const auto report = json_of(run_program(words));
    CHECK(report["sets"][0]["good"] == true);
    CHECK(report["sets"][0]["folder"] == (dir / "fashion-mnist").string());
    fs::remove(dir / "fashion-mnist" / kTestLabels);
  }
  CHECK(run_program({"data", "verify", "fashion-mnist", "--data-dir", dir.path().string()}).code == 3);
  CHECK(run_program(words).code == 0);
  CHECK(run_program({"data", "verify", "fashion-mnist", "--data-dir", dir.path().string()}).code == 0);
}

TEST_CASE("data fetch of what cannot be had exits with 3") {
  const TempDir dir;
  const auto absent = run_program(
      {"data", "fetch", "mnist", "--from", (dir / "nowhere").string(), "--data-dir", dir.path().string()});
  CHECK(absent.code == 3);
  CHECK(contains(absent.err, "train-images-idx3-ubyte"));
  CHECK(run_program({"data", "fetch"}).code == 2);
}

TEST_CASE(
    "data prepare synthetic-speech writes Kaldi directories that data verify finds good, or says why not") {
  if (std::system("command -v espeak-ng >/dev/null 2>&1")) {
    MESSAGE("skipped: espeak-ng is not installed");
    return;
  }
  const TempDir dir;
  const auto made = run_program({"data", "prepare", "synthetic-speech", "--sentences", "2", "--json",
                                 "--data-dir", dir.path().string()});
  REQUIRE(made.code == 0);
  const fs::path train = dir / "synthetic-speech" / "train";
  CHECK(json_of(run_program({"data", "verify", train.string(), "--json"}))["good"] == true);
  write_file(train / "text", std::string("zzz s E v\n"));
  const auto bad = run_program({"data", "verify", train.string(), "--json"});
  CHECK(bad.code == 3);
  CHECK(json_of(bad)["good"] == false);
  CHECK(contains(bad.err, "text:1: \"zzz\" has neither sound nor features"));
}

TEST_CASE("data verify knows the layouts of speech, among the data directories and by path") {
  const TempDir dir;
  const std::string lexicon = (dir / "cmudict/cmudict.dict").string();
  const auto verify = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "verify", "--json", "--data-dir", dir.path().string()});
    return run_program(more);
  };
  CHECK(verify({"cmudict"}).code == 3);
  write_file(lexicon, std::string("a AH0\n"));
  CHECK(json_of(verify({"cmudict"}))["good"] == true);
  CHECK(json_of(verify({lexicon, "--layout", "lexicon"}))["good"] == true);
  write_file(lexicon, std::string("a AH0\nb\n"));
  for (const auto& words : {std::vector<std::string>{"cmudict"}, {lexicon, "--layout", "lexicon"}}) {
    const auto bad = verify(words);
    CHECK(bad.code == 3);
    CHECK(json_of(bad)["files"][0]["faults"] == 1);
    CHECK(contains(bad.err, "cmudict.dict:2: \"b\" has no phones"));
  }
  CHECK(verify({lexicon, "--layout", "timmit"}).code == 2);
}
