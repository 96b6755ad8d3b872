// The location of a call. Replaces std::source_location, which clang 14 does not provide.
#pragma once

namespace tapeformer {

struct SourceLocation {
  const char* file = "";
  int line = 0;

  // If current() is a default argument of a function, returns the location of the call of that function.
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace tapeformer
