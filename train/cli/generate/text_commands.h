// The options of the command "tapeformer generate" for texts, and the implementation of this command for
// language models.
#pragma once

#include "train/cli/run_options.h"

namespace tapeformer {

// make_sampling_options() returns the command-line options that control the sampling of tokens.
// parse_sampling_options() returns the values of these options, and throws ConfigError if options contradict
// each other.
std::vector<OptionSpec> make_sampling_options();
ClassSamplingOptions parse_sampling_options(const CommandLine& line);

std::vector<OptionSpec> make_text_generation_options();
// Throws ConfigError if the command line has an option or argument of other models than that of the task.
void check_generation_options(const Task& task, const CommandLine& line);

// Generates continuations of the prompt in --prompt, in the file --prompt-file or in standard input, at most
// `max_batch` at once. Prints a single text while it is generated, several texts after each batch or, with
// --json, a report at the end.
void generate_text(const LoadedTask& run, const GenerationOptions& options, int64_t max_batch,
                   const CommandLine& line);

}  // namespace tapeformer
