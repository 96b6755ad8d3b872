#include "train/version.h"

#include <tapeformer_commit.h>

namespace tapeformer {

std::string source_commit() {
  return kCommit;
}

}  // namespace tapeformer
