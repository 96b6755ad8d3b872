// Names of options of the library in the messages of the program.
#pragma once

#include "train/config/config.h"

namespace tapeformer {

// Makes messages of the library name config keys and command-line options instead of C++ members.
void use_keys_in_messages();

// Returns the problem with the config key that sets the option, or with the option if there is no key.
KeyProblem make_key_problem(const OptionProblem& problem);

}  // namespace tapeformer
