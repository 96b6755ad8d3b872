// The options of the command "tapeformer generate" for texts, the implementation of this command for language
// models, and a part of the reports of "tapeformer eval" and "tapeformer score".
#pragma once

#include "train/cli/run_options.h"
#include "train/evaluate.h"

namespace tapeformer {

// make_sampling_options() returns the command-line options that control the sampling of tokens.
// parse_sampling_options() returns the values of these options, and throws ConfigError if options contradict
// each other.
std::vector<OptionSpec> make_sampling_options();
ClassSamplingOptions parse_sampling_options(const CommandLine& line);

std::vector<OptionSpec> make_text_generation_options();
// Throws ConfigError if the command line has an option that only models of images accept.
void reject_image_options(const CommandLine& line);
// Throws ConfigError if the command line has an option or argument that only models of text accept.
void reject_text_options(const CommandLine& line);

// Generates a continuation of the prompt in --prompt, in the file --prompt-file or in standard input. Prints
// the text while it is generated or, with --json, a report at the end.
void generate_text(const LoadedRun& run, const GenerationOptions& options, const CommandLine& line);

// Adds the number of unknown tokens and their share of the tokens to the report, unless the number is 0.
void add_unknown_tokens(const TextScore& score, Report& report);

}  // namespace tapeformer
