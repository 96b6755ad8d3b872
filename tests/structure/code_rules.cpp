#include "tests/structure/code_rules.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace tapeformer::test {
namespace {

constexpr int kMaxFunctionLines = 60;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool begins_with_word(const std::string& text, std::string_view word) {
  return text.starts_with(word) && (text.size() == word.size() || !is_name(text[word.size()]));
}

// Returns whether `head`, which ends with '{', opens the body of a function or a lambda.
bool opens_function(const std::string& head) {
  for (const char* word : {"namespace", "extern", "struct", "class", "union", "enum"})
    if (begins_with_word(head, word) && head.find(')') + 3 != head.size()) return false;
  return head.find('(') != std::string::npos && !head.ends_with("= {") && !head.ends_with("{{");
}

struct StringLiteral {
  std::string text;  // the characters between the quotes, as in the file
  int line = 0;
};

// Returns the string literals outside of comments and preprocessor lines. A literal ends in its line.
std::vector<StringLiteral> string_literals(const std::string& code) {
  std::vector<StringLiteral> literals;
  std::istringstream in(code);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    for (size_t at = 0; at < line.size() && line.compare(at, 2, "//") != 0; ++at) {
      const char quote = line[at];
      const bool is_separator = at > 0 && is_name(line[at - 1]);  // as in 1'000
      if (quote != '"' && (quote != '\'' || is_separator)) continue;
      size_t end = at + 1;
      while (end < line.size() && line[end] != quote) end += line[end] == '\\' ? 2 : 1;
      if (quote == '"') literals.push_back({line.substr(at + 1, end - at - 1), number});
      at = end;
    }
  }
  return literals;
}

// Returns the first element of `keys` that occurs in `text` and is not a part of a longer name or path.
// Returns "" if there is no such element.
std::string key_in(const std::string& text, const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const size_t end = at + key.size();
      const bool begins = at == 0 || (!is_name(text[at - 1]) && text[at - 1] != '.');
      const bool ends = end == text.size() || (!is_name(text[end]) && text[end] != '/');
      if (begins && ends) return key;
    }
  return "";
}

// Returns whether a text with several words contains a word that begins with "--" and a lower-case letter.
bool names_option(const std::string& text) {
  if (text.find(' ') == std::string::npos) return false;
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '"' || text[at - 1] == '(';
    if (begins && at + 2 < text.size() && std::islower(static_cast<unsigned char>(text[at + 2]))) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> function_problems(const SourceFile& file) {
  if (!file.is_code()) return {};
  std::vector<std::string> problems;
  std::istringstream in(file.text);
  std::string head;    // the lines after the last statement
  std::string indent;  // of the first line of `head`
  bool inside = false;
  int number = 0, first = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string code = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (inside) {
      // clang-format puts the closing brace below the first character of the declaration.
      if (!line.starts_with(indent + "}")) continue;
      if (number - first >= kMaxFunctionLines)
        problems.push_back(file.path + ":" + std::to_string(first) + ": a function has " +
                           std::to_string(number - first + 1) + " lines, more than " +
                           std::to_string(kMaxFunctionLines));
      inside = false;
      head.clear();
    } else if (code.empty() || code.starts_with("//") || code.starts_with("#")) {
      head.clear();
    } else {
      if (head.empty()) {
        indent = line.substr(0, line.size() - code.size());
        first = number;
      }
      head += code;
      inside = code.ends_with('{') && opens_function(head);
      if (!inside && std::string_view(";:{}").find(code.back()) != std::string_view::npos) head.clear();
    }
  }
  return problems;
}

std::vector<std::string> key_problems(const SourceFile& file, const std::vector<std::string>& keys) {
  if (!file.is_code()) return {};
  std::vector<std::string> problems;
  for (const StringLiteral& literal : string_literals(file.text)) {
    const std::string key = key_in(literal.text, keys);
    if (key.empty() && !names_option(literal.text)) continue;
    problems.push_back(file.path + ":" + std::to_string(literal.line) + ": \"" + literal.text + "\" names " +
                       (key.empty() ? "an option of the command line" : "the config key " + key));
  }
  return problems;
}

}  // namespace tapeformer::test
