#include "data/speech/feature_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "core/system/log.h"
#include "core/threads/threads.h"
#include "data/files/file.h"
#include "data/speech/features.h"
#include "data/speech/kaldi_archive.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Last bytes of every cache file. The number in kMagic is the version of the file format and of the feature
// computation.
constexpr char kMagic[] = "tapeformer features 5\n";
// Number of seconds by which a segment may exceed its recording. The segment ends with the recording then.
// The limit of extract-segments in Kaldi is the same.
constexpr double kMaxOvershoot = 0.5;

// Returns the FNV-1a hash of a text, with the initial value `start`.
uint64_t hash(const std::string& text, uint64_t start) {
  for (const unsigned char c : text) start = (start ^ c) * 0x100000001B3u;
  return start;
}

int64_t sample_at(double seconds, int64_t rate) {
  return std::llround(std::min(seconds, 1e9) * static_cast<double>(rate));
}

// Returns the options for reading the recording or segment of an utterance. If the segment is cut at the end
// of the recording, sets *cut_seconds.
AudioOptions make_audio_range_options(const fs::path& path, const Utterance& utterance,
                                      const FeatureOptions& options, double* cut_seconds) {
  AudioOptions audio = options.make_audio_options();
  if (utterance.channel) audio.channel = utterance.channel;
  if (utterance.begin_seconds == 0 && !utterance.end_seconds) return audio;
  const double max_seconds = utterance.end_seconds ? *utterance.end_seconds + 2 * kMaxOvershoot : 0;
  const AudioInfo info = read_audio_info(path, max_seconds);
  if (info.sample_count == 0) return audio;  // AudioStream reports that the recording contains no samples
  const auto seconds = [&](int64_t samples) {
    return static_cast<double>(samples) / static_cast<double>(info.rate);
  };
  const auto fail = [&](const char* verb, double at) {
    throw DataError(concat_text("the segment ", verb, " at ", at, " s, outside of ", path.string(), " of ",
                                seconds(info.sample_count), " s"));
  };
  audio.first_sample = sample_at(utterance.begin_seconds, info.rate);
  if (audio.first_sample >= info.sample_count) fail("begins", utterance.begin_seconds);
  if (!utterance.end_seconds) return audio;
  audio.end_sample = sample_at(*utterance.end_seconds, info.rate);
  const int64_t overshoot = *audio.end_sample - info.sample_count;
  if (overshoot >= sample_at(kMaxOvershoot, info.rate)) fail("ends", *utterance.end_seconds);
  if (overshoot > 0) audio.end_sample = info.sample_count;
  if (cut_seconds) *cut_seconds = std::max(0.0, seconds(overshoot));
  return audio;
}

std::string source_of(const Utterance& utterance) {
  return utterance.command.empty() ? utterance.path.string() : "\"" + utterance.command + "\"";
}

Tensor concat_pieces(const std::vector<Tensor>& pieces, int64_t dims) {
  int64_t frames = 0;
  for (const Tensor& piece : pieces) frames += piece.size(0);
  const Tensor whole = Tensor::empty({frames, dims});
  float* out = whole.data<float>();
  for (const Tensor& piece : pieces) out = std::copy_n(piece.data<float>(), piece.numel(), out);
  return whole;
}

Tensor compute_recording_features(const fs::path& path, const Utterance& utterance,
                                  const FeatureOptions& options, const Filterbank& filterbank,
                                  const RandomStream& noise, double* cut_seconds) {
  AudioStream audio(path, make_audio_range_options(path, utterance, options, cut_seconds));
  FilterbankStream frames(filterbank, noise);
  std::vector<Tensor> pieces;
  std::vector<float> block;
  std::optional<float> first;
  bool silent = true;
  for (auto samples = audio.next(); !samples.empty(); samples = audio.next()) {
    if (!first) first = samples.front();
    silent = silent && std::all_of(samples.begin(), samples.end(), [&](float x) { return x == *first; });
    block.insert(block.end(), samples.begin(), samples.end());
    if (static_cast<int64_t>(block.size()) < audio.rate()) continue;
    pieces.push_back(frames.push(block));
    block.clear();
  }
  pieces.push_back(frames.push(block));
  pieces.push_back(frames.finish());
  const Tensor features = concat_pieces(pieces, filterbank.options().dims());
  if (features.size(0) == 0)
    throw DataError(
        concat_text(source_of(utterance), ": ", frames.sample_count(), " samples are less than a frame"));
  if (silent) throw DataError(source_of(utterance) + ": is silent: all samples are equal");
  return features;
}

