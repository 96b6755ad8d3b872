// The log of the command line: spdlog's colours on a terminal, plain text elsewhere.
#pragma once

namespace tapeformer::cli {

// Installs a log sink (core/system/log.h) that colours the level of a message if standard error is a
// terminal.
void log_to_terminal();

}  // namespace tapeformer::cli
