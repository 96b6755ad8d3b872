// Files of tests/golden. tests/golden/README.md describes their origin and their keys.
#pragma once

#include <string>

#include "train/checkpoint/safetensors.h"

namespace tapeformer::test {

inline SafetensorsFile golden(const std::string& name) {
  return SafetensorsFile(SOURCE_DIR "/tests/golden/" + name + ".safetensors");
}

}  // namespace tapeformer::test
