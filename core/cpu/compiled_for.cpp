#include "core/cpu/compiled_for.h"

#include "core/cpu/vector.h"

namespace tapeformer::cpu {
namespace {

// If the compiler defines `macro` as 1, TAPEFORMER_HAS(macro, name) is a set that contains only the extension
// `name`. Otherwise TAPEFORMER_HAS(macro, name) is the empty set.
#define TAPEFORMER_TEXT(word) #word
#define TAPEFORMER_HAS(macro, name) (TAPEFORMER_TEXT(macro)[0] == '1' ? make_extension_set(name) : 0)

constexpr ExtensionSet kExtensionsOfCompiler =
    TAPEFORMER_HAS(__SSE3__, "sse3") | TAPEFORMER_HAS(__SSSE3__, "ssse3") |
    TAPEFORMER_HAS(__SSE4_1__, "sse4.1") | TAPEFORMER_HAS(__SSE4_2__, "sse4.2") |
    TAPEFORMER_HAS(__POPCNT__, "popcnt") | TAPEFORMER_HAS(__MOVBE__, "movbe") |
    TAPEFORMER_HAS(__LZCNT__, "lzcnt") | TAPEFORMER_HAS(__BMI__, "bmi1") | TAPEFORMER_HAS(__BMI2__, "bmi2") |
    TAPEFORMER_HAS(__AVX__, "avx") | TAPEFORMER_HAS(__F16C__, "f16c") | TAPEFORMER_HAS(__FMA__, "fma") |
    TAPEFORMER_HAS(__AVX2__, "avx2") | TAPEFORMER_HAS(__AVXVNNI__, "avx_vnni") |
    TAPEFORMER_HAS(__AVX512F__, "avx512f") | TAPEFORMER_HAS(__AVX512CD__, "avx512cd") |
    TAPEFORMER_HAS(__AVX512DQ__, "avx512dq") | TAPEFORMER_HAS(__AVX512BW__, "avx512bw") |
    TAPEFORMER_HAS(__AVX512VL__, "avx512vl") | TAPEFORMER_HAS(__AVX512IFMA__, "avx512ifma") |
    TAPEFORMER_HAS(__AVX512VBMI__, "avx512_vbmi") | TAPEFORMER_HAS(__AVX512VBMI2__, "avx512_vbmi2") |
    TAPEFORMER_HAS(__AVX512VNNI__, "avx512_vnni") | TAPEFORMER_HAS(__AVX512BITALG__, "avx512_bitalg") |
    TAPEFORMER_HAS(__AVX512VPOPCNTDQ__, "avx512_vpopcntdq") | TAPEFORMER_HAS(__AVX512BF16__, "avx512_bf16") |
    TAPEFORMER_HAS(__AVX512FP16__, "avx512_fp16");

}  // namespace

// These variables are read before dynamic initialization, so their initializers must be constant expressions.
constinit const ExtensionSet kCompiledExtensions = kExtensionsOfCompiler;
constinit const char* const kCompiledArchitecture = TAPEFORMER_ARCHITECTURE;
constinit const int kCompiledVectorBytes = static_cast<int>(kVectorBytes);

}  // namespace tapeformer::cpu
