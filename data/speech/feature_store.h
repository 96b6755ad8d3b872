// A store of the features of a corpus, in memory or in a file of a cache folder. The features are computed
// once, with the dither of epoch 0. The features are not normalised or augmented.
//
// If a recording or feature file cannot be used, FeatureStore does not throw. Instead, error() returns the
// reason. The cache file contains the features and the errors. A cache file with transient errors is deleted,
// so the next run computes the features again. Transient errors can disappear although the files do not
// change: errors of commands, system errors, and missing read permissions.
//
// If a cache file is damaged, FeatureStore logs a warning and computes the features again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/tensor.h"
#include "data/audio/audio.h"
#include "data/audio/filterbank.h"
#include "data/files/checksum.h"
#include "data/files/command.h"
#include "data/speech/corpus.h"

namespace tapeformer {

struct FeatureOptions {
  FilterbankOptions filterbank;  // options of the features of recordings
  // If true, recordings with rates other than filterbank.rate are resampled. If false, such recordings are
  // errors.
  bool resample = false;
  // Index of the channel that is read, counted from 0. Required for recordings with several channels.
  std::optional<int64_t> channel = {};
  int64_t mfc_dims = 13;      // number of dimensions of the features in .mfc files
  double max_seconds = 3600;  // maximum length of a recording or segment; 0: no limit
  uint64_t seed = 0;          // seed of the dither
  std::string cache_folder;   // folder of cache files; empty: features are kept in memory

  AudioOptions make_audio_options() const {
    return {.channel = channel, .rate = filterbank.rate, .resample = resample, .max_seconds = max_seconds};
  }
  bool operator==(const FeatureOptions&) const = default;
};

// The part of a segment after the end of its recording, or of a range after the end of its matrix.
struct FeatureCut {
  double seconds = 0;  // of a segment
  int64_t rows = 0;    // of a range
};

// Calls f(path) with the path of the recording of an utterance. If the utterance has a command, runs the
// command and passes the path of its output.
template <class F>
auto call_with_recording(const Utterance& utterance, F&& f) {
  if (utterance.command.empty()) return f(utterance.path);
  const CommandOutput output(utterance.command);
  try {
    return f(output.path());
  } catch (const DataError& error) {
    std::string message = error.what();
    const std::string prefix = output.path().string() + ": ";  // a path that readers cannot open
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
    throw DataError("the output of \"" + utterance.command + "\": " + message);
  }
}

// Returns the features of one utterance, (frames, dims) float32. Dither depends on the seed, the id and the
// epoch. Commands are run at every call. Recordings are decoded in blocks, so they do not have to fit into
// memory. A segment that ends less than 0.5 s after its recording is cut, as in Kaldi, and so is a range that
// ends at most 3 rows after its matrix. If `cut` is not null, sets *cut. Throws DataError if the recording
// cannot be read, is silent or is shorter than a frame, or if the segment or range exceeds these limits.
Tensor compute_features(const Utterance& utterance, const FeatureOptions& options,
                        const Filterbank& filterbank, int64_t epoch = 0, FeatureCut* cut = nullptr);

// Returns a text with the numbers of cut segments and ranges. Segments that are cut by at most 0.1 s are not
// counted, because times are often rounded. Returns "" if nothing is counted.
std::string describe_cuts(const std::vector<FeatureCut>& cuts);

// Returns the name of the cache file of these features, without the suffix. The name is a hash of all options
// except cache_folder and of the properties of each utterance: the id, the path, the command, the source, the
// position in the recording or archive, the channel, and the size and modification time of the file. The
// contents of files are not hashed.
std::string make_cache_key(const Corpus& corpus, const FeatureOptions& options);

// The features of all utterances of a corpus. Immutable and thread-safe after construction, which uses the
// thread pool.
class FeatureStore {
 public:
  FeatureStore(const Corpus& corpus, const FeatureOptions& options);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  // Returns the number of frames, or 0 if the utterance has an error.
  int64_t frame_count(int64_t i) const { return entries_[static_cast<size_t>(i)].frames; }
  int64_t dims() const { return dims_; }
  const std::string& error(int64_t i) const { return entries_[static_cast<size_t>(i)].error; }
  bool is_from_cache() const { return is_from_cache_; }
  // Returns the features of an utterance as a new tensor, (frames, dims). Throws DataError if the utterance
  // has an error.
  Tensor features(int64_t i) const;

 private:
  struct Entry {
    int64_t frames = 0, dims = 0, offset = 0;
    std::string error;
    bool is_error_transient = false;
  };
  void compute(const Corpus& corpus, const FeatureOptions& options, File* file);
  void load_or_write_cache(const Corpus& corpus, const FeatureOptions& options);
  bool open_cache(const std::string& path, int64_t count);
  bool parse_index(const std::string& index, int64_t data_bytes);
  void write_index(File& file, Checksum checksum) const;

  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<const File> file_;
  int64_t dims_ = 0;
  bool is_from_cache_ = false;
};

}  // namespace tapeformer
