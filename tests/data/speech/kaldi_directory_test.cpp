#include "data/speech/kaldi_directory.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/base/errors.h"
#include "core/system/process.h"
#include "data/audio/audio.h"
#include "data/files/command.h"
#include "data/speech/feature_store.h"
#include "data/speech/kaldi_archive.h"
#include "tests/data/speech/kaldi_files.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Writes a Kaldi data directory with two utterances of one recording.
void write_directory(const TempDir& dir) {
  write_wav(dir / "r.wav", ramps(16000), 16000);
  write_file(dir / "wav.scp", std::string("r1 r.wav\n"));
  write_file(dir / "segments", std::string("a r1 0 0.5\nb r1 0.5 -1\n"));
  write_file(dir / "text", std::string("a hello world\nb good bye\n"));
  write_file(dir / "utt2spk", std::string("a s1\nb s2\n"));
}

std::string listing_error(const TempDir& dir) {
  return message_of<DataError>([&] { read_kaldi_directory(dir.path()); });
}

}  // namespace

TEST_CASE("a Kaldi directory is read with segments, words and speakers") {
  const TempDir dir;
  write_directory(dir);
  Corpus corpus = read_kaldi_directory(dir.path());
  REQUIRE(corpus.utterances.size() == 2);
  CHECK(corpus.utterances[0].words == Words{"hello", "world"});
  CHECK(corpus.utterances[0].end_seconds == 0.5);
  CHECK(corpus.utterances[1].speaker == "s2");
  CHECK(corpus.utterances[1].begin_seconds == 0.5);
  CHECK(!corpus.utterances[1].end_seconds);
  CHECK(corpus.utterances[1].path == dir / "r.wav");
  CHECK(find_kaldi_faults(dir.path()).empty());
  copy_words_to_phones(corpus);
  CHECK(corpus.utterances[1].phones == Words{"good", "bye"});
  write_kaldi_directory(dir / "copy", corpus);
  CHECK(read_kaldi_directory(dir / "copy").utterances[0].words == Words{"hello", "world"});
}

TEST_CASE("every fault of a Kaldi directory is reported with its file and line") {
  const std::vector<std::tuple<const char*, const char*, const char*>> faults = {
      {"wav.scp", "r1 sox r.wav -t wav - |\n", "wav.scp:1: a command instead of a file"},
      {"wav.scp", "r1\n", "wav.scp:1: expected \"id path\""},
      {"wav.scp", "", "wav.scp: contains no entries"},
      {"segments", "a r1 0 0.5\nb r2 0.5 1\n", "segments:2: recording \"r2\" is not in wav.scp"},
      {"segments", "a r1 0 0.5\nb r1 0.5 0.5\n", "segments:2: expected 0 <= start < end"},
      {"segments", "a r1 0 0.5\nb r1 x 1\n", "segments:2: expected a number, found \"x\""},
      {"segments", "a r1 0 0.5\nb r1 0.5 1 A\n", "segments:2: expected the number of a channel, from 0"},
      {"segments", "a r1 0 0.5\nb r1 0.5 1 0 0\n", "segments:2: expected \"id recording start end\" or"},
      {"text", "b good\na hello\n", "text:2: \"a\" after \"b\": not sorted"},
      {"text", "a hello\na hello\nb good\n", "text:2: \"a\" is a duplicate of line 1"},
      {"text", "a hello\n", "text: utterance \"b\" is missing"},
      {"text", "a hello\nb good\nc more\n", "text:3: \"c\" has neither a recording nor features"},
      {"utt2spk", "a s1\nb\n", "utt2spk:2: expected \"id speaker\""},
  };
  for (const auto& [name, contents, message] : faults) {
    const char* const expected = message;  // clang 14 cannot capture structured bindings
    CAPTURE(expected);
    const TempDir dir;
    write_directory(dir);
    write_file(dir / name, std::string(contents));
    CHECK(contains(listing_error(dir), message));
    CHECK(!find_kaldi_faults(dir.path()).empty());
  }
}

