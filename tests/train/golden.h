// The files of tests/golden, whose README.md says what made them and what the keys are.
#pragma once

#include <string>

#include "train/checkpoint/safetensors.h"

namespace tapeformer::test {

inline SafetensorsFile golden(const std::string& name) {
  return SafetensorsFile(SOURCE_DIR "/tests/golden/" + name + ".safetensors");
}

}  // namespace tapeformer::test
