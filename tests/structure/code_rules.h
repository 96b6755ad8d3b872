// Rules of C++ and CUDA code: the length of functions, and the names of config keys and command-line options
// in string literals of the libraries. The code must be formatted by clang-format.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// A function with a body. A lambda belongs to the function that contains it.
struct FunctionBody {
  std::string name;
  int line = 0;   // number of the first line of the declaration
  int lines = 0;  // number of lines from the declaration to the closing brace
};

std::vector<FunctionBody> functions_of(const std::string& code);

struct StringLiteral {
  std::string text;  // between the quotes, as written
  int line = 0;
};

// Returns the string literals of the code. Comments and #include lines contain none.
std::vector<StringLiteral> string_literals(const std::string& code);

// Each function below returns one line for each problem. A line begins with "PATH:LINE: ".

// Finds functions with more than 60 lines.
std::vector<std::string> function_problems(const SourceFile& file);

// Finds string literals that contain one of `keys` ("data.limit") or an option ("--name") among other words.
// A literal that consists of one option may be an argument for another program ("--sep=_").
std::vector<std::string> key_problems(const SourceFile& file, const std::vector<std::string>& keys);

}  // namespace tapeformer::test
