#include "train/version.h"

#include <tapeformer_commit.h>

namespace tapeformer {

std::string get_source_commit() {
  return kCommit;
}

}  // namespace tapeformer