Tensor require_valid(const Utterance& utterance, Tensor features) {
  if (features.numel() == 0)
    throw DataError(concat_text(source_of(utterance), ": no features, found ", features.shape()));
  if (const int64_t frame = find_non_finite_frame(features); frame >= 0)
    throw DataError(concat_text(source_of(utterance), ": frame ", frame, " has a value that is not finite"));
  return features;
}

// Returns whether the features of the utterance may be computed successfully later without a change of the
// cache key. A failed command can succeed later, and a file without read permission can become readable. A
// missing file (ENOENT) is not transient: if the file is created, make_cache_key() returns a different key.
bool may_be_transient(const Utterance& utterance) {
  return !utterance.command.empty() || (access(utterance.path.c_str(), R_OK) != 0 && errno != ENOENT);
}

constexpr char kSuffix[] = ".features";

Checksum compute_start_checksum(const File& file, size_t bytes) {
  constexpr size_t kBlock = size_t{1} << 24;
  std::vector<char> block(std::min(kBlock, bytes));
  Checksum checksum;
  for (size_t at = 0; at < bytes; at += kBlock)
    checksum.append(read_with_checksum(file, block.data(), std::min(kBlock, bytes - at), at));
  return checksum;
}

// Creates a temporary file for the cache file `path`. The temporary file is locked while it is open, so that
// other processes do not remove it.
File create_unfinished(const std::string& path) {
  File file(make_temporary_path(path), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
  ::flock(file.descriptor(), LOCK_EX | LOCK_NB);
  return file;
}

bool is_unfinished_cache(const std::string& name) {
  return name.find(std::string(kSuffix) + ".") != std::string::npos && is_temporary_name(name);
}

// Removes unfinished cache files that no process has locked.
void remove_leftovers(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!is_unfinished_cache(entry.path().filename().string()) ||
        !fs::is_regular_file(entry.symlink_status(ignored)))
      continue;
    try {
      const File file(entry.path().string(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) fs::remove(entry.path(), ignored);
    } catch (const FileError&) {
      // The file cannot be opened, for example because another process removed it.
    }
  }
}

}  // namespace

Tensor compute_features(const Utterance& utterance, const FeatureOptions& options,
                        const Filterbank& filterbank, int64_t epoch, FeatureCut* cut) {
  if (cut) *cut = {};
  if (utterance.source == SpeechSource::ark)
    return require_valid(utterance, read_ark_matrix(utterance.path, utterance.archive_offset,
                                                    utterance.matrix_range, cut ? &cut->rows : nullptr));
  if (utterance.source == SpeechSource::mfc)
    return require_valid(utterance, read_mfc(utterance.path, options.mfc_dims));
  const RandomStream noise(options.seed, "dither " + utterance.id, static_cast<uint64_t>(epoch));
  return require_valid(utterance, call_with_recording(utterance, [&](const fs::path& path) {
                         return compute_recording_features(path, utterance, options, filterbank, noise,
                                                           cut ? &cut->seconds : nullptr);
                       }));
}

std::string describe_cuts(const std::vector<FeatureCut>& cuts) {
  constexpr double kRoundingSeconds = 0.1;
  int64_t segment_count = 0, range_count = 0;
  FeatureCut longest;
  for (const FeatureCut& cut : cuts) {
    segment_count += cut.seconds > kRoundingSeconds;
    range_count += cut.rows > 0;
    longest.seconds = std::max(longest.seconds, cut.seconds);
    longest.rows = std::max(longest.rows, cut.rows);
  }
  std::string text;
  if (segment_count > 0)
    text = concat_text(segment_count, " segments end up to ", longest.seconds,
                       " s after their recordings and are cut");
  if (range_count > 0)
    text += concat_text(text.empty() ? "" : "; ", range_count, " ranges end up to ", longest.rows,
                        " rows after their matrices and are cut");
  return text;
}

