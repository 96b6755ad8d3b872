// Names of options in messages. A message of the library names an option by its C++ member, such as
// "AudioOptions::resample". A program can set the names that its users know, such as config keys.
#pragma once

#include <map>
#include <string>

namespace tapeformer {

// Returns the name that set_option_names() has set for the member, or `member`. Thread-safe.
std::string name_option(const std::string& member);

// Sets the names of members. Call this function before other functions of the library.
void set_option_names(std::map<std::string, std::string> names);

}  // namespace tapeformer
