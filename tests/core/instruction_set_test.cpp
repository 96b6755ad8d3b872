#include "core/base/instruction_set.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "core/cpu/compiled_for.h"

using namespace tapeformer;

namespace {

constexpr ExtensionSet kV3 = kMicroarchitectureLevels[2].extensions,
                       kV4 = kMicroarchitectureLevels[3].extensions;

std::string missing_text(ExtensionSet needed, ExtensionSet present, size_t size = 1024) {
  std::string text(size, '?');
  describe_missing_extensions(needed, present, text.data(), size);
  return text.substr(0, std::strlen(text.c_str()));
}

}  // namespace

TEST_CASE("find_highest_level() returns a level only if the set contains all extensions of the level") {
  CHECK(std::string(find_highest_level(0).name) == "x86-64");
  CHECK(std::string(find_highest_level(kV3).name) == "x86-64-v3");
  CHECK(std::string(find_highest_level(kV3 & ~make_extension_set("fma")).name) == "x86-64-v2");
  CHECK(std::string(find_highest_level(kV4 | make_extension_set("amx_bf16")).name) == "x86-64-v4");
  CHECK(std::string(find_highest_level(kV4 & ~make_extension_set("avx512vl")).name) == "x86-64-v3");
  CHECK(format_extensions(make_extension_set("avx2 fma")) == "fma avx2");
  CHECK(format_extensions(0) == "");
}

TEST_CASE(
    "the message for missing extensions names the required level, the missing extensions and a remedy") {
  CHECK(
      missing_text(kV3, make_extension_set("sse3 ssse3 sse4.1 sse4.2 popcnt avx")) ==
      "error: this program is compiled for a processor with x86-64-v3, and this processor lacks movbe lzcnt "
      "bmi1 bmi2 f16c fma avx2; compile the program on this computer, or with -DTAPEFORMER_ARCH=x86-64-v2\n");
  CHECK(missing_text(kV4 | make_extension_set("avx512_bf16 avx_vnni"), kV4) ==
        "error: this program is compiled for a processor with x86-64-v4 and avx_vnni avx512_bf16, and this "
        "processor lacks avx_vnni avx512_bf16; compile the program on this computer, or "
        "with -DTAPEFORMER_ARCH=x86-64-v4\n");
  CHECK(missing_text(kV3, 0, 13) == "error: this ");
  CHECK(missing_text(kV3, 0, 1) == "");
}

#ifdef __x86_64__
namespace {

// Returns the value of `key` for the first processor in /proc/cpuinfo, with a blank before and after the
// value. Returns "" if /proc/cpuinfo does not contain the key.
std::string read_processor_info(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(line.find(':') + 1) + " ";
  return "";
}

}  // namespace

TEST_CASE("detect_processor_extensions() agrees with /proc/cpuinfo") {
  const std::string flags = read_processor_info("flags");
  if (flags.empty()) {
    MESSAGE("skipped: /proc/cpuinfo has no flags");
    return;
  }
  const std::map<std::string, std::string> names = {{"sse3", "pni"},
                                                    {"sse4.1", "sse4_1"},
                                                    {"sse4.2", "sse4_2"},
                                                    {"lzcnt", "abm"},
                                                    {"avx512_vbmi", "avx512vbmi"}};
  const ExtensionSet present = detect_processor_extensions();
  for (int i = 0; i < kExtensionCount; ++i) {
    const std::string name = kExtensionNames[i];
    const auto renamed = names.find(name);
    const std::string flag = " " + (renamed == names.end() ? name : renamed->second) + " ";
    CHECK_MESSAGE((present >> i & 1) == (flags.find(flag) != std::string::npos ? 1 : 0), name);
  }
}

TEST_CASE("dot products of AVX512-BF16 count as fast on processors that are not made by Intel") {
  const std::string flags = read_processor_info("flags"), vendor = read_processor_info("vendor_id");
  CHECK(has_fast_bfloat16_dot_products() ==
        (flags.find(" avx512_bf16 ") != std::string::npos && vendor != " GenuineIntel "));
}
#endif

TEST_CASE("the program runs on this processor and names the instruction set of its kernels") {
  CHECK((cpu::kCompiledExtensions & ~detect_processor_extensions()) == 0);
  ExtensionSet expected = 0;
#ifdef __AVX2__
  expected |= make_extension_set("avx2");
#endif
#ifdef __FMA__
  expected |= make_extension_set("fma");
#endif
#ifdef __AVX512F__
  expected |= make_extension_set("avx512f");
#endif
#ifdef __AVX512BF16__
  expected |= make_extension_set("avx512_bf16");
#endif
  CHECK((cpu::kCompiledExtensions & expected) == expected);
}
