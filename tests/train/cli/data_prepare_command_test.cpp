// Tests of `tapeformer data prepare kaldi`, from recordings and transcripts to a trained model.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "data/audio/audio.h"
#include "tests/train/cli/program.h"

using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Writes a recording of a tone with 6400 samples, or with 3200 samples in each of two channels.
void write_tone(const fs::path& path, double pitch, int64_t rate, int channels = 1) {
  std::vector<float> samples(6400);
  for (size_t k = 0; k < samples.size(); ++k)
    samples[k] = static_cast<float>(0.4 * std::sin(pitch * static_cast<double>(k)) +
                                    0.01 * static_cast<double>(k % 7));
  fs::create_directories(path.parent_path());
  tapeformer::write_wav(path, samples, rate);
  std::string bytes = read_file(path);
  bytes[22] = static_cast<char>(channels);
  bytes[32] = static_cast<char>(2 * channels);  // bytes of a sample of all channels
  write_file(path, bytes);
}

// Runs a command line, without its first word "tapeformer", in a folder.
ProgramResult run_line(const TempDir& folder, const std::string& line) {
  const std::string words = line.substr(std::string("tapeformer").size());
  const int status = std::system(
      ("cd '" + folder.path().string() + "' && '" PROGRAM "'" + words + " > output 2> err").c_str());
  return ProgramResult{WEXITSTATUS(status), read_file(folder / "output"), read_file(folder / "err")};
}

// Returns a command that trains a tiny model for two steps, with the --set options of `command`.
std::string with_tiny_model(const std::string& command, const TempDir& folder) {
  write_file(folder / "c.toml",
             std::string("[data]\ndataset = \"kaldi\"\n[model]\ntype = \"speech\"\nencoder = \"lstm\"\n"
                         "layers = 1\nhidden = 8\n[train]\nsteps = 2\n"));
  return "tapeformer train c.toml" + command.substr(command.find(" --set "));
}