TEST_CASE(
    "faults of single utterances are reported with their file and line, and the directory stays usable") {
  const auto one_fault = [](const TempDir& dir, const std::string& message) {
    CAPTURE(message);
    CHECK(listing_error(dir) == "");
    const auto problems = find_kaldi_faults(dir.path());
    REQUIRE(problems.size() == 1);
    CHECK(contains(problems[0], message));
  };
  const std::vector<std::tuple<const char*, const char*, const char*>> faults = {
      {"text", "a hello\nb\n", "text:2: an empty transcript"},
      {"segments", "a r1 0 0.5\nb r1 0.5 1.5\n", "segments:2: the segment ends at 1.5 s, outside of"},
      {"segments", "a r1 0 0.5\nb r1 1 1.2\n", "segments:2: the segment begins at 1 s, outside of"},
      {"segments", "a r1 0 0.5\nb r1 0.5 -1 1\n", "r.wav: has no channel 1, found 1 channels"},
      {"wav.scp", "r1 r.wav\nr2 none.wav\n", "wav.scp:2: "},
      {"wav.scp", "r1 none.wav\n", "none.wav: no such file"},
      {"wav.scp", "r1 no  such recording.wav\n", "no  such recording.wav: no such file"},
  };
  for (const auto& [name, contents, message] : faults) {
    const TempDir dir;
    write_directory(dir);
    write_file(dir / name, std::string(contents));
    one_fault(dir, message);
  }
  const TempDir dir;
  write_directory(dir);
  std::filesystem::remove(dir / "segments");
  const std::string lists = "a r.wav\nb other.wav\n";
  write_file(dir / "wav.scp", lists);
  write_wav(dir / "other.wav", ramps(16000), 8000);
  one_fault(dir, "wav.scp:2: " + (dir / "other.wav").string() + ": 8000 samples per second, the first");
  write_file(dir / "other.wav", read_file(dir / "r.wav").substr(0, 1000));
  one_fault(dir, "wav.scp:2: " + (dir / "other.wav").string() + ": truncated");
  write_wav(dir / "other.wav", std::vector<float>(16000, 0.25f), 16000);
  one_fault(dir, "wav.scp:2: " + (dir / "other.wav").string() + ": is silent");
  std::string stereo = read_file(dir / "r.wav");
  stereo[22] = 2;  // number of channels
  stereo[32] = 4;  // number of bytes per frame
  write_file(dir / "other.wav", stereo);
  one_fault(dir, "wav.scp:2: " + (dir / "other.wav").string() + ": has 2 channels, expected 1");
  write_file(dir / "other.wav", std::string());
  one_fault(dir, "wav.scp:2: " + (dir / "other.wav").string() + ": is empty");
}

TEST_CASE("commands of wav.scp are run only if they are allowed") {
  const TempDir dir;
  write_directory(dir);
  std::filesystem::create_directory(dir / "a  b");
  std::filesystem::rename(dir / "r.wav", dir / "a  b/r.wav");
  write_file(dir / "wav.scp", std::string("r1 |\n"));
  CHECK(contains(message_of<DataError>([&] { read_kaldi_directory(dir.path(), true); }),
                 "wav.scp:1: the command is empty"));
  write_file(dir / "wav.scp", "r1   cat '" + (dir / "a  b/r.wav").string() + "' | cat |\n");
  CHECK(contains(listing_error(dir), "only with CorpusOptions::allow_commands"));
  REQUIRE(find_kaldi_faults(dir.path()).size() == 1);
  Corpus corpus = read_kaldi_directory(dir.path(), true);
  REQUIRE(corpus.utterances.size() == 2);
  CHECK(corpus.utterances[0].path.empty());
  const FeatureOptions options;
  const Filterbank bank(options.filterbank);
  Utterance file = corpus.utterances[0];
  file.command = "";
  file.path = dir / "a  b/r.wav";
  const Tensor features = compute_features(corpus.utterances[0], options, bank);
  CHECK(features.size(0) == 48);
  CHECK(features.to_vector() == compute_features(file, options, bank).to_vector());

  const auto error = [&](const std::string& command) {
    corpus.utterances[0].command = command;
    return message_of<DataError>([&] { compute_features(corpus.utterances[0], options, bank); });
  };
  CHECK(contains(error("exit 3"), "\"/bin/sh -c exit 3\" failed with exit code 3"));
  CHECK(contains(error("kill -9 $$"), "was ended by signal 9"));
  const std::string message = error("echo no sound");
  CHECK(contains(message, "the output of \"echo no sound\": "));
  CHECK_FALSE(contains(message, "/proc/self"));
  CHECK(contains(error("true"), "is empty"));
}

TEST_CASE("the check of the contents runs allowed commands and reads their output") {
  const TempDir dir;
  write_wav(dir / "a.wav", ramps(8000), 8000);
  write_file(dir / "text", std::string("u1 A\nu2 A\n"));
  write_file(dir / "utt2spk", std::string("u1 s\nu2 s\n"));
  write_file(dir / "wav.scp", "u1 cat " + (dir / "a.wav").string() + " |\nu2 echo no sound |\n");
  CHECK(find_kaldi_faults(dir.path()).size() == 2);
  const auto problems = find_kaldi_faults(dir.path(), true);
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems[0], "wav.scp:2: the output of \"echo no sound"));
}

