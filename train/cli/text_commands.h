// Parts of commands for models of text.
#pragma once

#include "train/cli/run_options.h"

namespace tapeformer {

// Return the options of drawing tokens, and their values. Throws ConfigError if options contradict each
// other.
std::vector<OptionSpec> sampling_options();
ClassSampling sampling_of(const CommandLine& line);

// Returns the options of "generate" for texts.
std::vector<OptionSpec> text_options();
// Throws ConfigError if the line has an option or argument for texts. For other models.
void refuse_text_options(const CommandLine& line);

// Continues a prompt and prints the text while it is drawn, or a report.
void generate_text(const LoadedRun& run, const GenerationOptions& options, const CommandLine& line);

}  // namespace tapeformer