// Returns the line of docs/speech.md that begins with `start`.
std::string documented(const std::string& start) {
  const std::string text = read_file(std::filesystem::path(SOURCE_DIR) / "docs/speech.md");
  const size_t at = text.find("\n" + start + " ") + 1;
  REQUIRE(at > 0);
  return text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("data prepare kaldi: the example of the documentation, from a table to a trained model") {
  const TempDir dir;
  std::string table = "path\tsentence\n";
  for (int i = 0; i < 24; ++i) {
    const std::string name = "clip " + std::to_string(i) + ".wav";
    write_tone(dir / "recordings" / name, i % 2 ? 0.1 : 0.6, 16000);
    table += name + "\t" + (i == 5 ? "Zork, two!" : i % 2 ? "Two." : "ONE") + "\n";
  }
  write_file(dir / "recordings/transcripts.tsv", table);
  write_file(dir / "lexicon.dict", std::string("one W AH1 N\ntwo T UW1\n"));
  const auto made = run_line(dir, documented("tapeformer data prepare kaldi") + " --json");
  CAPTURE(made.err);
  REQUIRE(made.code == 0);
  const auto report = parse_json_output(made);
  CHECK(report["train"].get<int>() + report["valid"].get<int>() + report["test"].get<int>() == 23);
  CHECK(report["unknown_words"] == 1);
  CHECK(report["sample_rate"] == 16000);
  CHECK(contains(made.err, "1 utterances are left out: the lexicon lacks 1 of their words"));
  CHECK(contains(read_file(dir / "corpus/unknown-words.txt"), "1 zork "));

  const std::string verify = documented("tapeformer data verify kaldi corpus") + " --json";
  CHECK(parse_json_output(run_line(dir, verify))["good"] == true);
  const std::string command = report["train_command"];
  CHECK(contains(command,
                 "configs/speech/own.toml --set data.path=corpus --set "
                 "data.lexicon=corpus/lexicon.txt --set data.sample_rate=16000"));
  CHECK(!contains(command, "data.channel"));
  const auto trained = run_line(dir, with_tiny_model(command, dir) + " --run-dir run --json");
  CAPTURE(trained.err);
  CHECK(parse_json_output(trained)["per"] >= 0);

  for (const auto& [option, value, expected] :
       {std::tuple<std::string, std::string, std::string>{"--valid", "2", "a number from 0 to 1"},
        {"--split", "speakers", "did you mean \"speaker\"? Expected one of"},
        {"--text-column", "words", "there is no column \"words\""}}) {
    const auto refused =
        run_line(dir, documented("tapeformer data prepare kaldi") + " " + option + " " + value);
    CHECK(refused.code >= 2);
    CHECK(contains(refused.err, expected));
  }
  const auto incomplete = run_program({"data", "prepare", "kaldi", "--out", (dir / "corpus").string()});
  CHECK(incomplete.code == 2);
  CHECK(contains(incomplete.err, "needs --audio"));
}

TEST_CASE(
    "data prepare kaldi names a config that exists, also if the program is outside of the source folder") {
  const TempDir dir;
  for (const char* word : {"one", "two"}) {
    write_tone(dir / "audio" / (std::string(word) + ".wav"), 0.3, 8000);
    write_file(dir / "audio" / (std::string(word) + ".txt"), word + std::string("\n"));
  }
  write_file(dir / "lexicon", std::string("one W\ntwo T\n"));
  const fs::path build = dir / "build";
  fs::create_directories(build);
  fs::copy_file(PROGRAM, build / "tapeformer");
  const auto prepare = [&] {
    const int status =
        std::system(("cd '" + dir.path().string() +
                     "' && build/tapeformer data prepare kaldi --audio audio --lexicon lexicon "
                     "--valid 0 --test 0 --out corpus > output")
                        .c_str());
    CHECK(status == 0);
    return read_file(dir / "output");
  };
  const std::string corpus = fs::canonical(dir.path()).string() + "/corpus";
  CHECK(contains(prepare(),
                 "To train on this corpus, in the source folder of Tapeformer:\n"
                 "tapeformer train configs/speech/own.toml --set data.path=" +
                     corpus + " --set data.lexicon=" + corpus + "/lexicon.txt"));
  const fs::path configs = fs::path(SOURCE_DIR) / "configs";
  fs::create_directory_symlink(configs, build / "configs");  // as CMake does
  CHECK(contains(prepare(), "To train on this corpus:\ntapeformer train " +
                                (fs::canonical(configs) / "speech/own.toml").string() +
                                " --set data.path=corpus "));
}

TEST_CASE("data prepare kaldi ends with a command that trains on the corpus, whatever its recordings are") {
  const TempDir dir;
  const auto add = [&](int first, int64_t rate, int channels) {
    for (int i = first; i < first + 6; ++i) {
      write_tone(dir / "audio" / (std::to_string(i) + ".wav"), 0.1 + 0.1 * (i % 3), rate, channels);
      write_file(dir / "audio" / (std::to_string(i) + ".txt"), std::string(i % 2 ? "one\n" : "two\n"));
    }
  };
  const auto check_command = [&](const std::string& options, const std::string& settings) {
    const auto made = run_line(dir,
                               "tapeformer data prepare kaldi --audio audio --lexicon lexicon --out \"my "
                               "'own' corpus\"" +
                                   options);
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    const size_t at = made.out.rfind("\ntapeformer train ");
    REQUIRE(at != std::string::npos);
    const std::string command = made.out.substr(at + 1, made.out.size() - at - 2);
    CHECK_MESSAGE(command.ends_with(settings), command);
    const auto trained = run_line(dir, with_tiny_model(command, dir) + " --dry-run");
    CHECK_MESSAGE(trained.code == 0, trained.err);
  };
  write_file(dir / "lexicon", std::string("one W AH N\ntwo T UW\n"));
  add(0, 8000, 1);
  check_command("", " --set data.sample_rate=8000");
  CHECK(run_line(dir, "tapeformer data verify kaldi \"my 'own' corpus\"").code == 0);
  check_command(" --valid 0", " --set data.sample_rate=8000 --set data.validation=1");
  add(6, 16000, 2);
  check_command("", " --set data.resample=true --set data.channel=0");
}

TEST_CASE("data prepare kaldi does not replace its transcripts") {
  const TempDir dir;
  std::string list;
  for (int i = 0; i < 6; ++i) {
    write_tone(dir / "audio" / ("r" + std::to_string(i) + ".wav"), 0.1, 8000);
    list += "r" + std::to_string(i) + " One!\n";
  }
  write_file(dir / "out/train/text", list);
  write_file(dir / "lexicon", std::string("one W AH N\n"));
  fs::create_symlink("out/train/text", dir / "link");
  for (const std::string transcripts : {"out/train/text", "link", "audio/../out/train/text"}) {
    const auto refused = run_line(dir,
                                  "tapeformer data prepare kaldi --audio audio --lexicon lexicon --out out "
                                  "--transcripts " +
                                      transcripts);
    CHECK(refused.code == 2);
    CHECK_MESSAGE(contains(refused.err, "out/train/text: is an input of the command"), refused.err);
    CHECK(read_file(dir / "out/train/text") == list);
  }
}
