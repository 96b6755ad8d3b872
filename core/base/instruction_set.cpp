// At the start of the program, core/cpu/processor_check.cpp calls functions of this file to check the
// processor. The functions must run on every x86-64 processor, so this file is compiled for plain x86-64.
//
// This file calls no inline functions of libraries. If several files contain the same inline function, the
// linker keeps only one copy. The kept copy can contain instructions that the processor does not support.
#include "core/base/instruction_set.h"

#ifdef __x86_64__
#define _Bool bool  // the header is written in C
#include <sys/platform/x86.h>
#undef _Bool
#endif

namespace tapeformer {
namespace {

#ifdef __x86_64__
// The features of the C library for kExtensionNames.
constexpr unsigned kFeatures[] = {x86_cpu_SSE3,
                                  x86_cpu_SSSE3,
                                  x86_cpu_SSE4_1,
                                  x86_cpu_SSE4_2,
                                  x86_cpu_POPCNT,
                                  x86_cpu_MOVBE,
                                  x86_cpu_LZCNT,
                                  x86_cpu_BMI1,
                                  x86_cpu_BMI2,
                                  x86_cpu_AVX,
                                  x86_cpu_F16C,
                                  x86_cpu_FMA,
                                  x86_cpu_AVX2,
                                  x86_cpu_AVX_VNNI,
                                  x86_cpu_AVX512F,
                                  x86_cpu_AVX512CD,
                                  x86_cpu_AVX512DQ,
                                  x86_cpu_AVX512BW,
                                  x86_cpu_AVX512VL,
                                  x86_cpu_AVX512_IFMA,
                                  x86_cpu_AVX512_VBMI,
                                  x86_cpu_AVX512_VBMI2,
                                  x86_cpu_AVX512_VNNI,
                                  x86_cpu_AVX512_BITALG,
                                  x86_cpu_AVX512_VPOPCNTDQ,
                                  x86_cpu_AVX512_BF16,
                                  x86_cpu_AVX512_FP16,
                                  x86_cpu_AMX_TILE,
                                  x86_cpu_AMX_INT8,
                                  x86_cpu_AMX_BF16};
static_assert(std::size(kFeatures) == kExtensionCount);
#endif

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
      add(kExtensionNames[i]);
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
  for (int i = 0; i < kExtensionCount; ++i)
    if (x86_cpu_active(kFeatures[i])) set |= ExtensionSet{1} << i;
#endif
  return set;
}

bool has_fast_bfloat16_dot_products() {
#ifdef __x86_64__
  __builtin_cpu_init();
  return x86_cpu_active(x86_cpu_AVX512_BF16) && !__builtin_cpu_is("intel");
#else
  return false;
#endif
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