std::string make_cache_key(const Corpus& corpus, const FeatureOptions& options) {
  const FilterbankOptions& bank = options.filterbank;
  std::ostringstream text;
  text << kMagic << std::setprecision(17);
  for (const double value : {static_cast<double>(bank.rate), bank.frame_ms, bank.shift_ms,
                             static_cast<double>(bank.bins), bank.low_hz, bank.high_hz, bank.preemphasis,
                             bank.dither, bank.snip_edges ? 1.0 : 0.0, bank.use_energy ? 1.0 : 0.0,
                             options.resample ? 1.0 : 0.0, static_cast<double>(options.channel.value_or(-1)),
                             static_cast<double>(options.mfc_dims), options.max_seconds})
    text << value << ' ';
  text << options.seed << '\n';
  for (const Utterance& utterance : corpus.utterances) {
    std::error_code error;
    const auto size = fs::file_size(utterance.path, error);
    const auto time = fs::last_write_time(utterance.path, error).time_since_epoch().count();
    text << utterance.id << '\t' << utterance.path.string() << '\t' << utterance.command << '\t'
         << static_cast<int>(utterance.source) << '\t' << utterance.begin_seconds << '\t'
         << utterance.end_seconds.value_or(-1) << '\t' << utterance.channel.value_or(-1) << '\t'
         << utterance.archive_offset << '\t' << utterance.matrix_range.to_string() << '\t' << size << '\t'
         << time << '\n';
  }
  std::ostringstream name;
  name << std::hex << std::setfill('0') << std::setw(16) << hash(text.str(), 0xCBF29CE484222325u)
       << std::setw(16) << hash(text.str(), 0x84222325CBF29CE4u);
  return name.str();
}

FeatureStore::FeatureStore(const Corpus& corpus, const FeatureOptions& options) {
  if (options.cache_folder.empty())
    compute(corpus, options, nullptr);
  else
    load_or_write_cache(corpus, options);
  for (Entry& entry : entries_) {
    if (!entry.error.empty()) continue;
    if (dims_ == 0) dims_ = entry.dims;
    if (entry.dims == dims_) continue;
    entry.error = concat_text("expected features of ", dims_, " dims, found ", entry.dims);
    entry.frames = 0;
  }
}

void FeatureStore::load_or_write_cache(const Corpus& corpus, const FeatureOptions& options) {
  const auto count = static_cast<int64_t>(corpus.utterances.size());
  std::error_code error;
  fs::create_directories(options.cache_folder, error);
  if (error)
    throw ConfigError(options.cache_folder +
                      ": cannot create this folder for the feature cache: " + error.message());
  remove_leftovers(options.cache_folder);
  const std::string path =
      (fs::path(options.cache_folder) / (make_cache_key(corpus, options) + kSuffix)).string();
  try {
    is_from_cache_ = open_cache(path, count);
    if (is_from_cache_) return;
    if (path_exists(path))
      log_warning(path, ": the feature cache is damaged; its features are computed again");
  } catch (const FileError& file_error) {
    log_warning(file_error.what(), "; the features are computed again");
  }
  // Several processes may write this cache file at the same time. Each process writes the same contents to a
  // separate temporary file and renames the temporary file to `path`, so the order of the processes does not
  // matter.
  File file = create_unfinished(path);
  try {
    compute(corpus, options, &file);
    file.sync();
    const bool keep = std::none_of(entries_.begin(), entries_.end(),
                                   [](const Entry& entry) { return entry.is_error_transient; });
    if (keep) rename_path(file.path(), path);
    const bool good = open_cache(keep ? path : file.path(), count);
    if (!keep) fs::remove(file.path());  // a deleted file stays readable while it is open
    if (!good) throw DataError(path + ": cannot be read back");
  } catch (...) {
    fs::remove(file.path(), error);
    throw;
  }
}

void FeatureStore::compute(const Corpus& corpus, const FeatureOptions& options, File* file) {
  constexpr int64_t kBlock = 256;  // utterances in memory at a time
  const Filterbank filterbank(options.filterbank);
  const auto count = static_cast<int64_t>(corpus.utterances.size());
  entries_.assign(static_cast<size_t>(count), {});
  std::vector<FeatureCut> cuts(static_cast<size_t>(count));
  Checksum written;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t block = std::min(kBlock, count - first);
    std::vector<Tensor> tensors(static_cast<size_t>(block));
    parallel_for(block, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Entry& entry = entries_[static_cast<size_t>(first + i)];
        try {
          const Tensor features = compute_features(corpus.utterances[static_cast<size_t>(first + i)], options,
                                                   filterbank, 0, &cuts[static_cast<size_t>(first + i)]);
          entry.frames = features.size(0);
          entry.dims = features.size(1);
          tensors[static_cast<size_t>(i)] = features;
        } catch (const DataError& error) {
          entry.error = error.what();
          entry.is_error_transient = may_be_transient(corpus.utterances[static_cast<size_t>(first + i)]);
        } catch (const std::runtime_error& error) {
          entry.error = error.what();
          entry.is_error_transient = true;
        }
      }
    });
    for (int64_t i = 0; i < block; ++i) {
      const Tensor& features = tensors[static_cast<size_t>(i)];
      if (file && features.defined()) {
        entries_[static_cast<size_t>(first + i)].offset = static_cast<int64_t>(written.bytes);
        file->write(features.raw_data(), static_cast<size_t>(features.bytes()));
        written.append(features.raw_data(), static_cast<size_t>(features.bytes()));
      } else if (!file) {
        tensors_.push_back(features);
      }
    }
  }
  if (const std::string text = describe_cuts(cuts); !text.empty()) log_warning(corpus.name, ": ", text);
  if (file) write_index(*file, written);
}

