// Checks of C++ and CUDA code: the length of functions, and string literals that contain the names of config
// keys and command-line options. The code must be formatted by clang-format.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Each function below finds problems in a file and returns one line for each problem, which begins with
// "PATH:LINE: ".

// Finds functions with more than 60 lines.
std::vector<std::string> function_problems(const SourceFile& file);

// Finds string literals that contain one of `keys`, for example "data.limit", or an option such as "--name"
// among other words. A literal that is only an option is allowed, because it may be an argument of another
// program.
std::vector<std::string> key_problems(const SourceFile& file, const std::vector<std::string>& keys);

}  // namespace tapeformer::test
