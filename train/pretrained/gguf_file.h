// A reader of GGUF files, versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// The reader checks the header against the size of the file before it allocates memory. A damaged or
// malicious file causes a CheckpointError, which names the file and the expected value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/system/files.h"
#include "train/pretrained/gguf_types.h"
#include "train/pretrained/weight_source.h"

namespace tapeformer {

// An open file. The constructor reads the metadata and the list of tensors, and read() reads the values.
class GgufFile final : public WeightSource {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const override { return file_.path(); }
  const std::map<std::string, WeightEntry>& entries() const override { return entries_; }
  Tensor read(const std::string& name) const override;

  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  bool has(const std::string& key) const { return metadata_.contains(key); }
  // Returns the value of a key. Throws CheckpointError if the key is missing or if its value has another
  // type. An integer is also a double. GgufFile::get() exists for the types of GgufValue.
  template <class T>
  T get(const std::string& key) const;

 private:
  struct Location {
    const GgufType* type = nullptr;
    uint64_t offset = 0, bytes = 0;  // the offset is from the start of the file
  };

  File file_;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, WeightEntry> entries_;
  std::map<std::string, Location> locations_;
};

}  // namespace tapeformer
