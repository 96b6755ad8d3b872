// Errors in the options of models and layers.
#pragma once

#include <string>
#include <utility>

#include "core/base/errors.h"

namespace tapeformer {

// An invalid option of a model or a layer, or a contradiction between options.
struct OptionProblem {
  std::string option;   // its name in the options of the model kind, or the member of the options struct
  std::string message;  // for example "expected an even number, got 7"
};

// Thrown if an option is invalid or contradicts another option. The message is "OPTION: PROBLEM".
class OptionError : public ConfigError {
 public:
  OptionError(const std::string& option, const std::string& problem)
      : ConfigError(option + ": " + problem), problem_{option, problem} {}
  explicit OptionError(const OptionProblem& problem) : OptionError(problem.option, problem.message) {}

  const OptionProblem& problem() const { return problem_; }

 private:
  OptionProblem problem_;
};

// Returns f(). If f() throws OptionError for an option "NAME", throws OptionError for "MEMBER.NAME", where
// MEMBER is `member`.
template <class F>
auto call_with_option_prefix(const std::string& member, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const OptionError& error) {
    throw OptionError(member + "." + error.problem().option, error.problem().message);
  }
}

}  // namespace tapeformer
