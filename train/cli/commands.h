// The commands of the program, one function a file. Each takes the words after its name and returns the exit
// code; what goes wrong is an exception (core/errors.h), which main() turns into the code that the contract
// gives it. To add one: write its file, declare it here, list it in commands() and in CMakeLists.txt.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"

namespace tapeformer {

struct Command {
  std::string name, usage, summary;  // usage: its arguments, for the list of commands
  int (*run)(const Arguments& arguments);
};

// All of them, in the order of the program's help.
const std::vector<Command>& commands();

int run_bench(const Arguments& arguments);
int run_complete(const Arguments& arguments);
int run_data(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_info(const Arguments& arguments);
int run_reproduce(const Arguments& arguments);
int run_transcribe(const Arguments& arguments);
int run_train(const Arguments& arguments);

}  // namespace tapeformer
