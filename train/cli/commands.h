// Commands of the program. Each command is a function in a separate file. The function takes the words after
// the name of the command and returns the exit status. Commands throw the exceptions of core/base/errors.h,
// which the program converts to an exit status. To add a command, write a file with its function, declare the
// function here, add the command to list_commands(), and list the file in CMakeLists.txt.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"

namespace tapeformer {

struct Command {
  std::string name, usage, summary;  // `usage` lists the arguments of the command
  int (*run)(const Arguments& arguments);
  bool allow_multiple_processes = false;  // whether mpirun or srun may start several processes of the command
};

// Returns all commands in the order in which the help lists them.
const std::vector<Command>& list_commands();
// Throws ConfigError with a suggestion if there is no command of this name.
const Command& find_command(const std::string& name);

// Returns the text of --help without a command.
std::string format_help_text();
// Returns the manual page in roff of the command that `words` name, such as {"train"}, or of the program if
// there are no words. Throws ConfigError for other words.
std::string format_man_page(const Arguments& words);

int run_bench(const Arguments& arguments);
int run_bleu(const Arguments& arguments);
int run_completion(const Arguments& arguments);
int run_complete(const Arguments& arguments);
int run_data_command(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_export(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_import(const Arguments& arguments);
int run_linearize(const Arguments& arguments);
int run_info(const Arguments& arguments);
int run_report(const Arguments& arguments);
int run_reproduce(const Arguments& arguments);
int run_merge(const Arguments& arguments);
int run_score(const Arguments& arguments);
int run_test_attention(const Arguments& arguments);
int run_transcribe(const Arguments& arguments);
int run_translate(const Arguments& arguments);
int run_train(const Arguments& arguments);

}  // namespace tapeformer
