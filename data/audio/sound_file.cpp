#include "data/audio/sound_file.h"

#include <sndfile.h>

#include <algorithm>
#include <new>
#include <vector>

#include "core/base/errors.h"
#include "data/audio/sound_header.h"
#include "data/files/file.h"

#ifdef __SANITIZE_ADDRESS__
// Suppresses reports of a leak in libsndfile 1.2, which does not free the headers of damaged Vorbis streams.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:vorbis_info_init\n";
}
#endif

namespace tapeformer {

// The functions that libsndfile calls to read the bytes of a SoundFile.
struct SoundFile::Callbacks {
  static sf_count_t get_length(void* user) { return static_cast<SoundFile*>(user)->length_; }
  static sf_count_t tell(void* user) { return static_cast<SoundFile*>(user)->position_; }

  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    auto& file = *static_cast<SoundFile*>(user);
    const sf_count_t start = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.position_ : file.length_;
    sf_count_t position = 0;
    if (__builtin_add_overflow(start, offset, &position) || position < 0) return -1;
    return file.position_ = position;
  }

  static sf_count_t read(void* data, sf_count_t count, void* user) {
    auto& file = *static_cast<SoundFile*>(user);
    try {
      const size_t got =
          file.bytes_.read_at(data, static_cast<size_t>(count), static_cast<size_t>(file.position_));
      file.position_ += static_cast<int64_t>(got);
      return static_cast<sf_count_t>(got);
    } catch (const std::bad_alloc&) {
      return 0;  // an exception must not leave a function that C code calls
    }
  }

  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
};

struct SoundFile::Decoder {
  explicit Decoder(SNDFILE* opened) : file(opened) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { sf_close(file); }
  SNDFILE* file;
};

SoundFile::SoundFile(const std::filesystem::path& path) : bytes_(open_data_file(path)) {
  const SoundHeader header = read_sound_header(bytes_);
  length_ = bytes_.size();
  const int container = open() & SF_FORMAT_TYPEMASK;
  if (header.container == SoundContainer::other && container != SF_FORMAT_FLAC)
    throw DataError(path.string() +
                    ": expected WAV, AU, FLAC, Ogg or SPHERE, found a container in which truncation "
                    "cannot be detected; convert it first");
}

SoundFile::SoundFile(int descriptor, const std::string& name, int64_t raw_rate)
    : bytes_(descriptor, name), length_(bytes_.size()) {
  bool is_endless = bytes_.is_pipe();
  if (raw_rate == 0) {
    const SoundHeader header = read_sound_header(bytes_);
    if (header.container != SoundContainer::wav)
      throw DataError(name + ": expected a WAV stream, found other data");
    if (is_endless && header.end) {
      is_endless = false;
      length_ = *header.end;
    }
    // The decoders of compressed samples do not notice the end of a pipe.
    if (is_endless && !header.is_uncompressed_wav)
      throw DataError(name +
                      ": a WAV stream without a length has compressed samples, expected PCM, float, A-law or "
                      "mu-law samples");
  }
  open(raw_rate);
  bytes_.end_header();
  if (is_endless) sample_count_ = kUnknownCount;
}

SoundFile::~SoundFile() = default;

int SoundFile::open(int64_t raw_rate) {
  constexpr int kMaxRate = 1 << 20, kMaxChannels = 1024;
  SF_VIRTUAL_IO callbacks{Callbacks::get_length, Callbacks::seek, Callbacks::read, Callbacks::write,
                          Callbacks::tell};
  SF_INFO info{};
  if (raw_rate > 0) {
    info.format = SF_FORMAT_RAW | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE;
    info.samplerate = static_cast<int>(raw_rate);
    info.channels = 1;
  }
  decoder_.reset();
  position_ = 0;
  SNDFILE* const file = sf_open_virtual(&callbacks, SFM_READ, &info, this);
  if (!file) throw DataError(bytes_.name() + ": not a readable audio file: " + sf_strerror(nullptr));
  decoder_ = std::make_unique<Decoder>(file);
  if (info.samplerate < 1 || info.samplerate > kMaxRate)
    throw DataError(concat_text(bytes_.name(), ": expected 1 to ", kMaxRate, " samples per second, found ",
                                info.samplerate));
  if (info.channels < 1 || info.channels > kMaxChannels)
    throw DataError(
        concat_text(bytes_.name(), ": expected 1 to ", kMaxChannels, " channels, found ", info.channels));
  rate_ = info.samplerate;
  channel_count_ = info.channels;
  sample_count_ = info.frames == SF_COUNT_MAX ? kUnknownCount : info.frames;
  return info.format;
}

int64_t SoundFile::decode(int64_t count) {
  constexpr int64_t kBlock = 1 << 12;
  std::vector<float> block(static_cast<size_t>(std::min(count, kBlock) * channel_count_));
  int64_t done = 0;
  while (const int64_t got = read(block.data(), std::min(count - done, kBlock))) done += got;
  return done;
}

void SoundFile::count_samples(int64_t limit) {
  const int64_t count = decode(limit < kUnknownCount ? limit + 1 : limit);
  if (has_failed()) throw DataError(bytes_.name() + ": truncated or corrupt: " + sf_strerror(decoder_->file));
  open();
  sample_count_ = count;
}

void SoundFile::skip_to(int64_t position) {
  if (position == 0) return;
  if (!bytes_.is_pipe()) {
    if (sf_seek(decoder_->file, position, SEEK_SET) == position) return;
    const int64_t count = sample_count_;
    open();
    sample_count_ = count;
  }
  if (const int64_t count = decode(position); count < position)
    throw DataError(concat_text(bytes_.name(), ": truncated or corrupt: expected more than ", position,
                                " samples, found ", count));
}

int64_t SoundFile::read(float* samples, int64_t count) {
  return sf_readf_float(decoder_->file, samples, count);
}

bool SoundFile::has_failed() const {
  const bool ended_early = sample_count_ != kUnknownCount && bytes_.ends_before(length_);
  return ended_early || bytes_.has_failed() || sf_error(decoder_->file) != SF_ERR_NO_ERROR;
}

}  // namespace tapeformer
