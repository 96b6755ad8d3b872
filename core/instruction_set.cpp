// At the start of the program, core/cpu/processor_check.cpp calls functions of this file to check the
// processor. The functions must run on every x86-64 processor, so this file is compiled for plain x86-64.
//
// This file calls no inline functions of libraries. If several files contain the same inline function, the
// linker keeps only one copy. The kept copy can contain instructions that the processor does not support.
#include "core/instruction_set.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace tapeformer {
namespace {

#ifdef __x86_64__
constexpr unsigned kOsxsave = 1U << 27;

// Returns the register XCR0, a bit mask of the register groups that the operating system saves. Returns 0 if
// the operating system does not use XCR0.
uint64_t read_saved_state() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & kOsxsave)) return 0;
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool has(const Extension& extension, uint64_t saved) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(extension.leaf, extension.subleaf, &eax, &ebx, &ecx, &edx)) return false;
  const unsigned result = extension.result_register == 'a'   ? eax
                          : extension.result_register == 'b' ? ebx
                          : extension.result_register == 'c' ? ecx
                                                             : edx;
  return (result >> extension.bit & 1) && (saved & extension.xcr0) == extension.xcr0;
}
#endif

// Returns whether the processor is made by Intel, according to the vendor name that CPUID returns in EBX, EDX
// and ECX.
bool is_made_by_intel() {
#ifdef __x86_64__
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) && ebx == signature_INTEL_ebx && edx == signature_INTEL_edx &&
         ecx == signature_INTEL_ecx;
#else
  return false;
#endif
}

// Appends text to a buffer of fixed size.
class Writer {
 public:
  Writer(char* text, size_t size) : cursor_(text), left_(size) {
    if (left_ > 0) *cursor_ = '\0';
  }
  void add(const char* more) {
    for (; *more && left_ > 1; ++more, --left_) *cursor_++ = *more;
    if (left_ > 0) *cursor_ = '\0';
  }
  void add_names(ExtensionSet set) {
    for (int i = 0; i < kExtensionCount; ++i) {
      if (!(set >> i & 1)) continue;
      add(" ");
      add(kExtensions[i].name);
    }
  }

 private:
  char* cursor_;
  size_t left_;
};

}  // namespace

ExtensionSet detect_processor_extensions() {
  ExtensionSet set = 0;
#ifdef __x86_64__
  const uint64_t saved = read_saved_state();
  for (int i = 0; i < kExtensionCount; ++i)
    if (has(kExtensions[i], saved)) set |= ExtensionSet{1} << i;
#endif
  return set;
}

bool has_fast_bfloat16_dot_products() {
  return (detect_processor_extensions() & make_extension_set("avx512_bf16")) != 0 && !is_made_by_intel();
}

const MicroarchitectureLevel& find_highest_level(ExtensionSet set) {
  const MicroarchitectureLevel* highest = kMicroarchitectureLevels;
  for (const MicroarchitectureLevel& level : kMicroarchitectureLevels)
    if ((level.extensions & ~set) == 0) highest = &level;
  return *highest;
}

void describe_missing_extensions(ExtensionSet needed, ExtensionSet present, char* text, size_t size) {
  const MicroarchitectureLevel& level = find_highest_level(needed);
  Writer writer(text, size);
  writer.add("error: this program is compiled for a processor with ");
  writer.add(level.name);
  if (needed & ~level.extensions) writer.add(" and");
  writer.add_names(needed & ~level.extensions);
  writer.add(", and this processor lacks");
  writer.add_names(needed & ~present);
  writer.add("; compile the program on this computer, or with -DTAPEFORMER_ARCH=");
  writer.add(find_highest_level(present).name);
  writer.add("\n");
}

}  // namespace tapeformer
