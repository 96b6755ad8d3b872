#include "data/audio/audio.h"

#include <sndfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/errors.h"
#include "core/system/files.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kMaxOggPageBytes = 65307;
constexpr sf_count_t kBlockFrames = 1 << 16;  // samples per channel that count_frames() decodes at a time
constexpr int64_t kBlocksPerSecond = 50;      // an AudioStream reads blocks of 20 ms
// A program that writes a WAV file to a pipe does not know the length of the file, so it writes a very large
// length to the header. If a header from a pipe states at least kMinUnknownFrames samples per channel,
// AudioStream treats the length as unknown.
constexpr int64_t kMinUnknownFrames = int64_t{1} << 26;
constexpr int kMaxFileRate = 1 << 20, kMaxFileChannels = 1024;

using Sound = std::unique_ptr<SNDFILE, int (*)(SNDFILE*)>;

// Returns the number of samples in `seconds` at `rate` samples per second, rounded up. Returns INT64_MAX if
// `seconds` is 0 (no limit) or the number is too large.
int64_t convert_to_sample_count(double seconds, int64_t rate) {
  const double samples = std::ceil(seconds * static_cast<double>(rate));
  const bool limited = seconds > 0 && samples < 0x1p62;
  return limited ? static_cast<int64_t>(samples) : std::numeric_limits<int64_t>::max();
}

uint32_t read_little_endian(const uint8_t* bytes) {
  return uint32_t{bytes[3]} << 24 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[1]} << 8 | bytes[0];
}

Bytes read_first_bytes(const File& file) {
  Bytes bytes(std::min<size_t>(file.size(), kHeaderBytes));
  file.read_at(bytes.data(), bytes.size(), 0);
  return bytes;
}

// Returns the value of a line "name -type value" of a SPHERE header, or "" if there is no such line.
std::string sphere_field(std::string_view header, const std::string& name) {
  size_t at = header.find("\n" + name + " -");
  if (at == std::string_view::npos) return "";
  at = header.find(' ', at + name.size() + 2);
  if (at == std::string_view::npos) return "";
  return std::string(header.substr(at + 1, header.find('\n', at) - at - 1));
}

// Returns a field of a SPHERE header as a number, clamped to the range of int64. Returns 0 if the field is
// absent or not a number.
int64_t parse_sphere_number(std::string_view header, const std::string& name) {
  return std::strtoll(sphere_field(header, name).c_str(), nullptr, 10);
}

// Returns the size in bytes of a SPHERE file according to its header. Returns 0 if the header has no size,
// and -1 if the size is invalid.
int64_t count_sphere_bytes(std::string_view header) {
  const int64_t count = parse_sphere_number(header, "sample_count");
  const int64_t size = parse_sphere_number(header, "sample_n_bytes");
  const int64_t channels = std::max<int64_t>(1, parse_sphere_number(header, "channel_count"));
  const int64_t start =
      std::strtoll(std::string(header.substr(std::min<size_t>(8, header.size()), 8)).c_str(), nullptr, 10);
  if (count < 0 || size < 0 || start < 0) return -1;
  int64_t total = 0;
  if (__builtin_mul_overflow(count, size, &total) || __builtin_mul_overflow(total, channels, &total) ||
      __builtin_add_overflow(total, start, &total))
    return -1;
  return count > 0 ? total : 0;
}

// Returns the offset of the end of the samples in a WAV file, in bytes. Returns 0 if the header has no size,
// as in a file that was written to a pipe.
int64_t count_wav_bytes(const File& file) {
  constexpr int kMaxChunks = 1000;
  Bytes chunk(8);  // a name of four characters, and the size of the contents
  size_t at = 12;
  for (int i = 0; i < kMaxChunks && at + chunk.size() <= file.size(); ++i) {
    file.read_at(chunk.data(), chunk.size(), at);
    const int64_t size = read_little_endian(chunk.data() + 4);
    if (view_as_text(chunk, 4) == "data")
      return size == 0 || size == 0xFFFFFFFF ? 0 : static_cast<int64_t>(at + chunk.size()) + size;
    at += chunk.size() + static_cast<size_t>(size + size % 2);
  }
  return 0;
}

