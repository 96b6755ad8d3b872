// Functions that escape text for terminals and shells. The code that writes the log, the progress line and
// standard output calls the functions for terminals, so other code need not escape text from files and
// arguments.
#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

// Returns the text with control characters, line separators and bidirectional formatting characters escaped
// as \uXXXX, and invalid UTF-8 bytes escaped as \xXX. Newlines and tabs are kept. If the text is valid JSON,
// the result is valid JSON with the same values.
std::string escape_text(std::string_view text);

// Escapes the same characters as escape_text(), and also newlines and tabs. The result is one line.
std::string escape_line(std::string_view text);

// Escapes the same characters as escape_text(). Also indents lines, so that each line except the first starts
// with a space and does not look like a separate message.
std::string escape_message(std::string_view text);

// Returns the text as one word of a POSIX shell. Adds single quotes if the text is empty or contains
// characters that the shell interprets.
std::string quote_shell_word(std::string_view text);

}  // namespace tapeformer
