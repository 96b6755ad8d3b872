// Functions for tests of data sets. The functions write small data files, set environment variables, and
// locate real data sets.
#pragma once

#include <doctest/doctest.h>

#include <stdlib.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "tests/support/temp_dir.h"

namespace tapeformer::test {

// Returns `bytes`, compressed in the gzip format.
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

// Returns the contents of an IDX file: a header with the magic number and the sizes, and then `payload`
// bytes. Byte i after the header is i * 7 % 251.
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

// Writes the four files of MNIST with `train` and `test` images of height x width pixels. The images are
// compressed. Label i is i % 10.
inline void write_tiny_mnist(const std::filesystem::path& folder, uint32_t train, uint32_t test,
                             uint32_t height = 4, uint32_t width = 6) {
  for (const auto& [prefix, count] : {std::pair{"train", train}, std::pair{"t10k", test}}) {
    const std::string start = (folder / prefix).string();
    write_file(start + "-images-idx3-ubyte.gz",
               gzipped(idx_bytes(0x803, {count, height, width}, size_t{count} * height * width)));
    Bytes labels = idx_bytes(0x801, {count}, 0);
    for (uint32_t i = 0; i < count; ++i) labels.push_back(static_cast<uint8_t>(i % 10));
    write_file(start + "-labels-idx1-ubyte", labels);
  }
}

// Sets an environment variable to `value` during the lifetime of the object. If `value` is std::nullopt,
// removes the variable instead.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    assign(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { assign(old_); }

 private:
  void assign(const std::optional<std::string>& value) {
    if (value)
      setenv(name_, value->c_str(), 1);
    else
      unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> old_;
};

// Returns whether $TAPEFORMER_DATA contains the real data set. Otherwise, tests of the real data are skipped.
inline bool have_real(const std::string& set) {
  const char* directory = std::getenv("TAPEFORMER_DATA");
  return directory && std::filesystem::exists(std::filesystem::path(directory) / set);
}
// Returns whether the Debian package dataset-fashion-mnist is installed. If not, the message skips the test.
inline bool have_fashion_mnist() {
  if (std::filesystem::exists("/usr/share/datasets/fashion-mnist")) return true;
  MESSAGE("skipped: the package dataset-fashion-mnist is not installed");
  return false;
}
inline std::filesystem::path real_set(const std::string& set) {
  return std::filesystem::path(std::getenv("TAPEFORMER_DATA")) / set;
}

}  // namespace tapeformer::test
