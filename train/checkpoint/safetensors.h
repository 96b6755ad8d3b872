// A reader and writer of safetensors files (https://github.com/huggingface/safetensors). A file consists of
// three parts: the length of the header as 8 little-endian bytes, a JSON header, and the data. The header
// contains the dtype, the shape and the byte range of each tensor. BOOL is read as uint8.
//
// The reader checks the header against the size of the file before it allocates tensors. A damaged or
// malicious file causes a CheckpointError, but no crash and no allocation larger than the file. The message
// names the file and the expected value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/system/files.h"
#include "core/tensor.h"
#include "data/files/checksum.h"
#include "train/checkpoint/safetensors_header.h"

namespace tapeformer {

// Writes tensors with any strides to an empty file, syncs the file and returns its checksum. Throws FileError
// if the file cannot be written.
Checksum write_safetensors(File& file, const std::map<std::string, Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {});
// Writes tensors with any strides to the file at `path`, syncs the file and returns its checksum. Creates the
// file or overwrites it. Throws FileError if the file cannot be written.
Checksum write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {});

// An open file with a valid header. The constructor reads only the header. It throws CheckpointError if the
// file cannot be read or its header is invalid.
class SafetensorsFile {
 public:
  using Entry = SafetensorsEntry;

  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Reads the tensor `name` from the file and returns it on the CPU. Throws CheckpointError if the file has
  // no tensor with this name or cannot be read.
  Tensor read(const std::string& name) const;

  // Throws CheckpointError if the names or shapes of the tensors in the file differ from `expected`, or if a
  // dtype differs and cannot be converted. Floating dtypes can be converted. The message lists missing and
  // unexpected names, and mismatched shapes and dtypes.
  void check_tensors(const std::vector<std::pair<std::string, Tensor>>& expected) const;
  // Throws CheckpointError if the checksum of the file differs from `expected`. Reads the whole file.
  void verify(const Checksum& expected) const;
  // Loads all tensors of the file into `expected` and converts between floating dtypes. Throws
  // CheckpointError if tensors are missing, unexpected, or have a different shape or an incompatible dtype;
  // the message lists their names. Also throws CheckpointError if the file does not match `checksum`. If the
  // function throws, no tensor is changed, unless the file becomes unreadable while it is loaded.
  void load_into(const std::vector<std::pair<std::string, Tensor>>& expected,
                 const std::optional<Checksum>& checksum = {}) const;

 private:
  // Returns the names and the entries of all tensors, in the order of their bytes in the file. The tensors
  // cover the data section without gaps.
  std::vector<std::pair<std::string, const Entry*>> list_in_file_order() const;
  // Reads a tensor, and updates `checksum` with the bytes of the tensor.
  Tensor read(const Entry& entry, Checksum& checksum) const;

  File file_;
  Checksum header_checksum_;  // checksum of the bytes before the data section
  uint64_t data_begin_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace tapeformer
