#include "data/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/errors.h"

namespace tapeformer {
void require_regular_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw DataError(path.string() + ": no such file");
  if (!std::filesystem::is_regular_file(status)) throw DataError(path.string() + ": is not a regular file");
}

Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes) {
  require_regular_file(path);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (size > max_bytes)
    throw DataError(concat_text(path.string(), ": holds ", size, " bytes, expected at most ", max_bytes));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(path.string() + ": cannot be opened: " + std::strerror(errno));
  Bytes bytes(static_cast<size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), size);
  if (file.gcount() != size)
    throw DataError(concat_text(path.string(), ": read ", file.gcount(), " bytes, expected ", size));
  return bytes;
}

}  // namespace tapeformer
