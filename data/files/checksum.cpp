#include "data/files/checksum.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "core/threads/threads.h"

namespace tapeformer {
namespace {

// Size of the parts into which read_with_checksum() divides its input. A thread reads a part and then
// computes the checksum of the part. A part is small enough that it is still in the CPU cache when its
// checksum is computed.
constexpr size_t kPartBytes = size_t{1} << 20;

}  // namespace

void Checksum::append(const void* data, size_t size) {
  crc32 = static_cast<uint32_t>(::crc32_z(crc32, static_cast<const Bytef*>(data), size));
  bytes += size;
}

void Checksum::append(const Checksum& next) {
  crc32 = static_cast<uint32_t>(::crc32_combine(crc32, next.crc32, static_cast<z_off_t>(next.bytes)));
  bytes += next.bytes;
}

Checksum compute_checksum(std::string_view text) {
  Checksum checksum;
  checksum.append(text.data(), text.size());
  return checksum;
}

Checksum read_with_checksum(const File& file, void* data, size_t size, size_t offset) {
  std::vector<Checksum> parts((size + kPartBytes - 1) / kPartBytes);
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const size_t begin = static_cast<size_t>(i) * kPartBytes, length = std::min(kPartBytes, size - begin);
      char* const part = static_cast<char*>(data) + begin;
      file.read_at(part, length, offset + begin);
      parts[static_cast<size_t>(i)].append(part, length);
    }
  });
  Checksum whole;
  for (const Checksum& part : parts) whole.append(part);
  return whole;
}

std::string format_crc32(uint32_t crc32) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(crc32));
  return text;
}

}  // namespace tapeformer
