#include "data/audio/sound_file.h"

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "core/errors.h"
#include "data/audio/sound_header.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

constexpr int kMaxFileRate = 1 << 20, kMaxFileChannels = 1024;

File open_sound_file(const std::filesystem::path& path) {
  require_regular_file(path);
  return open_data_file(path);
}

void check_format(const std::string& name, const SF_INFO& info) {
  if (info.samplerate < 1 || info.samplerate > kMaxFileRate)
    throw DataError(
        concat_text(name, ": expected 1 to ", kMaxFileRate, " samples per second, found ", info.samplerate));
  if (info.channels < 1 || info.channels > kMaxFileChannels)
    throw DataError(
        concat_text(name, ": expected 1 to ", kMaxFileChannels, " channels, found ", info.channels));
}

}  // namespace

SoundFile::SoundFile(const std::filesystem::path& path) : bytes_(open_sound_file(path)) {
  const SoundHeader header = read_sound_header(bytes_);
  length_ = bytes_.size();
  open();
  if (!sound_) throw DataError(path.string() + ": not a readable audio file: " + sf_strerror(nullptr));
  if (header.container == SoundContainer::other && (info_.format & SF_FORMAT_TYPEMASK) != SF_FORMAT_FLAC)
    throw DataError(path.string() +
                    ": expected WAV, AU, FLAC, Ogg or SPHERE, found a container in which truncation "
                    "cannot be detected; convert it first");
  check_format(path.string(), info_);
}

SoundFile::SoundFile(const AudioPipe& pipe, int64_t rate) : bytes_(pipe.descriptor, pipe.name) {
  length_ = bytes_.size();
  bool is_endless = bytes_.is_pipe();
  if (pipe.is_raw) {
    if (rate <= 0) throw DataError(pipe.name + ": samples without a header need a rate");
    info_.format = SF_FORMAT_RAW | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE;
    info_.samplerate = static_cast<int>(rate);
    info_.channels = 1;
  } else {
    const SoundHeader header = read_sound_header(bytes_);
    if (header.container != SoundContainer::wav)
      throw DataError(pipe.name + ": expected a WAV stream, found other data");
    if (is_endless && header.end) {
      is_endless = false;
      length_ = *header.end;
    }
    // The decoders of compressed samples do not notice the end of a pipe.
    if (is_endless && !header.is_uncompressed_wav)
      throw DataError(pipe.name +
                      ": a WAV stream without a length has compressed samples, expected PCM, float, A-law or "
                      "mu-law samples");
  }
  open();
  if (!sound_) throw DataError(pipe.name + ": expected a WAV stream: " + sf_strerror(nullptr));
  check_format(pipe.name, info_);
  bytes_.end_header();
  if (is_endless) info_.frames = SF_COUNT_MAX;
}

SF_VIRTUAL_IO SoundFile::make_callbacks() {
  SF_VIRTUAL_IO callbacks{};
  callbacks.get_filelen = [](void* user) { return static_cast<SoundFile*>(user)->length_; };
  callbacks.tell = [](void* user) { return static_cast<SoundFile*>(user)->position_; };
  callbacks.seek = [](sf_count_t offset, int whence, void* user) {
    auto& file = *static_cast<SoundFile*>(user);
    const sf_count_t start = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.position_ : file.length_;
    sf_count_t position = 0;
    if (__builtin_add_overflow(start, offset, &position) || position < 0) return sf_count_t{-1};
    return file.position_ = position;
  };
  callbacks.read = [](void* data, sf_count_t count, void* user) {
    auto& file = *static_cast<SoundFile*>(user);
    try {
      const auto got = static_cast<sf_count_t>(
          file.bytes_.read_at(data, static_cast<size_t>(count), static_cast<size_t>(file.position_)));
      file.position_ += got;
      return got;
    } catch (const std::bad_alloc&) {
      return sf_count_t{0};  // an exception must not leave a function that C code calls
    }
  };
  callbacks.write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; };
  return callbacks;
}

void SoundFile::open() {
  SF_VIRTUAL_IO callbacks = make_callbacks();
  position_ = 0;
  if ((info_.format & SF_FORMAT_TYPEMASK) != SF_FORMAT_RAW) info_ = {};
  sound_.reset(sf_open_virtual(&callbacks, SFM_READ, &info_, this));
}

int64_t SoundFile::decode(int64_t count) {
  constexpr int64_t kBlock = 1 << 12;
  std::vector<float> block(static_cast<size_t>(std::min(count, kBlock) * info_.channels));
  int64_t done = 0;
  while (const int64_t got = read(block.data(), std::min(count - done, kBlock))) done += got;
  return done;
}

void SoundFile::count_frames(int64_t limit) {
  const int64_t count = decode(limit < SF_COUNT_MAX ? limit + 1 : limit);
  if (has_failed()) throw DataError(bytes_.name() + ": truncated or corrupt: " + sf_strerror(sound_.get()));
  open();
  if (!sound_) throw DataError(bytes_.name() + ": not a readable audio file: " + sf_strerror(nullptr));
  info_.frames = count;
}

void SoundFile::skip_to(int64_t position) {
  if (position == 0) return;
  if (!bytes_.is_pipe()) {
    if (sf_seek(sound_.get(), position, SEEK_SET) == position) return;
    const sf_count_t frames = info_.frames;
    open();
    info_.frames = frames;
  }
  if (const int64_t count = sound_ ? decode(position) : 0; count < position)
    throw DataError(concat_text(bytes_.name(), ": truncated or corrupt: expected more than ", position,
                                " samples, found ", count));
}

int64_t SoundFile::read(float* samples, int64_t count) {
  return sf_readf_float(sound_.get(), samples, count);
}

bool SoundFile::has_failed() const {
  const bool ended_early = info_.frames != SF_COUNT_MAX && bytes_.ends_before(length_);
  return ended_early || bytes_.has_failed() || sf_error(sound_.get()) != SF_ERR_NO_ERROR;
}

}  // namespace tapeformer