// Returns the size in bytes of a WAV or SPHERE file according to its header. The caller compares the result
// with the size of the file, because libsndfile does not report truncated files of these types. Returns 0 for
// other files and for headers without a size. Returns -1 if the size is invalid.
int64_t count_header_bytes(const File& file, const Bytes& bytes) {
  const std::string_view header = view_as_text(bytes, bytes.size());
  if (header.starts_with("NIST_1A")) return count_sphere_bytes(header);
  return header.starts_with("RIFF") ? count_wav_bytes(file) : 0;
}

// Returns whether an Ogg file ends with a page that is marked as the last page. Decoders do not report a
// missing last page.
bool has_last_ogg_page(const File& file) {
  Bytes bytes(std::min(file.size(), kMaxOggPageBytes));
  file.read_at(bytes.data(), bytes.size(), file.size() - bytes.size());
  const std::string_view text = view_as_text(bytes, bytes.size());
  const size_t page = text.rfind("OggS");
  return page != std::string_view::npos && page + 6 <= text.size() && (bytes[page + 5] & 4);
}

// Throws DataError if a file is empty or truncated.
void check_length(const File& file, const Bytes& header) {
  const auto found = static_cast<int64_t>(file.size());
  if (found == 0) throw DataError(file.path() + ": is empty");
  const int64_t expected = count_header_bytes(file, header);
  if (expected < 0 || expected > found)
    throw DataError(concat_text(file.path(), ": truncated: the header says ",
                                expected < 0 ? "more than a file can contain" : std::to_string(expected),
                                " bytes, found ", found));
  if (view_as_text(header, header.size()).starts_with("OggS") && !has_last_ogg_page(file))
    throw DataError(file.path() + ": truncated: the Ogg stream has no last page");
}

// Returns whether open_sound() can detect that a file with this header and format is truncated.
bool detects_truncation(std::string_view header, int format) {
  switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
    case SF_FORMAT_WAVEX:
      return header.starts_with("RIFF");
    case SF_FORMAT_NIST:
      return header.starts_with("NIST_1A");
    case SF_FORMAT_OGG:
      return header.starts_with("OggS");
    default:
      return (format & SF_FORMAT_TYPEMASK) == SF_FORMAT_FLAC;
  }
}

// Counts the samples per channel of a file whose header has no length. Stops when the count exceeds `limit`.
int64_t count_frames(const Sound& file, const SF_INFO& info, const std::filesystem::path& path,
                     int64_t limit) {
  std::vector<float> block(static_cast<size_t>(kBlockFrames * info.channels));
  int64_t count = 0;
  while (const sf_count_t got = sf_readf_float(file.get(), block.data(), kBlockFrames)) {
    count += got;
    if (count > limit) return count;
  }
  if (sf_error(file.get()) != SF_ERR_NO_ERROR)
    throw DataError(path.string() + ": truncated or corrupt: " + sf_strerror(file.get()));
  return count;
}

void check_format(const std::string& name, const SF_INFO& info) {
  if (info.samplerate < 1 || info.samplerate > kMaxFileRate)
    throw DataError(
        concat_text(name, ": expected 1 to ", kMaxFileRate, " samples per second, found ", info.samplerate));
  if (info.channels < 1 || info.channels > kMaxFileChannels)
    throw DataError(
        concat_text(name, ": expected 1 to ", kMaxFileChannels, " channels, found ", info.channels));
}

