// The source file and the line of a function call. Replaces std::source_location, which clang 14 does not
// provide.
#pragma once

namespace tapeformer {

struct SourceLocation {
  const char* file = "";
  int line = 0;

  // Returns the location of a function call. To get the location of its callers, a function uses current() as
  // the default argument of a parameter.
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace tapeformer
