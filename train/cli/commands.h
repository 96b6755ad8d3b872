// Commands of the program. A command is a value: the declaration of its arguments and options, and its
// function, which returns the exit status. Functions throw the exceptions of core/base/errors.h, which the
// program converts to an exit status. To add a command, write a file with its two functions, declare the
// functions here, add the command to list_commands(), and list the file in CMakeLists.txt.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"

namespace tapeformer {

// A function that returns the declaration of a command, without its name. `words` follow the name of the
// command. Only the declarations of "bench" and "data" depend on them.
using SpecFunction = CommandSpec(const Arguments& words);
using RunFunction = int(const CommandLine& line);

struct Command {
  std::string name, summary;  // `summary` is one line
  SpecFunction* make_spec;
  RunFunction* run;
  bool allow_multiple_processes = false;  // whether mpirun or srun may start several processes of the command
};

// Returns all commands in the order in which the help lists them.
const std::vector<Command>& list_commands();
// Throws ConfigError with a suggestion if there is no command of this name.
const Command& find_command(const std::string& name);

// Returns the declaration of the command. Throws ConfigError if the words name no benchmark of "bench".
CommandSpec make_command_spec(const Command& command, const Arguments& words = {});

// Returns the text of --help without a command.
std::string format_help_text();
// Returns the manual page in roff of the command that `words` name, such as {"train"}, or of the program if
// there are no words. Throws ConfigError for other words.
std::string format_man_page(const Arguments& words);
// Prints the words by which a shell can replace the last of `words`, which follow the name of the program.
void print_completions(const Arguments& words);

SpecFunction make_bench_spec, make_bleu_spec, make_complete_spec, make_completion_spec, make_data_spec,
    make_eval_spec, make_export_spec, make_generate_spec, make_import_spec, make_info_spec,
    make_linearize_spec, make_merge_spec, make_report_spec, make_reproduce_spec, make_score_spec,
    make_test_attention_spec, make_train_spec, make_transcribe_spec, make_translate_spec;
RunFunction run_bench, run_bleu, run_complete, run_completion, run_data, run_eval, run_export, run_generate,
    run_import, run_info, run_linearize, run_merge, run_report, run_reproduce, run_score, run_test_attention,
    run_train, run_transcribe, run_translate;

}  // namespace tapeformer