// Opens a recording and fills `info`. If the header does not contain the number of samples, decodes the file
// to count the samples, but only up to the end of the range that `options` selects.
Sound open_sound(const std::filesystem::path& path, SF_INFO& info, const AudioOptions& options) {
  require_regular_file(path);
  const File contents = open_data_file(path);
  const Bytes header = read_first_bytes(contents);
  const std::string_view text = view_as_text(header, header.size());
  if (text.starts_with("NIST_1A") && sphere_field(text, "sample_coding").find("shorten") != std::string::npos)
    throw DataError(
        path.string() +
        ": SPHERE compressed with shorten, which cannot be read; unpack it first (NIST's w_decode "
        "-o pcm, or sph2pipe)");
  check_length(contents, header);
  Sound file(sf_open(path.c_str(), SFM_READ, &info), sf_close);
  if (!file) throw DataError(path.string() + ": not a readable audio file: " + sf_strerror(nullptr));
  if (!detects_truncation(text, info.format))
    throw DataError(path.string() +
                    ": expected WAV, FLAC, Ogg or SPHERE, found a container in which truncation "
                    "cannot be detected; convert it first");
  check_format(path.string(), info);
  if (info.frames != SF_COUNT_MAX) return file;
  const int64_t length = convert_to_sample_count(options.max_seconds, info.samplerate);
  int64_t end = 0;
  if (__builtin_add_overflow(options.first_sample, length, &end)) end = length;
  info.frames = count_frames(file, info, path, options.end_sample.value_or(end));
  SF_INFO again{};
  file.reset(sf_open(path.c_str(), SFM_READ, &again));
  if (!file) throw DataError(path.string() + ": not a readable audio file: " + sf_strerror(nullptr));
  return file;
}

// Throws DataError if the descriptor is a regular WAV file that is shorter than its header says. libsndfile
// does not report this error. Lengths of at least kMinUnknownBytes are treated as unknown.
void check_pipe_length(const AudioPipe& pipe) {
  constexpr int64_t kMinUnknownBytes = 2 * kMinUnknownFrames;  // for 16-bit mono samples
  struct stat status {};
  if (fstat(pipe.descriptor, &status) != 0 || !S_ISREG(status.st_mode) ||
      lseek(pipe.descriptor, 0, SEEK_CUR) != 0)
    return;
  const File file(dup(pipe.descriptor), pipe.name);
  const Bytes header = read_first_bytes(file);
  if (view_as_text(header, header.size()).starts_with("RIFF") &&
      count_header_bytes(file, header) < kMinUnknownBytes)
    check_length(file, header);
}

Sound open_pipe(const AudioPipe& pipe, int64_t rate, SF_INFO& info) {
  if (pipe.is_raw) {
    if (rate <= 0) throw DataError(pipe.name + ": samples without a header need a rate");
    info.format = SF_FORMAT_RAW | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE;
    info.samplerate = static_cast<int>(rate);
    info.channels = 1;
  } else {
    check_pipe_length(pipe);
  }
  Sound file(sf_open_fd(pipe.descriptor, SFM_READ, &info, SF_FALSE), sf_close);
  if (file) check_format(pipe.name, info);
  const int container = info.format & SF_FORMAT_TYPEMASK;
  if (file && (pipe.is_raw || container == SF_FORMAT_WAV || container == SF_FORMAT_WAVEX)) return file;
  throw DataError(pipe.name + ": expected a WAV stream" +
                  (file ? ", found another kind of audio" : std::string(": ") + sf_strerror(nullptr)));
}

}  // namespace

struct AudioStream::Source {
  Sound sound{nullptr, sf_close};
  SF_INFO info{};
  bool endless = false;  // whether the length is unknown
};

AudioStream::AudioStream(const std::filesystem::path& path, const AudioOptions& options)
    : name_(path.string()), options_(options), source_(std::make_unique<Source>()) {
  source_->sound = open_sound(path, source_->info, options);
  start();
}

AudioStream::AudioStream(const AudioPipe& pipe, const AudioOptions& options)
    : name_(pipe.name), options_(options), source_(std::make_unique<Source>()) {
  source_->sound = open_pipe(pipe, options.rate, source_->info);
  source_->endless = pipe.is_raw || source_->info.frames >= kMinUnknownFrames;
  if (source_->endless) source_->info.frames = std::numeric_limits<int64_t>::max();
  start();
}

AudioStream::~AudioStream() = default;

