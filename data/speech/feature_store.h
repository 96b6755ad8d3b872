// The features of a corpus, computed once: held in memory, or in one file of a cache folder whose name is a
// hash of everything that they depend on, with the dither of epoch 0. What normalises or augments them comes
// later and is not part of it.
//
// A recording or feature file that cannot be used does not throw; error() returns the reason for its
// utterance. A cache stores these reasons. If a command or the system failed, no cache is written. The file
// ends with a checksum. If the file is damaged, a warning is logged and the features are computed again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/system/files.h"
#include "core/tensor.h"
#include "data/audio/audio.h"
#include "data/audio/filterbank.h"
#include "data/files/checksum.h"
#include "data/speech/corpus.h"

namespace tapeformer {

struct FeatureOptions {
  FilterbankOptions filterbank;         // for audio
  bool resample = false;                // recordings of another rate; else they are refused
  std::optional<int64_t> channel = {};  // of recordings that have several
  int64_t mfc_dims = 13;                // for .mfc files
  double max_seconds = 3600;            // maximum length of a recording or segment; 0: no limit
  uint64_t seed = 0;                    // of dither
  std::string cache_folder;             // empty: in memory

  // Returns the options for reading recordings.
  AudioOptions audio() const {
    return {.channel = channel, .rate = filterbank.rate, .resample = resample, .max_seconds = max_seconds};
  }
  bool operator==(const FeatureOptions&) const = default;
};

// Returns the features of one utterance, (frames, dims) float32. Dither depends on the seed, the id and the
// epoch. A command is run at every call. Recordings are decoded in blocks, so that they do not have to fit
// into memory. Throws DataError if the recording cannot be read, is silent or is shorter than a frame.
Tensor compute_features(const Utterance& utterance, const FeatureOptions& options,
                        const Filterbank& filterbank, int64_t epoch = 0);

// The name under which a cache keeps these features: changes with every option, and with the path, size and
// time of change of every file.
std::string cache_key(const Corpus& corpus, const FeatureOptions& options);

// Does not change after it is made; any thread may read. Making it uses the pool of threads.
class FeatureStore {
 public:
  FeatureStore(const Corpus& corpus, const FeatureOptions& options);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t frames(int64_t i) const {
    return entries_[static_cast<size_t>(i)].frames;
  }  // 0 where there is an error
  int64_t dims() const { return dims_; }
  const std::string& error(int64_t i) const { return entries_[static_cast<size_t>(i)].error; }
  bool from_cache() const { return from_cache_; }
  // A fresh tensor (frames, dims).
  Tensor features(int64_t i) const;

 private:
  struct Entry {
    int64_t frames = 0, dims = 0, offset = 0;
    std::string error;
    bool passing = false;  // the error may be gone at another time
  };
  void compute(const Corpus& corpus, const FeatureOptions& options, File* file);
  void use_cache(const Corpus& corpus, const FeatureOptions& options);
  bool open_cache(const std::string& path, int64_t count);
  bool parse_index(const std::string& index, int64_t data_bytes);
  void write_index(File& file, Checksum checksum) const;

  std::vector<Entry> entries_;
  std::vector<Tensor> held_;
  std::unique_ptr<const File> file_;
  int64_t dims_ = 0;
  bool from_cache_ = false;
};

}  // namespace tapeformer
