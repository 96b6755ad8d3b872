// Functions for tests of Kaldi data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/speech/kaldi_directory.h"

namespace tapeformer::test {

// Returns the bytes of a matrix of type `kind`, without the name before it.
template <class T>
std::string matrix_bytes(const char* kind, int32_t rows, int32_t columns, const std::vector<T>& values) {
  std::string bytes = std::string("\0B", 2) + kind + " ";
  const auto append = [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  bytes += '\4';
  append(&rows, 4);
  bytes += '\4';
  append(&columns, 4);
  append(values.data(), values.size() * sizeof(T));
  return bytes;
}

// Returns samples that repeat a ramp. Constant samples would count as silence.
inline std::vector<float> ramps(size_t count) {
  std::vector<float> samples(count);
  for (size_t i = 0; i < count; ++i) samples[i] = static_cast<float>(i % 100) / 100;
  return samples;
}

// Returns all faults of a data directory.
inline Faults find_kaldi_faults(const std::filesystem::path& folder, bool allow_commands = false) {
  UtteranceChecker check;
  return tapeformer::find_kaldi_faults(folder, check, allow_commands);
}

}  // namespace tapeformer::test