void AudioStream::start() {
  const SF_INFO& info = source_->info;
  if (info.frames <= 0) throw DataError(name_ + ": contains no samples");
  if (info.channels > 1 && !options_.channel)
    throw DataError(
        concat_text(name_, ": has ", info.channels, " channels, expected 1; the option channel chooses one"));
  const int64_t channel = options_.channel.value_or(0);
  if (channel < 0 || channel >= info.channels)
    throw DataError(concat_text(name_, ": has no channel ", channel, ", found ", info.channels, " channels"));
  if (options_.rate > 0 && options_.rate != info.samplerate && !options_.resample)
    throw DataError(concat_text(name_, ": expected ", options_.rate, " samples per second, found ",
                                info.samplerate, "; the option resample converts it"));
  position_ = options_.first_sample;
  last_ = options_.end_sample.value_or(info.frames);
  if (position_ < 0 || position_ >= last_ || last_ > info.frames)
    throw DataError(concat_text(name_, ": samples ", options_.first_sample, " to ", last_,
                                " are out of range, the recording has ", info.frames));
  if (!source_->endless) check_limit(last_ - position_);  // throws before any sample is decoded
  if (position_ > 0 && sf_seek(source_->sound.get(), position_, SEEK_SET) != position_)
    throw DataError(concat_text(name_, ": sample ", position_,
                                " cannot be reached: ", sf_strerror(source_->sound.get())));
  rate_ = options_.rate > 0 ? options_.rate : info.samplerate;
  resampler_.emplace(info.samplerate, rate_);
  frames_.resize(static_cast<size_t>(std::max<int64_t>(1, info.samplerate / kBlocksPerSecond)) *
                 static_cast<size_t>(info.channels));
}

void AudioStream::check_limit(int64_t samples) const {
  const int64_t rate = source_->info.samplerate;
  if (samples > convert_to_sample_count(options_.max_seconds, rate))
    throw DataError(
        concat_text(name_, ": is longer than the limit of ", options_.max_seconds, " s (max_seconds)"));
}

std::span<const float> AudioStream::next() {
  const auto channels = static_cast<size_t>(source_->info.channels);
  samples_.clear();
  while (samples_.empty() && !has_ended_) {
    const int64_t wanted = std::min(static_cast<int64_t>(frames_.size() / channels), last_ - position_);
    const sf_count_t got = sf_readf_float(source_->sound.get(), frames_.data(), wanted);
    position_ += got;
    check_limit(position_ - options_.first_sample);
    if (got < wanted && (!source_->endless || sf_error(source_->sound.get()) != SF_ERR_NO_ERROR))
      throw DataError(
          concat_text(name_, ": truncated or corrupt: expected ", last_, " samples, found ", position_));
    if (got > 0 && channels > 1) {
      const auto channel = static_cast<size_t>(options_.channel.value_or(0));
      for (size_t i = 0; i < static_cast<size_t>(got); ++i) frames_[i] = frames_[i * channels + channel];
    }
    resampler_->push({frames_.data(), static_cast<size_t>(got)}, samples_);
    has_ended_ = got < wanted || position_ == last_;
    if (has_ended_) resampler_->finish(samples_);
  }
  return samples_;
}

AudioInfo read_audio_info(const std::filesystem::path& path, double max_seconds) {
  SF_INFO info{};
  const Sound file = open_sound(path, info, {.max_seconds = max_seconds});
  return {info.samplerate, info.channels, info.frames};
}

Audio read_audio(const std::filesystem::path& path, const AudioOptions& options) {
  AudioStream stream(path, options);
  Audio audio{{}, stream.rate()};
  for (auto block = stream.next(); !block.empty(); block = stream.next())
    audio.samples.insert(audio.samples.end(), block.begin(), block.end());
  return audio;
}

void write_wav(const std::filesystem::path& path, std::span<const float> samples, int64_t rate) {
  SF_INFO info{};
  info.samplerate = static_cast<int>(rate);
  info.channels = 1;
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  const Sound file(sf_open(path.c_str(), SFM_WRITE, &info), sf_close);
  if (!file) throw DataError(path.string() + ": cannot be written: " + sf_strerror(nullptr));
  std::vector<int16_t> words(samples.size());
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<int16_t>(std::clamp(std::lround(samples[i] * 32768.0f), -32768l, 32767l));
  const auto count = static_cast<sf_count_t>(words.size());
  if (sf_write_short(file.get(), words.data(), count) != count)
    throw DataError(path.string() + ": cannot be written: " + sf_strerror(file.get()));
  sf_write_sync(file.get());
}

bool is_silent(std::span<const float> samples) {
  return std::all_of(samples.begin(), samples.end(), [&](float sample) { return sample == samples.front(); });
}

}  // namespace tapeformer
