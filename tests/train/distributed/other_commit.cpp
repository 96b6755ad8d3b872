// Replaces train/version.cpp in a program that tests use as a build from another commit.
#include "train/version.h"

namespace tapeformer {

std::string source_commit() {
  return "another";
}

}  // namespace tapeformer
