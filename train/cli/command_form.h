// Commands that do different things with the models of different subjects, and the options of these forms.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"
#include "train/tasks/registry/load_task.h"

namespace tapeformer {

// What a command does with the models of one subject. Its options are those that not all forms have.
struct CommandForm {
  SubjectOptions options;
  void (*run)(const LoadedTask& run, const CommandLine& line);
};

// Returns the options of all subjects, each once. The help text of an option names its subjects.
std::vector<OptionSpec> merge_subject_options(const std::vector<SubjectOptions>& all);
std::vector<OptionSpec> merge_form_options(const std::vector<CommandForm>& forms);

// Returns the values of the options in `all` that occur on the command line. Throws ConfigError for options
// of other subjects than the subject of the task.
OptionValues read_subject_options(const std::vector<SubjectOptions>& all, const CommandLine& line,
                                  const Task& task);

// Runs the form of the subject of the task. Throws ConfigError if there is no such form, and for options of
// other forms.
void run_form(const std::string& command, const std::vector<CommandForm>& forms, const LoadedTask& run,
              const CommandLine& line);

}  // namespace tapeformer
