#include "train/cli/command_form.h"

#include <algorithm>

namespace tapeformer {
namespace {

std::vector<SubjectOptions> list_form_options(const std::vector<CommandForm>& forms) {
  std::vector<SubjectOptions> all;
  for (const CommandForm& form : forms) all.push_back(form.options);
  return all;
}

}  // namespace

std::vector<OptionSpec> merge_subject_options(const std::vector<SubjectOptions>& all) {
  std::vector<OptionSpec> merged;
  for (const auto& [subject, options] : all)
    for (OptionSpec spec : options) {
      spec.help = subject + ": " + spec.help;
      const auto same = std::find_if(merged.begin(), merged.end(),
                                     [&](const OptionSpec& other) { return other.name == spec.name; });
      if (same == merged.end()) {
        merged.push_back(std::move(spec));
        continue;
      }
      if (same->default_value != spec.default_value)
        same->default_text = describe_option(*same).fallback + "; " + subject + ": " + describe_option(spec).fallback;
      same->help += "; " + spec.help;
    }
  return merged;
}

std::vector<OptionSpec> merge_form_options(const std::vector<CommandForm>& forms) {
  return merge_subject_options(list_form_options(forms));
}

OptionValues read_subject_options(const std::vector<SubjectOptions>& all, const CommandLine& line,
                                  const Task& task) {
  OptionValues values;
  for (const std::string& name : line.given_option_names) {
    std::vector<std::string> subjects;
    for (const auto& [subject, options] : all)
      if (has_option(options, name)) subjects.push_back(subject);
    if (subjects.empty()) continue;
    require_subject(task, subjects, "--" + name);
    values.set(name, line.options.values_by_name().at(name));
  }
  return values;
}

void run_form(const std::string& command, const std::vector<CommandForm>& forms, const LoadedTask& run,
              const CommandLine& line) {
  std::vector<std::string> subjects;
  for (const CommandForm& form : forms) subjects.push_back(form.options.subject);
  require_subject(*run.task, subjects, "\"" + command + "\"");
  read_subject_options(list_form_options(forms), line, *run.task);
  for (const CommandForm& form : forms)
    if (form.options.subject == run.task->subject()) form.run(run, line);
}

}  // namespace tapeformer
