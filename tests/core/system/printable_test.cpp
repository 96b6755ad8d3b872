#include "core/system/printable.h"

#include <doctest/doctest.h>

#include "core/system/utf8.h"

using namespace tapeformer;

TEST_CASE("escape_text escapes control characters and keeps all other text") {
  CHECK(escape_text("plain text, é 名 \U0001F600\n\tline") == "plain text, é 名 \U0001F600\n\tline");
  CHECK(escape_text("\x1b[31mred\x1b[0m") == "\\u001b[31mred\\u001b[0m");
  CHECK(escape_text(std::string_view("a\0b\r\x7f", 5)) == "a\\u0000b\\u000d\\u007f");
  CHECK(escape_text("\xc2\x9b"
                    "31m\xc2\xa0") == "\\u009b31m\xc2\xa0");
  CHECK(escape_text("\u202eevil\u202c\u2066\u2069\u200f\u2028") ==
        "\\u202eevil\\u202c\\u2066\\u2069\\u200f\\u2028");
}

TEST_CASE("escape_text escapes the bytes of invalid UTF-8 one by one") {
  CHECK(escape_text("\x9b\xff") == "\\x9b\\xff");
  CHECK(escape_text("\xc3") == "\\xc3");                             // a truncated UTF-8 sequence
  CHECK(escape_text("\xc3(") == "\\xc3(");                           // a missing continuation byte
  CHECK(escape_text("\xc0\xaf") == "\\xc0\\xaf");                    // an overlong UTF-8 sequence
  CHECK(escape_text("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");           // an overlong UTF-8 sequence
  CHECK(escape_text("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a UTF-16 surrogate
  CHECK(escape_text("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // a code point above 0x10FFFF
}

TEST_CASE("escape_line() and printable_message() prevent forged messages") {
  CHECK(escape_line("name\nerror: forged\t") == "name\\u000aerror: forged\\u0009");
  CHECK(escape_message("first\nerror: forged") == "first\n  error: forged");
  CHECK(escape_message("list:\n  item\n") == "list:\n  item\n");
}

TEST_CASE("quote_shell_word() quotes words that the shell would interpret") {
  CHECK(quote_shell_word("train.steps=3") == "train.steps=3");
  CHECK(quote_shell_word("") == "''");
  CHECK(quote_shell_word("run.name=\"a b\"") == "'run.name=\"a b\"'");
  CHECK(quote_shell_word("a'b #`c`") == "'a'\\''b #`c`'");
}

TEST_CASE("count_utf8_characters() counts characters that start in the text") {
  const std::string text = std::string("añ€😀 b") + '\0' + "\n";
  CHECK(count_utf8_characters(text) == 8);
  CHECK(count_utf8_characters(text.substr(2)) == 6);  // starts in the middle of ñ
}
