#include "core/system/terminal.h"

#include <unistd.h>

namespace tapeformer {

bool is_controlling_terminal(int descriptor) {
  return tcgetpgrp(descriptor) != -1;
}

}  // namespace tapeformer
