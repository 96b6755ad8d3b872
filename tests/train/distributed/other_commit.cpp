// Replaces train/version.cpp in a test program that must look like a build from another commit.
#include "train/version.h"

namespace tapeformer {

std::string get_source_commit() {
  return "another";
}

}  // namespace tapeformer
