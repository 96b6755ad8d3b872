// Tests of `tapeformer transcribe --stream` with recordings and with standard input.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "data/files/text_lines.h"
#include "data/speech/phones/phone_scoring.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/speech_run.h"
#include "tests/train/tasks/speech/tiny_recordings.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Returns interleaved 16-bit samples of `channels` channels without a header. The channel `heard` contains
// `samples`, and all other channels are constant.
std::string raw_samples(const std::vector<float>& samples, int channels = 1, int heard = 0) {
  std::string bytes;
  for (const float sample : samples)
    for (int channel = 0; channel < channels; ++channel) {
      const auto word = static_cast<int16_t>(channel == heard ? std::lround(sample * 32768) : channel);
      bytes.append(reinterpret_cast<const char*>(&word), 2);
    }
  return bytes;
}

std::string stereo_wav(const std::vector<float>& samples) {
  std::string header("RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\2\0\x40\x1f\0\0\0\x7d\0\0\4\0\x10\0data\0\0\0\0",
                     44);
  const std::string bytes = raw_samples(samples, 2, 1);
  const auto size = static_cast<uint32_t>(bytes.size()), all = size + 36;
  std::memcpy(&header[4], &all, 4);
  std::memcpy(&header[40], &size, 4);
  return header + bytes;
}

}  // namespace

TEST_CASE("transcribe --stream of recordings equals the parallel form, in phones and errors") {
  const TempDir dir;
  const std::string run = trained_on_tones(dir.path());
  std::vector<std::string> files;
  for (int i = 0; i < 6; ++i)
    files.push_back((dir / ("corpus/test/u100" + std::to_string(i) + ".wav")).string());
  const auto samples = make_phone_tones("ABCAC", 99);
  files.push_back((dir / "rate.wav").string());
  write_wav(files.back(), make_phone_tones("ABCAC", 99, 11025), 11025);
  const auto rows = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"transcribe", run, "--json"};
    words.insert(words.end(), files.begin(), files.end());
    words.insert(words.end(), more.begin(), more.end());
    return parse_json_output(run_program(words))["files"];
  };
  const auto resample = std::vector<std::string>{"--set", "data.resample=true"};
  auto streaming = resample;
  streaming.push_back("--stream");
  const auto parallel = rows(resample), streamed = rows(streaming);
  size_t heard = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    CAPTURE(files[i]);
    CHECK(streamed[i]["phones"] == parallel[i]["phones"]);
    CHECK(streamed[i]["frames"] == parallel[i]["frames"]);
    heard += parallel[i]["phones"].size();
    REQUIRE(streamed[i]["partials"].size() == streamed[i]["phones"].size());
    for (size_t p = 0; p < streamed[i]["partials"].size(); ++p)
      CHECK(streamed[i]["partials"][p]["phone"] == streamed[i]["phones"][p]);
  }
  CHECK(heard > 10);

  files = {(dir / "stereo.wav").string()};
  write_file(files.back(), stereo_wav(samples));
  CHECK(rows({"--set", "data.channel=1"})[0]["phones"] ==
        rows({"--set", "data.channel=1", "--stream"})[0]["phones"]);
  files = {(dir / "stereo.wav").string(), (dir / "rate.wav").string(),  (dir / "cut.wav").string(),
           (dir / "silent.wav").string(), (dir / "short.wav").string(), (dir / "text.wav").string()};
  write_wav(files[2], samples, 8000);
  fs::resize_file(files[2], 5000);
  write_wav(files[3], std::vector<float>(9000, 0.0f), 8000);
  write_wav(files[4], std::vector<float>{0, 0.5f, 0.25f}, 8000);
  write_file(files[5], std::string("no sound"));
  const std::vector<std::string> faults = {
      "stereo.wav: has 2 channels, expected 1; data.channel = 0 selects",
      "rate.wav: expected 8000 samples per second, found 11025; data.resample = true converts it",
      "cut.wav: truncated",
      "silent.wav: is silent",
      "short.wav: 3 samples are less than a frame",
      "text.wav: not a readable audio file"};
  for (const auto& more : {std::vector<std::string>{}, {"--stream"}}) {
    const auto refused = rows(more);
    for (size_t i = 0; i < faults.size(); ++i)
      CHECK(contains(refused[i]["error"].get<std::string>(), faults[i]));
  }
}

TEST_CASE("transcribe --stream reads WAV and raw samples from standard input, also beyond model.max_frames") {
  const TempDir dir;
  const std::string run = trained_on_tones(dir.path());
  std::string phones;
  for (int i = 0; i < 40; ++i) phones += "ABC"[i * i % 3];
  const auto samples = make_phone_tones(phones, 5);  // 8 s; the model was trained on 1 s
  write_wav(dir / "long.wav", samples, 8000);
  write_file(dir / "long.raw", raw_samples(samples));
  const auto file =
      parse_json_output(run_program({"transcribe", run, (dir / "long.wav").string(), "--stream", "--json"}));
  REQUIRE(file["files"][0]["phones"].size() > 20);
  const auto wav = parse_json_output(
      run_program({"transcribe", run, "-", "--stream", "--json"}, "", (dir / "long.wav").string()));
  const auto raw = parse_json_output(
      run_program({"transcribe", run, "-", "--stream", "--raw", "--json"}, "", (dir / "long.raw").string()));
  CHECK(wav["files"][0]["file"] == "-");
  CHECK(wav["files"][0]["phones"] == file["files"][0]["phones"]);
  CHECK(raw["files"][0]["phones"] == file["files"][0]["phones"]);
  CHECK(wav["state_bytes"] == file["state_bytes"]);

  const auto fails = [&](const std::vector<std::string>& more, int code, const std::string& expected) {
    std::vector<std::string> words = {"transcribe", run};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_program(words);
    CAPTURE(result.err);
    CHECK(result.code == code);
    CHECK(contains(result.err, expected));
  };
  fails({"-"}, 2, "standard input (\"-\") needs --stream");
  fails({"a.wav", "--raw"}, 2, "--raw needs standard input");
  fails({"-", "--stream"}, 3, "standard input: expected a WAV stream");
  fails({"-", "--stream", "--raw"}, 3, "standard input: 0 samples are less than a frame");
  fails({"-", "--stream", "--set", "data.cmvn=utterance"}, 2, "needs the whole recording");
}

