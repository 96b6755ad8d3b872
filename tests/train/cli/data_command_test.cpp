// Tests of `tapeformer data` with the files of the Debian package of Fashion-MNIST, with copies of these
// files, and with generated speech.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "data/audio/audio.h"
#include "data/files/download.h"
#include "tests/train/cli/program.h"

using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

const fs::path kPackage = "/usr/share/datasets/fashion-mnist";
const std::string kTestLabels = "t10k-labels-idx1-ubyte.gz";

// Returns whether the Debian package is missing. In this case, prints a message that begins with "skipped".
bool no_package() {
  if (fs::exists(kPackage / kTestLabels)) return false;
  MESSAGE("skipped: dataset-fashion-mnist is not installed");
  return true;
}

}  // namespace

TEST_CASE("data list prints every set and its folder") {
  const TempDir empty;
  const auto sets =
      parse_json_output(run_program({"data", "list", "--json", "--data-dir", empty.path().string()}))["sets"];
  CHECK(sets.size() >= 3);
  for (const auto& set : sets) {
    if (set["name"] == "fashion-mnist") continue;  // its Debian package may be installed
    CHECK(set["files"] == 0);
    CHECK(set["folder"] == "not found");
  }
  CHECK(parse_json_output(run_program({"data", "list", "mnist", "--json"}))["sets"].size() == 1);
  CHECK(run_program({"data", "list", "nmist"}).code == 2);
  CHECK(run_program({"data", "list", "--set", "data.limit=3"}).code == 2);
}

TEST_CASE("data list says how to get a data set only if its name is given") {
  const TempDir empty;
  const std::string folder = empty.path().string();
  const std::string all = run_program({"data", "list", "--data-dir", folder}).err;
  CHECK_MESSAGE(contains(all, "to see how to get a data set: tapeformer data list NAME"), all);
  CHECK(!contains(all, "mnist was not found"));
  const std::string one = run_program({"data", "list", "mnist", "--data-dir", folder}).err;
  CHECK_MESSAGE(contains(one, "mnist was not found; to get it: "), one);
  CHECK(!contains(one, "to see how"));
}

TEST_CASE("data list includes the data sets of speech") {
  const TempDir dir;
  write_file(dir / "cmudict/cmudict.dict", std::string("a AH0\n"));
  write_file(dir / "fsdd/recordings/0_ann_0.wav", std::string("no sound"));
  const auto rows =
      parse_json_output(run_program({"data", "list", "--json", "--data-dir", dir.path().string()}))["sets"];
  std::map<std::string, nlohmann::json> sets;
  for (const auto& row : rows) sets[row["name"]] = row;
  for (const std::string name : {"an4", "fsdd", "synthetic-speech", "cmudict"}) REQUIRE(sets.contains(name));
  CHECK(sets["cmudict"]["files"] == 1);
  CHECK(sets["cmudict"]["of"] == 1);
  CHECK(sets["fsdd"]["folder"] == (dir / "fsdd").string());
  CHECK(sets["an4"]["folder"] == "not found");
  CHECK(sets["an4"]["files"] == 0);
  CHECK(parse_json_output(run_program({"data", "list", "an4", "--json"}))["sets"].size() == 1);
}

TEST_CASE("data prepare of a corpus takes no other names of data sets") {
  for (const char* name : {"kaldi", "synthetic-speech"}) {
    const auto result = run_program({"data", "prepare", "fashion-mnist", name});
    CHECK(result.code == 2);
    CHECK_MESSAGE(contains(result.err, "takes no other names of data sets"), result.err);
  }
}

TEST_CASE("options of another action of data are errors") {
  using Words = std::vector<std::string>;
  for (const auto& [words, option, action] : std::vector<std::tuple<Words, std::string, std::string>>{
           {{"list", "--from=x"}, "from", "fetch"},
           {{"fetch", "mnist", "--sentences=3"}, "sentences", "prepare synthetic-speech"},
           {{"verify", "mnist", "--valid=0.3"}, "valid", "prepare kaldi"},
           {{"prepare", "mnist", "--audio=x"}, "audio", "prepare kaldi"},
           {{"prepare", "synthetic-speech", "--layout=kaldi"}, "layout", "verify"},
           {{"list", "--allow-commands"}, "allow-commands", "verify"}}) {
    Words line = {"data"};
    line.insert(line.end(), words.begin(), words.end());
    const ProgramResult result = run_program(line);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "--" + option + " belongs to \"tapeformer data " + action + "\""));
  }
}

TEST_CASE("data verify reads every byte") {
  if (no_package()) return;
  const auto good = run_program({"data", "verify", "fashion-mnist", "--json"});
  CHECK(good.code == 0);
  CHECK(parse_json_output(good)["good"] == true);
  CHECK(parse_json_output(good)["files"].size() == 4);

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
  const auto report = parse_json_output(bad);
  CHECK(report["good"] == false);
  int bad_files = 0;
  for (const auto& file : report["files"]) bad_files += file["good"] == false;
  CHECK(bad_files == 1);
}

