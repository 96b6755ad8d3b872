// Checks of C++ and CUDA code: the length of functions, and string literals that contain the names of config
// keys and command-line options. The code must be formatted by clang-format.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// A function with a body. A lambda inside a function belongs to that function.
struct FunctionBody {
  std::string name;
  int line = 0;   // number of the first line of the declaration
  int lines = 0;  // number of lines from the declaration to the closing brace
};

std::vector<FunctionBody> functions_of(const std::string& code);

struct StringLiteral {
  std::string text;  // the characters between the quotes, as in the file
  int line = 0;
};

// Returns the string literals of the code, except literals in comments and preprocessor lines.
std::vector<StringLiteral> string_literals(const std::string& code);

// Each function below finds problems in a file and returns one line for each problem, which begins with
// "PATH:LINE: ".

// Finds functions with more than 60 lines.
std::vector<std::string> function_problems(const SourceFile& file);

// Finds string literals that contain one of `keys`, for example "data.limit", or an option such as "--name"
// among other words. A literal that is only an option is allowed, because it may be an argument of another
// program.
std::vector<std::string> key_problems(const SourceFile& file, const std::vector<std::string>& keys);

}  // namespace tapeformer::test
