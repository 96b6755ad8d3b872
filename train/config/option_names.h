// Names of options of the library in the messages of the program.
#pragma once

namespace tapeformer {

// Makes messages of the library name config keys and command-line options instead of C++ members.
void use_keys_in_messages();

}  // namespace tapeformer
