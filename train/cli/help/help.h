// Texts of --help without a command, and of the manual pages.
#pragma once

#include <string>

#include "train/cli/common.h"

namespace tapeformer {

std::string format_help_text();

// Returns the manual page in roff of the command that `words` name, such as {"train"}, or of the program if
// there are no words. Throws ConfigError for other words.
std::string format_man_page(const Arguments& words);

}  // namespace tapeformer