TEST_CASE("a command ends at its next output after the program that runs it has ended") {
  const TempDir dir;
  const std::string mark = (dir / "mark").string();
  const pid_t program = fork();
  REQUIRE(program >= 0);
  if (program == 0) {
    try {
      CommandOutput("trap '' PIPE; while echo more 2>/dev/null; do sleep 0.05; done; touch " + mark);
    } catch (...) {
    }
    _exit(0);
  }
  usleep(300000);
  kill(program, SIGKILL);
  waitpid(program, nullptr, 0);
  for (int i = 0; i < 100 && !std::filesystem::exists(mark); ++i) usleep(50000);
  CHECK(std::filesystem::exists(mark));
}

TEST_CASE("a command that exceeds a limit is killed with its child processes") {
  const TempDir dir;
  const auto error = [](const std::string& command, const CommandLimits& limits) {
    return message_of<DataError>([&] { CommandOutput(command, limits); });
  };
  CHECK(CommandOutput("printf abc", {.max_seconds = 20, .max_bytes = 3}).text() == "abc");
  const std::string late = (dir / "late").string();
  CHECK(contains(error("(sleep 1; touch " + late + ") | cat", {.max_seconds = 0.1}),
                 "took longer than 0.1 seconds and was killed"));
  CHECK(contains(error("cat /dev/zero", {.max_bytes = 100000}),
                 "printed more than 100000 bytes and was killed"));
  usleep(1200000);
  CHECK(!std::filesystem::exists(late));
}

TEST_CASE("end_child_processes() kills running commands and their children") {
  const TempDir dir;
  const std::string mark = (dir / "mark").string();
  std::string error;
  std::atomic<bool> ended = false;
  std::jthread reader([&] {
    error = message_of<DataError>([&] { CommandOutput("touch " + mark + "; sleep 1000 | cat"); });
    ended = true;
  });
  while (!std::filesystem::exists(mark)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The command can create the file before the reader registers its process. The first call may therefore not
  // find the process.
  while (!ended) {
    end_child_processes();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  reader.join();
  CHECK(contains(error, "was ended by signal 9"));
}

TEST_CASE("matrices of archives are read, and invalid offsets are errors") {
  const TempDir dir;
  const std::string floats = "a " + matrix_bytes<float>("FM", 2, 3, {1, 2, 3, 4, 5, 6.5f});
  const std::string doubles = "b " + matrix_bytes<double>("DM", 1, 2, {-1, 0.25});
  write_file(dir / "f.ark", floats + doubles);
  const auto second = static_cast<int64_t>(floats.size()) + 2;
  CHECK(read_ark_matrix(dir / "f.ark", 2).to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6.5});
  CHECK(read_ark_matrix(dir / "f.ark", 2).shape() == Shape({2, 3}));
  CHECK(read_ark_matrix(dir / "f.ark", second).to_vector() == std::vector<double>{-1, 0.25});
  const auto error = [&](int64_t offset) {
    return message_of<DataError>([&] { read_ark_matrix(dir / "f.ark", offset); });
  };
  CHECK(contains(error(3), "f.ark: offset 3: expected a binary matrix"));
  CHECK(contains(error(10000), "outside of the file"));
  write_file(dir / "f.ark", floats.substr(0, floats.size() - 1));
  CHECK(contains(error(2), "truncated: a matrix of 2 x 3"));
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const char* kind : {"FM", "DM"}) {  // the number of bytes of the matrix exceeds int64
    write_file(dir / "f.ark", "a " + matrix_bytes<float>(kind, kMost, kMost, {0}));
    CHECK(contains(error(2), "truncated: a matrix of 2147483647 x 2147483647"));
  }
  write_file(dir / "f.ark", std::string());
  CHECK(contains(error(0), "outside of the file of 0 bytes"));
  write_file(dir / "f.ark", "a " + matrix_bytes<float>("XM", 2, 3, {0}));
  CHECK(contains(error(2), "offset 2: expected a matrix (FM, DM, CM, CM2 or CM3)"));

  write_file(dir / "f.ark", floats);
  write_file(dir / "text", std::string("a AH B\n"));
  write_file(dir / "feats.scp", std::string("a f.ark:2\n"));
  const Corpus corpus = read_kaldi_directory(dir.path());
  CHECK(corpus.utterances[0].source == SpeechSource::ark);
  CHECK(corpus.utterances[0].archive_offset == 2);
  CHECK(corpus.utterances[0].speaker == "a");
  write_file(dir / "feats.scp", std::string("a f.ark:5000\n"));
  CHECK(listing_error(dir) == "");
  REQUIRE(find_kaldi_faults(dir.path()).size() == 1);
  CHECK(contains(find_kaldi_faults(dir.path())[0], "feats.scp:1: offset 5000 lies outside of"));
  write_file(dir / "feats.scp", std::string("a f.ark:3\n"));
  CHECK(contains(find_kaldi_faults(dir.path())[0],
                 "feats.scp:1: " + (dir / "f.ark").string() + ": offset 3: expected a binary matrix"));
  write_file(dir / "n.ark", "a " + matrix_bytes<float>("FM", 2, 3, {1, 2, 3, 4, NAN, 6}));
  write_file(dir / "feats.scp", std::string("a n.ark:2\n"));
  CHECK(contains(find_kaldi_faults(dir.path())[0], "n.ark: frame 1 has a value that is not finite"));
  write_file(dir / "n.ark", "a " + matrix_bytes<float>("FM", 2, 0, {}));
  CHECK(contains(find_kaldi_faults(dir.path())[0], "n.ark: no features, found (2, 0)"));
  write_file(dir / "feats.scp", std::string("a f.ark\n"));
  CHECK(contains(listing_error(dir), "feats.scp:1: expected \"id path.ark:offset\""));
}

