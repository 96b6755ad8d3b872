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

inline constexpr const char* kExtensionNames[] = {
    "sse3",        "ssse3",        "sse4.1",      "sse4.2",        "popcnt",
    "movbe",       "lzcnt",        "bmi1",        "bmi2",          "avx",
    "f16c",        "fma",          "avx2",        "avx_vnni",      "avx512f",
    "avx512cd",    "avx512dq",     "avx512bw",    "avx512vl",      "avx512ifma",
    "avx512_vbmi", "avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq",
    "avx512_bf16", "avx512_fp16",  "amx_tile",    "amx_int8",      "amx_bf16"};
inline constexpr int kExtensionCount = static_cast<int>(std::size(kExtensionNames));

// A set of extensions. Bit i stands for kExtensionNames[i].
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
    while (i < kExtensionCount && name != kExtensionNames[i]) ++i;
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
