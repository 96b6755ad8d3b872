// Sets of extensions of the x86-64 instruction set. A set contains either the extensions of the processor or
// the extensions that the compiled code needs. On processors of other architectures, all sets are empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tapeformer {

// An extension of the instruction set. If the processor has the extension, CPUID with `leaf` and `subleaf`
// sets bit number `bit` in the register `result_register`. Programs can use the extension only if the
// operating system also saves its registers. In this case, the register XCR0 contains all bits of `xcr0`.
struct Extension {
  const char* name;
  uint32_t leaf, subleaf;
  char result_register;  // 'a', 'b', 'c' or 'd' for EAX, EBX, ECX or EDX
  int bit;
  uint32_t xcr0;
};

inline constexpr uint32_t kNoXcr0State = 0, kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;
inline constexpr Extension kExtensions[] = {
    {"sse3", 1, 0, 'c', 0, kNoXcr0State},
    {"ssse3", 1, 0, 'c', 9, kNoXcr0State},
    {"sse4.1", 1, 0, 'c', 19, kNoXcr0State},
    {"sse4.2", 1, 0, 'c', 20, kNoXcr0State},
    {"popcnt", 1, 0, 'c', 23, kNoXcr0State},
    {"movbe", 1, 0, 'c', 22, kNoXcr0State},
    {"lzcnt", 0x80000001, 0, 'c', 5, kNoXcr0State},
    {"bmi1", 7, 0, 'b', 3, kNoXcr0State},
    {"bmi2", 7, 0, 'b', 8, kNoXcr0State},
    {"avx", 1, 0, 'c', 28, kYmmState},
    {"f16c", 1, 0, 'c', 29, kYmmState},
    {"fma", 1, 0, 'c', 12, kYmmState},
    {"avx2", 7, 0, 'b', 5, kYmmState},
    {"avx_vnni", 7, 1, 'a', 4, kYmmState},
    {"avx512f", 7, 0, 'b', 16, kZmmState},
    {"avx512cd", 7, 0, 'b', 28, kZmmState},
    {"avx512dq", 7, 0, 'b', 17, kZmmState},
    {"avx512bw", 7, 0, 'b', 30, kZmmState},
    {"avx512vl", 7, 0, 'b', 31, kZmmState},
    {"avx512ifma", 7, 0, 'b', 21, kZmmState},
    {"avx512_vbmi", 7, 0, 'c', 1, kZmmState},
    {"avx512_vbmi2", 7, 0, 'c', 6, kZmmState},
    {"avx512_vnni", 7, 0, 'c', 11, kZmmState},
    {"avx512_bitalg", 7, 0, 'c', 12, kZmmState},
    {"avx512_vpopcntdq", 7, 0, 'c', 14, kZmmState},
    {"avx512_bf16", 7, 1, 'a', 5, kZmmState},
    {"avx512_fp16", 7, 0, 'd', 23, kZmmState},
    {"amx_tile", 7, 0, 'd', 24, kTileState},
    {"amx_int8", 7, 0, 'd', 25, kTileState},
    {"amx_bf16", 7, 0, 'd', 22, kTileState},
};
inline constexpr int kExtensionCount = static_cast<int>(std::size(kExtensions));

// A set of extensions. Bit i stands for kExtensions[i].
using ExtensionSet = uint64_t;
static_assert(kExtensionCount <= 64);

// Returns the set of the extensions in `names`, which are separated by blanks. An unknown name is a
// compile-time error.
consteval ExtensionSet make_extension_set(std::string_view names) {
  ExtensionSet set = 0;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(name.size() < names.size() ? name.size() + 1 : name.size());
    int i = 0;
    while (i < kExtensionCount && name != kExtensions[i].name) ++i;
    if (i == kExtensionCount) throw std::invalid_argument("unknown extension");
    set |= ExtensionSet{1} << i;
  }
  return set;
}

// A level of the x86-64 psABI. kMicroarchitectureLevels is sorted from the lowest to the highest level, and
// each level includes all lower levels.
struct MicroarchitectureLevel {
  const char* name;
  ExtensionSet extensions;
};
inline constexpr MicroarchitectureLevel kMicroarchitectureLevels[] = {
    {"x86-64", 0},
    {"x86-64-v2", make_extension_set("sse3 ssse3 sse4.1 sse4.2 popcnt")},
    {"x86-64-v3",
     make_extension_set("sse3 ssse3 sse4.1 sse4.2 popcnt avx avx2 bmi1 bmi2 f16c fma lzcnt movbe")},
    {"x86-64-v4",
     make_extension_set("sse3 ssse3 sse4.1 sse4.2 popcnt avx avx2 bmi1 bmi2 f16c fma lzcnt movbe "
                        "avx512f avx512bw avx512cd avx512dq avx512vl")},
};

// Returns the extensions that the processor has and the operating system allows.
ExtensionSet detect_processor_extensions();

// Returns whether the dot-product instructions of AVX512-BF16 multiply faster than float instructions on this
// processor. On processors of AMD, dot-product instructions have twice the rate of float instructions. On
// processors of Intel, dot-product instructions have half the rate of float instructions. Returns false
// without AVX512-BF16.
bool has_fast_bfloat16_dot_products();

// Returns the highest level whose extensions are all in the set.
const MicroarchitectureLevel& find_highest_level(ExtensionSet set);

// Writes an error message to `text`: the program needs the extensions `needed`, but the processor has only
// `present`. Truncates the message to size - 1 characters. Calls no function of the C++ library.
void describe_missing_extensions(ExtensionSet needed, ExtensionSet present, char* text, size_t size);

// Returns the names of the extensions, separated by blanks.
std::string format_extensions(ExtensionSet set);

}  // namespace tapeformer