TEST_CASE("transcribe --stream prints a phone before the input ends") {
  const TempDir dir;
  const std::string run = trained_on_tones(dir.path());
  const std::string pipe = (dir / "pipe").string(), out = (dir / "out").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string bytes = raw_samples(make_phone_tones("ABC", 7));
  // Opens the pipe for reading and writing, so that opening does not block.
  const int end = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(end >= 0);
  const pid_t child =
      start_program({"transcribe", run, "-", "--stream", "--raw"}, out, (dir / "err").string(), pipe);
  const auto half = bytes.size() / 2;
  REQUIRE(write(end, bytes.data(), half) == static_cast<ssize_t>(half));
  bool heard = false;
  for (int i = 0; i < 600 && !heard; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    heard = contains(read_file(out), " s  A\n");
  }
  CHECK(heard);
  CHECK(!contains(read_file(out), "-\t"));
  REQUIRE(write(end, bytes.data() + half, bytes.size() - half) == static_cast<ssize_t>(bytes.size() - half));
  close(end);
  CHECK(wait_for_exit_code(child) == 0);
  write_wav(dir / "whole.wav", make_phone_tones("ABC", 7), 8000);
  const std::string whole = (dir / "whole.wav").string();
  const auto phones =
      parse_json_output(run_program({"transcribe", run, whole, "--stream", "--json"}))["files"][0]["phones"];
  REQUIRE(phones.size() > 1);
  CHECK(contains(read_file(out), "-\t" + join_words(phones.get<Words>()) + "\n"));
}

TEST_CASE("transcribe --stream keeps its phone error rate beyond the trained length") {
  const TempDir dir;
  constexpr int64_t kSeed = 2;  // the training is so short that the error rate depends on the seed
  const std::string linear = trained_on_tones(dir / "linear", 60, "linear", kSeed),
                    softmax = trained_on_tones(dir / "softmax", 60, "softmax", kSeed);
  const RandomStream noise(11, "pauses");
  std::vector<float> stream;
  std::vector<Words> said;
  Words all_phones;
  std::vector<std::string> parts;
  for (int clip = 0; clip < 60; ++clip) {
    std::string phones;
    for (int i = 0; i <= clip % 4; ++i) phones += "ABC"[(clip * 5 + i * (clip / 4 + 1)) % 3];
    const std::vector<float> samples = make_phone_tones(phones, 500 + static_cast<uint64_t>(clip));
    parts.push_back((dir / ("part" + std::to_string(clip) + ".wav")).string());
    write_wav(parts.back(), samples, 8000);
    said.emplace_back();
    for (const char phone : phones) said.back().emplace_back(1, phone);
    all_phones.insert(all_phones.end(), said.back().begin(), said.back().end());
    stream.insert(stream.end(), samples.begin(), samples.end());
    for (int i = 0; i < 4000; ++i) stream.push_back(static_cast<float>(0.02 * noise.normal(stream.size())));
  }
  write_wav(dir / "stream.wav", stream, 8000);
  const auto hear = [&](const std::string& run, const std::vector<std::string>& files,
                        const std::string& window) {
    std::vector<std::string> words = {"transcribe", run, "--stream", "--json", "--window", window};
    words.insert(words.end(), files.begin(), files.end());
    const auto result = run_program(words);
    CAPTURE(result.err);
    REQUIRE((result.code == 0 || result.code == 3));
    return nlohmann::json::parse(result.out)["files"];
  };
  const std::vector<std::string> whole = {(dir / "stream.wav").string()};
  for (const std::string& run : {linear, softmax}) {
    CAPTURE(run);
    const auto alone = hear(run, parts, "0");
    const auto restarted = hear(run, whole, "-1"), endless = hear(run, whole, "0");
    PhoneScore alone_score, restarted_score;
    for (size_t i = 0; i < parts.size(); ++i) alone_score.add(said[i], alone[i]["phones"].get<Words>());
    restarted_score.add(all_phones, restarted[0]["phones"].get<Words>());
    CHECK(alone_score.error_rate_percent() < 10);
    CHECK(restarted_score.error_rate_percent() < alone_score.error_rate_percent() + 5);
    CHECK(restarted[0]["restarts"] > 50);
    // Without restarts, the stream does not fit into the cache of softmax attention.
    CHECK(endless[0].contains("error") == (run == softmax));
  }

  const auto refused = [&](const std::vector<std::string>& more, const std::string& expected) {
    std::vector<std::string> words = {"transcribe", linear, whole.front()};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_program(words);
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, expected));
  };
  refused({"--window", "2"}, "--window needs --stream");
  refused({"--stream", "--window", "0.3"}, "the window 0.3: expected -1, 0 or at least 0.5 seconds");
  refused({"--stream", "--window", "-2"}, "--window");
  refused({"--stream", "--window", "wide"}, "--window");
}
