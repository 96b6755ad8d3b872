// Small data files made by the tests.
#pragma once

#include <zlib.h>

#include <stdexcept>
#include <vector>

#include "data/file.h"
#include "tests/support/temp_dir.h"

namespace tapeformer::test {

// gzip of the bytes, as gzip(1) would write it.
inline Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  Bytes packed(deflateBound(&stream, bytes.size()) + 64);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// An IDX file: the given header and as many payload bytes as wanted, value i being i * 7 modulo 251.
inline Bytes idx_bytes(uint32_t magic, const std::vector<uint32_t>& sizes, size_t payload) {
  Bytes bytes;
  const auto append = [&](uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
  };
  append(magic);
  for (const uint32_t size : sizes) append(size);
  for (size_t i = 0; i < payload; ++i) bytes.push_back(static_cast<uint8_t>(i * 7 % 251));
  return bytes;
}

}  // namespace tapeformer::test
