// A function that opens a file of tests/golden. tests/golden/README.md describes the origin and the keys of
// the files.
#pragma once

#include <string>

#include "train/checkpoint/safetensors.h"

namespace tapeformer::test {

inline SafetensorsFile open_golden_file(const std::string& name) {
  return SafetensorsFile(SOURCE_DIR "/tests/golden/" + name + ".safetensors");
}

}  // namespace tapeformer::test