// The header has the layout of compressed-matrix.h in Kaldi: the name of the format, the minimum, the range,
// the number of rows and the number of columns.
TEST_CASE("compressed matrices of archives are decoded") {
  std::string bytes;
  const auto append = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const auto start = [&](const std::string& kind, int32_t rows, int32_t columns) {
    bytes = std::string("\0B", 2) + kind + " ";
    append(-2.0f);
    append(8.0f);
    append(rows);
    append(columns);
  };
  const TempDir dir;
  const auto read = [&] {
    write_file(dir / "c.ark", "utt " + bytes);
    return read_ark_matrix(dir / "c.ark", 4);
  };
  const auto check = [&](const std::vector<double>& expected, const Shape& shape) {
    const Tensor matrix = read();
    CHECK(matrix.shape() == shape);
    const auto found = matrix.to_vector();
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-6));
    bytes.pop_back();
    CHECK(contains(message_of<DataError>(read), "truncated: a matrix of"));
  };

  // Elements are in row-major order. A code stands for the value minimum + range * code / 65535.
  start("CM2", 2, 3);
  for (const uint16_t code : {0, 65535, 13107, 1, 32768, 26214}) append(code);
  check({-2, 6, -2 + 8 * 0.2, -2 + 8.0 / 65535, -2 + 8 * 32768.0 / 65535, -2 + 8 * 0.4}, {2, 3});

  // Elements are in row-major order. A code stands for the value minimum + range * code / 255.
  start("CM3", 3, 1);
  for (const uint8_t code : {0, 51, 255}) append(code);
  check({-2, -2 + 8 * 0.2, 6}, {3, 1});

  // The percentiles of a column are the values of the codes 0, 64, 192 and 255. The values of other codes are
  // interpolated between the percentiles. The codes of a matrix are stored in column-major order.
  start("CM", 7, 2);
  for (const uint16_t percentile : {0, 13107, 26214, 65535}) append(percentile);  // -2, -0.4, 1.2, 6
  for (const uint16_t percentile : {0, 0, 65535, 65535}) append(percentile);      // -2, -2, 6, 6
  for (const uint8_t code : {0, 32, 64, 128, 192, 213, 255}) append(code);
  for (const uint8_t code : {0, 64, 80, 128, 192, 200, 255}) append(code);
  check({-2, -2, -1.2, -2, -0.4, -1, 0.4, 2, 1.2, 6, 1.2 + 4.8 / 3, 6, 6, 6}, {7, 2});

  for (const char* kind : {"CM", "CM2", "CM3"}) {
    start(kind, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::max());
    CHECK(contains(message_of<DataError>(read), "truncated: a matrix of 2147483647"));
  }
  start("CM", -1, 2);
  CHECK(contains(message_of<DataError>(read), "truncated: a matrix of -1 x 2"));
}

TEST_CASE("the name of the blank is not a phone: it is reported with its line as a fault of the utterance") {
  const TempDir dir;
  write_directory(dir);
  write_file(dir / "text", std::string("a hello\nb good <blank>\n"));
  const auto problems = find_kaldi_faults(dir.path());
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems[0], "text:2: \"<blank>\" is reserved for the CTC blank"));
  Corpus corpus = read_kaldi_directory(dir.path());
  copy_words_to_phones(corpus);
  CHECK(contains(corpus.utterances[1].fault, "<blank>"));
  CHECK(corpus.utterances[1].phones.empty());
  CHECK(corpus.utterances[0].fault.empty());
}
