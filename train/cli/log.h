// The log of the commands, written to standard error with spdlog.
#pragma once

namespace tapeformer::cli {

// Installs a log sink (core/system/log.h) that writes to standard error. On a terminal, the level of a
// message is coloured.
void install_terminal_log();

}  // namespace tapeformer::cli
