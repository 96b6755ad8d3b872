// A check at the start of the program. If the processor lacks an instruction set extension that the compiled
// code needs, the program prints a message and exits. This file is compiled for plain x86-64. It calls no
// inline function of a library, because the linker may choose a copy of such a function that is compiled for
// a newer processor.
#include <unistd.h>

#include "core/cpu/compiled_for.h"

// Ends the program with a message if the processor lacks an extension that the program was compiled for. Runs
// before the dynamic initialization of variables, because dynamic initializers can use the extensions.
extern "C" [[gnu::constructor(101)]] void tapeformer_require_instruction_set() {
  using namespace tapeformer;
  const ExtensionSet present = detect_processor_extensions();
  if ((cpu::kCompiledExtensions & ~present) == 0) return;
  constexpr size_t kTextSize = 1024;
  constexpr int kDeviceUnavailable = 4;
  char text[kTextSize];
  describe_missing_extensions(cpu::kCompiledExtensions, present, text, kTextSize);
  size_t length = 0;
  while (text[length]) ++length;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, length);
  _exit(kDeviceUnavailable);
}
