// Text from files, file names and arguments, made safe to show on a terminal. The log, the progress line and
// standard output pass everything through it, so that no other code needs to.
#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

// Returns the text with control characters, line separators and characters that change the direction of
// writing as \uXXXX, and bytes that are not valid UTF-8 as \xXX. Newlines and tabs stay. Valid JSON stays
// valid JSON with the same values.
std::string printable(std::string_view text);

// Returns the text as one line: also newlines and tabs become \uXXXX.
std::string printable_line(std::string_view text);

// Returns the printable text whose lines after the first are indented, so that text from outside cannot
// look like a message of its own.
std::string printable_message(std::string_view text);

}  // namespace tapeformer