TEST_CASE("a missing data set causes exit status 3, and the error lists the searched folders") {
  const TempDir empty;
  for (const std::string action : {"verify", "prepare"}) {
    const auto result = run_program({"data", action, "mnist", "--data-dir", empty.path().string()});
    CHECK(result.code == 3);
    CHECK(contains(result.err, (empty / "mnist").string()));
    CHECK(contains(result.err, "to get it: download"));
    CHECK(contains(result.err, "or run: tapeformer data fetch mnist") == tapeformer::can_download());
  }
}

TEST_CASE("data prepare reads a complete set") {
  if (no_package()) return;
  const auto splits =
      parse_json_output(run_program({"data", "prepare", "fashion-mnist", "--json"}))["splits"];
  REQUIRE(splits.size() == 2);
  CHECK(splits[0]["examples"] == 60000);
  CHECK(splits[1]["examples"] == 10000);
  CHECK(splits[1]["tokens_per_example"] == 784);
}

TEST_CASE("data fetch copies missing files from another folder and verifies them") {
  if (no_package()) return;
  const TempDir dir;
  const std::vector<std::string> words = {
      "data",   "fetch",      "fashion-mnist",    "--from", kPackage.string(),
      "--json", "--data-dir", dir.path().string()};
  for (const bool again : {false, true}) {
    CAPTURE(again);
    const auto report = parse_json_output(run_program(words));
    CHECK(report["sets"][0]["good"] == true);
    CHECK(report["sets"][0]["folder"] == (dir / "fashion-mnist").string());
    fs::remove(dir / "fashion-mnist" / kTestLabels);
  }
  CHECK(run_program({"data", "verify", "fashion-mnist", "--data-dir", dir.path().string()}).code == 3);
  CHECK(run_program(words).code == 0);
  CHECK(run_program({"data", "verify", "fashion-mnist", "--data-dir", dir.path().string()}).code == 0);
}

TEST_CASE("data fetch exits with 3 if files are not available") {
  const TempDir dir;
  const auto absent = run_program(
      {"data", "fetch", "mnist", "--from", (dir / "nowhere").string(), "--data-dir", dir.path().string()});
  CHECK(absent.code == 3);
  CHECK(contains(absent.err, "train-images-idx3-ubyte"));
  CHECK(run_program({"data", "fetch"}).code == 2);
}

TEST_CASE("data prepare synthetic-speech writes valid Kaldi directories, or names the missing program") {
  if (std::system("command -v espeak-ng >/dev/null 2>&1")) {
    MESSAGE("skipped: espeak-ng is not installed");
    return;
  }
  const TempDir dir;
  const auto made = run_program({"data", "prepare", "synthetic-speech", "--sentences", "2", "--json",
                                 "--data-dir", dir.path().string()});
  REQUIRE(made.code == 0);
  const fs::path train = dir / "synthetic-speech" / "train";
  CHECK(parse_json_output(run_program({"data", "verify", train.string(), "--json"}))["good"] == true);
  write_file(train / "text", std::string("zzz s E v\n"));
  const auto bad = run_program({"data", "verify", train.string(), "--json"});
  CHECK(bad.code == 3);
  CHECK(parse_json_output(bad)["good"] == false);
  CHECK(contains(bad.err, "text:1: \"zzz\" has neither a recording nor features"));
}

TEST_CASE("data verify reads all layouts of speech, in data directories and by path") {
  const TempDir dir;
  const std::string lexicon = (dir / "cmudict/cmudict.dict").string();
  const auto verify = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "verify", "--json", "--data-dir", dir.path().string()});
    return run_program(more);
  };
  CHECK(verify({"cmudict"}).code == 3);
  write_file(lexicon, std::string("a AH0\n"));
  CHECK(parse_json_output(verify({"cmudict"}))["good"] == true);
  CHECK(parse_json_output(verify({lexicon, "--layout", "lexicon"}))["good"] == true);
  write_file(lexicon, std::string("a AH0\nb\n"));
  for (const auto& words : {std::vector<std::string>{"cmudict"}, {lexicon, "--layout", "lexicon"}}) {
    const auto bad = verify(words);
    CHECK(bad.code == 3);
    CHECK(parse_json_output(bad)["files"][0]["faults"] == 1);
    CHECK(contains(bad.err, "cmudict.dict:2: \"b\" has no phones"));
  }
  CHECK(verify({lexicon, "--layout", "timmit"}).code == 2);
}

namespace {

// Writes a Kaldi data directory with `count` recordings of a tone. The sample rate is 8 kHz. Each recording
// has the transcript "two words".
void write_part(const fs::path& folder, int count) {
  std::string scp, text;
  std::vector<float> samples(4000);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>(0.5 * std::sin(0.3 * static_cast<double>(i)));
  fs::create_directories(folder);
  for (int i = 0; i < count; ++i) {
    const std::string id = "u" + std::to_string(1000 + i);
    tapeformer::write_wav(folder / (id + ".wav"), samples, 8000);
    scp += id + " " + (folder / (id + ".wav")).string() + "\n";
    text += id + " two words\n";
  }
  write_file(folder / "wav.scp", scp);
  write_file(folder / "text", text);
}

}  // namespace

