#include "core/utf8.h"

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("bytes that are not UTF-8 are found where they begin") {
  for (const std::string good : {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF",
                                 "\xEE\x80\x80", "\xF4\x8F\xBF\xBF", "\xC2\x80"})
    CHECK(find_invalid_utf8(good) == std::string_view::npos);
  // A lone byte, overlong forms, surrogates, too large, cut short.
  for (const std::string bad : {"\x80", "\xE9", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x82", "\xC3", "\xC3g"})
    CHECK(find_invalid_utf8("ab" + bad) == 2);
}

TEST_CASE("every valid code is encoded and decoded without loss") {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(code, text);
    const Utf8Character character = first_character(text);
    if (character.code == code && character.bytes == text.size()) continue;
    CAPTURE(static_cast<uint32_t>(code));
    REQUIRE(character.code == code);
    REQUIRE(character.bytes == text.size());
  }
}
