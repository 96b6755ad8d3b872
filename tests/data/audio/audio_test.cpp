#include "data/audio/audio.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sndfile.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "tests/data/audio/sounds.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string decoding_error(const std::filesystem::path& path, const AudioOptions& options = {}) {
  return message_of<DataError>([&] { read_audio(path, options); });
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max<double>(worst, std::abs(a[i] - b[i]));
  return worst;
}

constexpr int kSphere = SF_FORMAT_NIST | SF_FORMAT_PCM_16;

struct Container {
  const char* name;
  int format;
};
constexpr Container kContainers[] = {{"a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16},
                                     {"b.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
                                     {"c.sph", kSphere},
                                     {"d.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS},
                                     {"e.opus", SF_FORMAT_OGG | SF_FORMAT_OPUS},
                                     {"f.au", SF_FORMAT_AU | SF_FORMAT_PCM_16},
                                     {"g.rf64", SF_FORMAT_RF64 | SF_FORMAT_PCM_16},
                                     {"h.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG},
                                     {"i.wav", SF_FORMAT_WAVEX | SF_FORMAT_PCM_24}};

}  // namespace

TEST_CASE("WAV, AU, FLAC, Ogg and SPHERE files give the written samples") {
  const TempDir dir;
  const auto samples = tone(16000, 440, 16000);
  const std::vector<std::tuple<const char*, int, double>> formats = {
      {"a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1e-4},
      {"b.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 1e-4},
      {"c.sph", kSphere, 1e-4},
      {"d.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 0},
      {"e.au", SF_FORMAT_AU | SF_FORMAT_PCM_16, 1e-4},
      {"f.rf64", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 1e-4},
      {"g.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, 1e-4},
      {"h.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 0.1}};  // Vorbis is lossy
  for (const auto& [name, format, tolerance] : formats) {
    const char* const file = name;  // clang 14 cannot capture structured bindings
    CAPTURE(file);
    write_sound(dir / name, format, samples, 16000);
    const Audio audio = read_audio(dir / name);
    CHECK(audio.rate == 16000);
    CHECK(largest_difference(audio.samples, samples) <= tolerance);
    const AudioInfo info = read_audio_info(dir / name);
    CHECK(info.sample_count == 16000);
    CHECK(info.channel_count == 1);
  }
}

TEST_CASE("read_audio() reads a range of samples, and ranges beyond the recording are errors") {
  const TempDir dir;
  const auto samples = tone(200000, 300, 16000);
  write_sound(dir / "a.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, samples, 16000);
  const Audio whole = read_audio(dir / "a.flac");
  const Audio part = read_audio(dir / "a.flac", {.first_sample = 70001, .end_sample = 150003});
  REQUIRE(part.samples.size() == 80002);
  CHECK(std::equal(part.samples.begin(), part.samples.end(), whole.samples.begin() + 70001));
  CHECK(contains(decoding_error(dir / "a.flac", {.first_sample = 5, .end_sample = 200001}),
                 "a.flac: samples 5 to 200001 are out of range, the recording has 200000"));
  CHECK(contains(decoding_error(dir / "a.flac", {.first_sample = 5, .end_sample = 5}), "samples 5 to 5"));
  CHECK(contains(decoding_error(dir / "a.flac", {.first_sample = -1}), "samples -1 to"));
}

TEST_CASE("truncated files are errors in every format") {
  const TempDir dir;
  const auto samples = tone(30000, 440, 16000);
  for (const auto& [name, format] : kContainers) {
    const char* const file = name;  // clang 14 cannot capture structured bindings
    CAPTURE(file);
    write_sound(dir / name, format, samples, 16000);
    CHECK(decoding_error(dir / name) == "");
    std::filesystem::resize_file(dir / name, std::filesystem::file_size(dir / name) * 2 / 3);
    CHECK(contains(decoding_error(dir / name), std::string(name) + ": truncated"));
  }
}

TEST_CASE("a truncated WAV is an error, also if large chunks precede its samples") {
  const TempDir dir;
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, tone(30000, 440, 16000), 16000);
  std::string bytes = read_file(dir / "a.wav");
  const size_t data = bytes.find("data");
  REQUIRE(data != std::string::npos);
  const std::string padding = std::string("JUNK") + '\x88' + '\x13' + '\0' + '\0' + std::string(5000, 'x');
  bytes.insert(data, padding);
  write_file(dir / "a.wav", bytes);
  CHECK(read_audio(dir / "a.wav").samples.size() == 30000);
  std::filesystem::resize_file(dir / "a.wav", bytes.size() * 2 / 3);
  CHECK(contains(decoding_error(dir / "a.wav"), "a.wav: truncated"));
}

TEST_CASE("a WAV that was written to a pipe has no size and is read to its end") {
  const TempDir dir;
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, tone(1000, 440, 16000), 16000);
  std::string bytes = read_file(dir / "a.wav");
  const size_t data = bytes.find("data");
  REQUIRE(data != std::string::npos);
  for (size_t i = 4; i < 8; ++i) bytes[data + i] = '\xff';
  write_file(dir / "a.wav", bytes);
  CHECK(read_audio(dir / "a.wav").samples.size() == 1000);
}

TEST_CASE("containers in which truncation cannot be detected are errors") {
  const TempDir dir;
  for (const auto& [name, format] : {std::pair{"a.aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16},
                                     {"b.w64", SF_FORMAT_W64 | SF_FORMAT_PCM_16},
                                     {"c.caf", SF_FORMAT_CAF | SF_FORMAT_PCM_16}}) {
    const char* const file = name;  // clang 14 cannot capture structured bindings
    CAPTURE(file);
    write_sound(dir / name, format, tone(1000, 440, 16000), 16000);
    CHECK(
        contains(decoding_error(dir / name), std::string(name) + ": expected WAV, AU, FLAC, Ogg or SPHERE"));
  }
}

TEST_CASE("a FLAC that was written to a pipe has no number of samples and is read to its end") {
  const TempDir dir;
  const auto path = dir / "a.flac";
  write_sound(path, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, tone(100000, 440, 16000), 16000);
  const Audio whole = read_audio(path);
  std::string bytes = read_file(path);
  // Sets the number of samples in the header, a field of 36 bits, to 0.
  bytes[21] = static_cast<char>(bytes[21] & 0xF0);
  for (size_t i = 22; i < 26; ++i) bytes[i] = 0;
  write_file(path, bytes);
  CHECK(read_audio_info(path).sample_count == 100000);
  CHECK(read_audio(path).samples == whole.samples);
  const Audio part = read_audio(path, {.first_sample = 30001, .end_sample = 90000});
  REQUIRE(part.samples.size() == 59999);
  CHECK(std::equal(part.samples.begin(), part.samples.end(), whole.samples.begin() + 30001));
}

TEST_CASE("files that are not audio are errors with the path and the fault") {
  const TempDir dir;
  CHECK(contains(decoding_error(dir / "none.wav"), "none.wav: no such file"));
  write_file(dir / "empty.wav", std::string());
  CHECK(contains(decoding_error(dir / "empty.wav"), "empty.wav: is empty"));
  write_file(dir / "text.wav", std::string(2000, 'x'));
  CHECK(contains(decoding_error(dir / "text.wav"), "text.wav: not a readable audio file"));
  write_sound(dir / "zero.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, {}, 16000);
  CHECK(contains(decoding_error(dir / "zero.wav"), "zero.wav: contains no samples"));
  std::string shorten =
      "NIST_1A\n   1024\nchannel_count -i 1\nsample_count -i 400\nsample_n_bytes -i 2\n"
      "sample_coding -s26 pcm,embedded-shorten-v2.00\nend_head\n";
  shorten.resize(1200, ' ');
  write_file(dir / "short.sph", shorten);
  CHECK(contains(decoding_error(dir / "short.sph"), "short.sph: SPHERE compressed with shorten"));
}

TEST_CASE("several channels are an error unless one is chosen") {
  const TempDir dir;
  std::vector<float> both;
  for (int i = 0; i < 500; ++i) {
    both.push_back(0.25f);
    both.push_back(-0.5f);
  }
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, both, 16000, 2);
  CHECK(contains(decoding_error(dir / "a.wav"),
                 "has 2 channels, expected 1; AudioOptions::channel = 0 selects the first"));
  CHECK(read_audio(dir / "a.wav", {.channel = 1}).samples == std::vector<float>(500, -0.5f));
  CHECK(contains(decoding_error(dir / "a.wav", {.channel = 2}), "has no channel 2"));
}

TEST_CASE("another rate is an error unless resampling is on, and resampling keeps the pitch") {
  const TempDir dir;
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, tone(22050, 440, 22050), 22050);
  CHECK(
      contains(decoding_error(dir / "a.wav", {.rate = 16000}),
               "expected 16000 samples per second, found 22050; AudioOptions::resample = true converts it"));
  const Audio audio = read_audio(dir / "a.wav", {.rate = 16000, .resample = true});
  CHECK(audio.rate == 16000);
  REQUIRE(audio.samples.size() == 16000);
  const auto expected = tone(16000, 440, 16000);
  for (size_t i = 200; i < 15800; ++i) CHECK(std::abs(audio.samples[i] - expected[i]) < 2e-3);
  CHECK(resample(std::vector<float>{0.5f}, 8000, 16000).size() == 2);
  CHECK(contains(message_of<DataError>([] { resample(std::vector<float>{0.5f}, 0, 16000); }),
                 "cannot resample"));
}

TEST_CASE("resampling in pieces gives the same samples") {
  const auto samples = tone(5003, 440, 22050);
  for (const auto& [from, to] : {std::pair{22050, 16000}, {8000, 16000}, {16000, 8000}, {8000, 8000}}) {
    const auto whole = resample(samples, from, to);
    CHECK(static_cast<int64_t>(whole.size()) == std::llround(5003.0 * to / from));
    for (const size_t piece : {1, 160, 5000}) {
      Resampler resampler(from, to);
      std::vector<float> found;
      for (size_t at = 0; at < samples.size(); at += piece)
        resampler.push(std::span(samples).subspan(at, std::min(piece, samples.size() - at)), found);
      resampler.finish(found);
      CHECK(found == whole);
    }
  }
}

TEST_CASE("the blocks of an AudioStream contain the samples of read_audio()") {
  const TempDir dir;
  const auto samples = tone(30001, 440, 16000);
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, samples, 16000);
  for (const int64_t rate : {16000, 11025}) {
    const AudioOptions options{.rate = rate, .resample = true};
    AudioStream stream(dir / "a.wav", options);
    std::vector<float> found;
    for (auto block = stream.next(); !block.empty(); block = stream.next()) {
      CHECK(block.size() < 1000);
      found.insert(found.end(), block.begin(), block.end());
    }
    CHECK(stream.next().empty());
    CHECK(found == read_audio(dir / "a.wav", options).samples);
  }
}

namespace {

int64_t peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Writes hours of silence in blocks. A FLAC or Ogg file of the silence has only a few hundred KiB.
void write_silence(const std::filesystem::path& path, int format, int64_t hours) {
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = 1;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  const std::vector<short> block(16000 * 60, 0);
  for (int64_t minute = 0; minute < 60 * hours; ++minute)
    sf_write_short(file, block.data(), static_cast<sf_count_t>(block.size()));
  sf_close(file);
}

}  // namespace

TEST_CASE("decoding of a small FLAC of ten hours stops at the limit of the caller") {
  const TempDir dir;
  const auto path = dir / "long.flac";
  write_silence(path, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 10);
  CHECK(std::filesystem::file_size(path) < (size_t{4} << 20));
  const int64_t before = peak_kilobytes();
  const std::string expected = "long.flac: is longer than the limit of 30 s (AudioOptions::max_seconds)";
  CHECK(contains(decoding_error(path, {.max_seconds = 30}), expected));
  CHECK(read_audio(path, {.end_sample = 16000 * 30, .max_seconds = 30}).samples.size() == 480000);
  CHECK(contains(decoding_error(path, {.end_sample = 16000 * 31, .max_seconds = 30}), expected));
  // Decoding stops at max_seconds even if the header of the file does not contain the number of samples.
  std::string bytes = read_file(path);
  bytes[21] = static_cast<char>(bytes[21] & 0xF0);
  for (size_t i = 22; i < 26; ++i) bytes[i] = 0;
  write_file(path, bytes);
  CHECK(contains(decoding_error(path, {.max_seconds = 30}), expected));
  CHECK(contains(decoding_error(path, {.first_sample = 16000, .max_seconds = 30}), expected));
  CHECK(read_audio(path, {.end_sample = 16000 * 30, .max_seconds = 30}).samples.size() == 480000);
  CHECK(read_audio_info(path, 30).sample_count < 16000 * 40);
  // If the number of samples in the header is too small, reading ends after this number of samples.
  bytes[25] = 100;
  write_file(path, bytes);
  CHECK(read_audio(path, {.max_seconds = 30}).samples.size() == 100);
  CHECK(peak_kilobytes() - before < 64 << 10);
}

TEST_CASE("the length limit is exact to the sample in every container") {
  const TempDir dir;
  const auto samples = tone(16001, 440, 16000);
  for (const auto& [name, format] : kContainers) {
    const char* const file = name;  // clang 14 cannot capture structured bindings
    CAPTURE(file);
    write_sound(dir / name, format, samples, 16000);
    CHECK(contains(decoding_error(dir / name, {.max_seconds = 1}), "is longer than the limit of 1 s"));
    CHECK(read_audio(dir / name, {.max_seconds = 16001.0 / 16000}).samples.size() == 16001);
    CHECK(read_audio(dir / name, {.first_sample = 1, .max_seconds = 1}).samples.size() == 16000);
  }
}

TEST_CASE("invalid sizes in a SPHERE header are errors without overflow") {
  const TempDir dir;
  write_sound(dir / "a.sph", kSphere, tone(1000, 440, 16000), 16000);
  const std::string bytes = read_file(dir / "a.sph");
  for (const std::string count : {"9223372036854775807", "4611686018427387900", "99999999999999999999999",
                                  "-9223372036854775808", "-1", "4611686018427387403"}) {
    CAPTURE(count);
    std::string header = bytes.substr(0, 1024);
    const size_t at = header.find("sample_count"), end = header.find('\n', at);
    REQUIRE(at != std::string::npos);
    header.replace(at, end - at, "sample_count -i " + count);
    header.resize(1024, ' ');
    write_file(dir / "b.sph", header + bytes.substr(1024));
    CHECK(contains(decoding_error(dir / "b.sph"), "the header says more bytes than a file can contain"));
  }
}

TEST_CASE("invalid rates and numbers of channels are errors before memory is allocated") {
  const TempDir dir;
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, tone(1000, 440, 16000), 16000);
  std::string bytes = read_file(dir / "a.wav");
  const uint32_t rate = 2000000000;
  std::memcpy(&bytes[24], &rate, 4);
  write_file(dir / "a.wav", bytes);
  CHECK(contains(decoding_error(dir / "a.wav"), "expected 1 to 1048576 samples per second"));
}

namespace {

std::string piping_error(const std::string& bytes, bool raw, const AudioOptions& options = {}) {
  return message_of<DataError>([&] { piped(bytes, raw, options); });
}

}  // namespace

TEST_CASE("a pipe gives the samples of a WAV with any length in its header, or raw samples") {
  const TempDir dir;
  const auto samples = tone(20000, 440, 16000);
  write_sound(dir / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, samples, 16000);
  const auto whole = read_audio(dir / "a.wav").samples;
  const std::string bytes = read_file(dir / "a.wav");
  CHECK(piped(bytes, false) == whole);
  CHECK(piped(bytes.substr(44), true, {.rate = 16000}) == whole);
  CHECK(piped(bytes, false, {.rate = 8000, .resample = true}) == resample(whole, 16000, 8000));
  for (const uint32_t size : {0xFFFFFFFFu, 0x80000000u, 0x7FFFF000u, 0x7FFFFFFFu}) {
    CAPTURE(size);
    std::string unknown = bytes;
    std::memcpy(&unknown[40], &size, 4);
    CHECK(piped(unknown, false) == whole);
  }
  CHECK(contains(piping_error(bytes.substr(0, 20000), false),
                 "standard input: truncated or corrupt: expected 20000 samples, found 9978"));
  write_file(dir / "short.wav", bytes.substr(0, 20000));
  const File file((dir / "short.wav").string(), O_RDONLY);  // as with "< short.wav" in a shell
  CHECK(contains(message_of<DataError>([&] { AudioStream(AudioPipe{.descriptor = file.descriptor()}, {}); }),
                 "standard input: truncated: the header says 40044 bytes, found 20000"));
  std::string from_sox = bytes;
  const uint32_t unknown_size = 0x7FFFF000;
  std::memcpy(&from_sox[40], &unknown_size, 4);
  write_file(dir / "sox.wav", from_sox);
  const File sox((dir / "sox.wav").string(), O_RDONLY);
  CHECK(AudioStream(AudioPipe{.descriptor = sox.descriptor()}, {}).next().size() > 0);
  CHECK(contains(piping_error(bytes, false, {.rate = 8000}), "standard input: expected 8000 samples"));
  CHECK(contains(piping_error("no sound at all, but text", false), "standard input: expected a WAV stream"));
  CHECK(contains(piping_error("", false), "standard input: expected a WAV stream"));
  CHECK(contains(piping_error(bytes, true), "need a rate"));
  CHECK(piped("", true, {.rate = 8000}).empty());
  std::vector<float> both;
  for (int i = 0; i < 500; ++i) both.insert(both.end(), {0.25f, -0.5f});
  write_sound(dir / "b.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, both, 16000, 2);
  CHECK(contains(piping_error(read_file(dir / "b.wav"), false), "has 2 channels, expected 1"));
  CHECK(piped(read_file(dir / "b.wav"), false, {.channel = 1}) == std::vector<float>(500, -0.5f));
}

TEST_CASE("write_wav() rounds samples to 16 bits and clips them") {
  const TempDir dir;
  write_wav(dir / "a.wav", std::vector<float>{0, 0.5f, -1, 2, -3}, 8000);
  CHECK(read_audio(dir / "a.wav").samples == std::vector<float>{0, 0.5f, -1, 32767.0f / 32768, -1});
  CHECK(is_silent(std::vector<float>(10, 0.0f)));
  CHECK(!is_silent(tone(10, 440, 8000)));
  CHECK(contains(message_of<DataError>([&] { write_wav(dir / "no" / "a.wav", std::vector<float>{0}, 8000); }),
                 "cannot be written"));
}
