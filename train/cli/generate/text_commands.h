// Options of the command "tapeformer generate", and the form of this command for language models.
#pragma once

#include "train/cli/run_options.h"

namespace tapeformer {

// Returns the options that control the sampling of tokens.
std::vector<OptionSpec> make_sampling_options();
OptionSpec make_batch_option();
// Returns the values of the options that all forms of the command have and of --scale. Throws ConfigError if
// options contradict each other.
GenerationOptions make_generation_options(const LoadedTask& run, const CommandLine& line);

// Returns the text before an answer to a question, in the chat template of the run's data or of its
// tokenizer. `system` is the text of a system message; empty: none. Throws ConfigError if there is no
// template.
std::string make_chat_prompt(const AutoregressiveTask& task, const std::string& question,
                             const std::string& system);

// Returns the form that generates continuations of the prompt in --prompt, in the file --prompt-file or in
// standard input, or an answer to --chat, at most --batch at once. Prints a single text while it is
// generated, several texts after each batch or, with --json, a report at the end.
CommandForm make_text_form();

}  // namespace tapeformer
