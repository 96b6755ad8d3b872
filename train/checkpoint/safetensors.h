// The safetensors format: 8 bytes of header length (little-endian), a JSON header that gives dtype, shape and
// byte range of every tensor, then the data. https://github.com/huggingface/safetensors
//
// The reader trusts nothing: it checks the whole header against the size of the file before it allocates
// anything, so a damaged or hostile file costs an error, never a crash or memory beyond the file's own size.
// Every problem is a CheckpointError that names the file and what was expected.
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

namespace tapeformer {

// Writes tensors of any strides to an empty file, syncs it and returns its checksum. Throws FileError.
Checksum write_safetensors(File& file, const std::map<std::string, Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {});
// Writes the file at a path, which is created or overwritten.
Checksum write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {});

// An open file whose header has been checked. Tensors are read when asked for.
class SafetensorsFile {
 public:
  struct Entry {
    DType dtype = DType::float32;
    Shape shape;
    uint64_t begin = 0, end = 0;  // bytes of the data section
  };

  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  Tensor read(const std::string& name) const;

  // Throws CheckpointError if the names, shapes or dtypes of the tensors in the file are not as expected. The
  // error lists missing and unexpected names and mismatched shapes.
  void check_names_and_forms(const std::vector<std::pair<std::string, Tensor>>& expected) const;
  // Reads every named tensor in place, converting between floating dtypes. The names must be those of the
  // file: all missing, extra and mis-shaped tensors and wrong dtypes are named in one error. If `checksum` is
  // given, the file must match it. If an error is thrown, no tensor is overwritten.
  void load_into(const std::vector<std::pair<std::string, Tensor>>& expected,
                 const std::optional<Checksum>& checksum = {}) const;

 private:
  // Reads a tensor and appends its bytes to a checksum.
  Tensor read(const Entry& entry, Checksum& checksum) const;

  File file_;
  Checksum header_;  // of the bytes before the data
  uint64_t data_begin_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace tapeformer