TEST_CASE("data verify accepts and refuses the same corpora as training") {
  const TempDir dir;
  const std::string data = (dir / "data").string();
  for (const std::string part : {"train", "test"}) write_part(dir / "data" / part, part == "train" ? 40 : 3);
  write_file(dir / "lexicon", std::string("two T UW1\nwords W ER1 D Z\n"));
  const auto verify = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> words = {"data", "verify", "kaldi", data, "--json"};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return run_program(words);
  };
  const std::string rate = "data.sample_rate=8000", lexicon = "data.lexicon=" + (dir / "lexicon").string();
  CHECK(parse_json_output(verify({rate, lexicon}))["good"] == true);
  CHECK(parse_json_output(verify({rate}))["good"] == true);
  CHECK(parse_json_output(verify({"data.resample=true", lexicon}))["good"] == true);

  // Without data.sample_rate, the corpus can have any rate.
  const auto any_rate = verify({lexicon});
  CHECK(any_rate.code == 0);
  CHECK(parse_json_output(any_rate)["files"][0]["sample_rate"] == 8000);
  CHECK(contains(any_rate.err,
                 "the recordings have 8000 samples per second: train with --set data.sample_rate=8000"));
  // With another rate, training refuses all recordings. The error shows five recordings and the number of
  // further recordings.
  const auto other_rate = verify({"data.sample_rate=16000"});
  CHECK(other_rate.code == 3);
  CHECK(parse_json_output(other_rate)["files"][0]["faults"] == 43);
  CHECK(contains(other_rate.err, "expected 16000 samples per second, found 8000"));
  CHECK(contains(other_rate.err, "… and 38 more of this kind"));
  CHECK(std::count(other_rate.err.begin(), other_rate.err.end(), '\n') == 6);

  write_file(dir / "lexicon", std::string("two T UW1\n"));
  const auto unknown = verify({rate, lexicon});
  CHECK(unknown.code == 3);
  CHECK(contains(unknown.err, "train/wav.scp:1: the lexicon lacks \"words\""));
  CHECK(parse_json_output(verify({rate, lexicon, "data.unknown_words=drop"}))["good"] == true);
  CHECK(contains(verify({rate, "data.lexicon=/nowhere"}).err, "/nowhere: no such file"));
  CHECK(contains(verify({rate, "model.subsampling=4", "data.max_seconds=0.1"}).err, "limit of 0.1 s"));
  CHECK(verify({"data.lexicn=x"}).code == 2);

  write_file(dir / "data/test/text",
             std::string("u1000 a a a a a a a a a a a a a a a a a a a a a a a a a a a a "
                         "a\nu1001 b\nu1002 c\n"));
  CHECK(contains(verify({rate}).err,
                 "test/wav.scp:1: 48 frames make 48 steps of the model, fewer than the 57"));
  fs::create_directories(dir / "empty");
  CHECK(contains(run_program({"data", "verify", "kaldi", (dir / "empty").string()}).err,
                 "expected a data directory of Kaldi"));
}

TEST_CASE("data verify of a config reads the parts that training reads") {
  const TempDir dir;
  for (const std::string part : {"learn", "judge"}) write_part(dir / "data" / part, 3);
  write_file(dir / "data/other/text", std::string("not looked at\n"));
  write_file(dir / "c.toml", "[data]\ndataset = \"kaldi\"\npath = \"" + (dir / "data").string() +
                                 "\"\nsample_rate = 8000\ntrain_part = \"learn\"\ntest_part = \"judge\"\n"
                                 "[model]\ntype = \"speech\"\nencoder = \"lstm\"\n[train]\nepochs = 1\n");
  const std::string config = (dir / "c.toml").string();
  const auto good = run_program({"data", "verify", config, "--json"});
  CAPTURE(good.err);
  CHECK(parse_json_output(good)["good"] == true);
  CHECK(run_program({"train", config, "--dry-run"}).code == 0);
  for (const auto& [set_bound, expected] :
       {std::pair<std::string, std::string>{"data.validation=3", "holds out all of the 3 utterances"},
        {"data.test_part=nowhere", "nowhere: no such folder"},
        {"data.valid_part=nowhere", "nowhere: no such folder"},
        {"data.path=/nowhere", "/nowhere: no such folder"}}) {
    const auto& set = set_bound;  // clang 14 cannot capture structured bindings
    CAPTURE(set);
    const auto bad = run_program({"data", "verify", config, "--set", set});
    CHECK(bad.code >= 2);
    CHECK(contains(bad.err, expected));
    CHECK(run_program({"train", config, "--dry-run", "--set", set}).code == bad.code);
  }
}