// Appends the index of the matrices to the file. The index ends with its own offset in the file, the CRC-32
// of all previous bytes of the file, and kMagic. `checksum` is the checksum of the matrices, which are
// already in the file.
void FeatureStore::write_index(File& file, Checksum checksum) const {
  std::string index;
  const auto append = [&](int64_t value) {
    index.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  append(size());
  for (const Entry& entry : entries_) {
    for (const int64_t value :
         {entry.frames, entry.dims, entry.offset, static_cast<int64_t>(entry.error.size())})
      append(value);
    index += entry.error;
  }
  append(static_cast<int64_t>(checksum.bytes));
  checksum.append(index.data(), index.size());
  append(checksum.crc32);
  index += kMagic;
  file.write(index.data(), index.size());
}

bool FeatureStore::parse_index(const std::string& index, int64_t data_bytes) {
  size_t at = 0;
  bool good = true;
  const auto next = [&] {
    int64_t value = -1;
    good = good && sizeof(value) <= index.size() - at;
    if (good) {
      std::memcpy(&value, index.data() + at, sizeof(value));
      at += sizeof(value);
    }
    return value;
  };
  if (next() != size()) return false;
  for (Entry& entry : entries_) {
    entry.frames = next();
    entry.dims = next();
    entry.offset = next();
    const int64_t length = next();
    int64_t values = 0, bytes = 0, end = 0;
    good = good && entry.frames >= 0 && entry.dims >= 0 && entry.offset >= 0 && length >= 0 &&
           static_cast<size_t>(length) <= index.size() - at &&
           !__builtin_mul_overflow(entry.frames, entry.dims, &values) &&
           !__builtin_mul_overflow(values, int64_t{sizeof(float)}, &bytes) &&
           !__builtin_add_overflow(bytes, entry.offset, &end) && end <= data_bytes;
    if (!good) return false;
    entry.error = index.substr(at, static_cast<size_t>(length));
    at += static_cast<size_t>(length);
  }
  return at == index.size();
}

bool FeatureStore::open_cache(const std::string& path, int64_t count) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  auto file = std::make_unique<File>(open_regular_file(path));
  int64_t start = 0, crc32 = 0;
  constexpr size_t kTail = sizeof(start) + sizeof(crc32) + sizeof(kMagic) - 1;
  const size_t total = file->size();
  if (total < kTail) return false;
  std::string tail(kTail, '\0');
  file->read_at(tail.data(), kTail, total - kTail);
  std::memcpy(&start, tail.data(), sizeof(start));
  std::memcpy(&crc32, tail.data() + sizeof(start), sizeof(crc32));
  if (tail.substr(sizeof(start) + sizeof(crc32)) != kMagic || start < 0 ||
      static_cast<size_t>(start) > total - kTail)
    return false;
  if (int64_t{compute_start_checksum(*file, total - kTail + sizeof(start)).crc32} != crc32) return false;
  std::string index(total - kTail - static_cast<size_t>(start), '\0');
  file->read_at(index.data(), index.size(), static_cast<size_t>(start));
  entries_.assign(static_cast<size_t>(count), {});
  if (!parse_index(index, start)) return false;
  file_ = std::move(file);
  return true;
}

Tensor FeatureStore::features(int64_t i) const {
  const Entry& entry = entries_[static_cast<size_t>(i)];
  if (!entry.error.empty()) throw DataError(entry.error);
  if (!file_) return tensors_[static_cast<size_t>(i)].clone();
  Tensor features = Tensor::empty({entry.frames, entry.dims});
  file_->read_at(features.raw_data(), static_cast<size_t>(features.bytes()),
                 static_cast<size_t>(entry.offset));
  return features;
}

}  // namespace tapeformer
