// The command-line program as a function, for programs that add attention kinds.
#pragma once

namespace tapeformer::cli {

// Runs the command named by the first argument, as the program `tapeformer` does, and returns the exit
// status. Prints errors to standard error and throws nothing. Installs signal handlers and a log sink, which
// remain installed. Call register_attention_kind() (models/attention/attention.h) first to make further
// attention kinds available to config files.
int run(int argc, char** argv);

}  // namespace tapeformer::cli
