#include "tests/structure/code_rules.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tapeformer::test {
namespace {

constexpr int kMaxFunctionLines = 60;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// C++ code that is split into plain code and string literals. In `text`, comments, literals and preprocessor
// lines are replaced by blanks, but line ends are kept. `literals` contains the string literals.
struct PlainCode {
  std::string text;
  std::vector<StringLiteral> literals;
};

class Reader {
 public:
  explicit Reader(const std::string& code) : code_(code) { result_.text = code; }

  PlainCode run() {
    while (at_ < code_.size()) step();
    return std::move(result_);
  }

 private:
  bool starts(std::string_view word) const { return std::string_view(code_).substr(at_).starts_with(word); }

  void step() {
    if (starts("//"))
      blank_until(code_.find('\n', at_));
    else if (starts("/*"))
      blank_until(code_.find("*/", at_ + 2), 2);
    else if (code_[at_] == '#' && only_blanks_before())
      blank_directive();
    else if (starts("R\"") && (at_ == 0 || !is_name(code_[at_ - 1])))
      read_raw_string();
    else if (code_[at_] == '"')
      read_string();
    else if (code_[at_] == '\'' && (at_ == 0 || !is_name(code_[at_ - 1])))  // not a digit separator
      blank_until(end_of_quotes('\''), 1);
    else
      advance();
  }

  bool only_blanks_before() const {
    for (size_t i = at_; i-- > 0 && code_[i] != '\n';)
      if (code_[i] != ' ') return false;
    return true;
  }

  void advance() {
    if (code_[at_] == '\n') ++line_;
    ++at_;
  }

  void blank_until(size_t end, size_t extra = 0) {
    end = end == std::string::npos ? code_.size() : end + extra;
    for (; at_ < end; advance())
      if (code_[at_] != '\n') result_.text[at_] = ' ';
  }

  void blank_directive() {
    size_t end = code_.find('\n', at_);
    while (end != std::string::npos && code_[end - 1] == '\\') end = code_.find('\n', end + 1);
    blank_until(end);
  }

  size_t end_of_quotes(char quote) const {
    size_t end = at_ + 1;
    while (end < code_.size() && code_[end] != quote) end += code_[end] == '\\' ? 2 : 1;
    return std::min(end, code_.size());
  }

  void read_string() {
    const size_t end = end_of_quotes('"');
    result_.literals.push_back({code_.substr(at_ + 1, end - at_ - 1), line_});
    blank_until(end, 1);
  }

  void read_raw_string() {
    const size_t open = code_.find('(', at_);
    const std::string close = ")" + code_.substr(at_ + 2, open - at_ - 2) + "\"";
    const size_t end = std::min(code_.find(close, open), code_.size());
    result_.literals.push_back({code_.substr(open + 1, end - open - 1), line_});
    blank_until(end, close.size());
  }

  const std::string& code_;
  PlainCode result_;
  size_t at_ = 0;
  int line_ = 1;
};

bool begins_with_word(const std::string& text, std::string_view word) {
  return text.starts_with(word) && (text.size() == word.size() || !is_name(text[word.size()]));
}

// Returns whether a '{' after `head` opens the body of a function. `head` is the code between the end of the
// previous statement and the '{'.
bool opens_function(const std::string& head) {
  if (head.find('(') == std::string::npos) return false;
  if (begins_with_word(head, "namespace") || begins_with_word(head, "extern")) return false;
  const char last = head.back();
  if (last == '=' || last == ',' || last == '(') return false;
  const bool is_type = begins_with_word(head, "struct") || begins_with_word(head, "class") ||
                       begins_with_word(head, "union") || begins_with_word(head, "enum");
  return !is_type || last == ')';
}

// Returns the name before the first '(' in `head`, or "" if `head` belongs to a lambda.
std::string name_in(const std::string& head) {
  size_t end = head.find('(');
  while (end > 0 && head[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && (is_name(head[begin - 1]) || head[begin - 1] == ':' || head[begin - 1] == '~')) --begin;
  return head.substr(begin, end - begin);
}

// A parser that finds functions in C++ code by their braces. The code must contain no comments or literals.
class FunctionFinder {
 public:
  std::vector<FunctionBody> run(const std::string& plain) {
    for (const char c : plain) {
      if (c == '\n') ++line_;
      if (depth_inside_ > 0)
        inside_function(c);
      else
        outside(c);
      previous_ = c;
    }
    return functions_;
  }

 private:
  void inside_function(char c) {
    if (c == '{') ++depth_inside_;
    if (c == '}' && --depth_inside_ == 0) {
      functions_.back().lines = line_ - functions_.back().line + 1;
      head_.clear();
    }
  }

  void outside(char c) {
    // A '{' directly after a name begins an initializer, which is skipped.
    if (initializer_ > 0 || (c == '{' && previous_ != ' ' && previous_ != '\n' && !head_.empty())) {
      initializer_ += c == '{' ? 1 : c == '}' ? -1 : 0;
      return;
    }
    if (c == '{' && opens_function(head_)) {
      functions_.push_back({name_in(head_), head_line_, 0});
      depth_inside_ = 1;
    } else if (c == '{' || c == '}' || c == ';') {
      head_.clear();
    } else if (!std::isspace(static_cast<unsigned char>(c))) {
      if (head_.empty()) head_line_ = line_;
      if (std::isspace(static_cast<unsigned char>(previous_)) && !head_.empty()) head_ += ' ';
      head_ += c;
    }
  }

  std::vector<FunctionBody> functions_;
  std::string head_;  // the code after the last ';', '{' or '}' outside of functions
  int line_ = 1, head_line_ = 1, depth_inside_ = 0, initializer_ = 0;
  char previous_ = '\n';
};

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

std::vector<FunctionBody> functions_of(const std::string& code) {
  return FunctionFinder().run(Reader(code).run().text);
}

std::vector<StringLiteral> string_literals(const std::string& code) {
  return Reader(code).run().literals;
}

std::vector<std::string> function_problems(const SourceFile& file) {
  if (!file.is_code()) return {};
  std::vector<std::string> problems;
  for (const FunctionBody& function : functions_of(file.text))
    if (function.lines > kMaxFunctionLines)
      problems.push_back(file.path + ":" + std::to_string(function.line) + ": " + function.name + " has " +
                         std::to_string(function.lines) + " lines, more than " +
                         std::to_string(kMaxFunctionLines));
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
