// Escaping of text for terminals. The log, the progress line and standard output escape all text that they
// print, so other code need not escape text from files and arguments.
#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

// Returns the text with control characters, line separators and bidirectional formatting characters escaped
// as \uXXXX, and invalid UTF-8 bytes escaped as \xXX. Newlines and tabs are kept. Valid JSON stays valid JSON
// with the same values.
std::string escape_text(std::string_view text);

// Returns the printable text as one line, in which newlines and tabs are also escaped.
std::string escape_line(std::string_view text);

// Returns the printable text with all lines after the first indented, so that no part of the text looks like
// a separate message.
std::string escape_message(std::string_view text);

}  // namespace tapeformer
