#include <doctest/doctest.h>

#include "data/files/text_lines.h"
#include "data/translation/bleu_tokenizer.h"
#include "data/translation/unicode.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string bleu_tokens(std::string_view text, const std::string& tokenizer = "13a",
                        bool lower_case = false) {
  return join_words(tokenize_for_bleu(text, parse_bleu_tokenizer(tokenizer), lower_case));
}

std::string lower(std::string_view text) {
  return encode_utf8(to_lower_case(decode_utf8(text)));
}

}  // namespace

TEST_CASE("13a separates ASCII punctuation, and periods, commas and hyphens by digits") {
  CHECK(bleu_tokens("Hello, \"world\" (a/b)!") == "Hello , \" world \" ( a / b ) !");
  CHECK(bleu_tokens("1,234.5 3-4 a-b 5. .5 don't") == "1,234.5 3 - 4 a-b 5 . . 5 don't");
  CHECK(bleu_tokens("a..b,") == "a . . b ,");
  CHECK(bleu_tokens("„x“ 3,5 €。") == "„x“ 3,5 €。");
}

TEST_CASE("13a replaces entities once in a fixed order, and removes <skipped>") {
  CHECK(bleu_tokens("&quot;&lt;a&gt;&quot;") == "\" < a > \"");
  CHECK(bleu_tokens("&amp;lt; &amp;quot; &apos;") == "< & quot ; & apos ;");
  CHECK(bleu_tokens("a<skipped>b<skip<skipped>ped>") == "ab < skipped >");
  CHECK(bleu_tokens("a-\nb\nc") == "ab c");
}

TEST_CASE("intl separates symbols, and punctuation that has no number beside it") {
  CHECK(bleu_tokens("„x“ 3,5 €。 1.", "intl") == "„ x “ 3,5 € 。 1.");
  CHECK(bleu_tokens("a.b ½.½ ٣٬٤ C++ &quot;", "intl") == "a . b ½.½ ٣٬٤ C + + & quot ;");
}

TEST_CASE("char and none split at white space of Unicode only") {
  CHECK(bleu_tokens("a\xC2\xA0\xE3\x80\x80 b,\x1C\xC2\x85\r", "none") == "a b,");
  CHECK(bleu_tokens("zero\xE2\x80\x8Bwidth", "none") == "zero\xE2\x80\x8Bwidth");
  CHECK(bleu_tokens("aé 猫😀", "char") == "a é 猫 😀");
  CHECK(bleu_tokens(" \t\r", "char") == "");
  CHECK(bleu_tokens("", "13a") == "");
}

TEST_CASE("lower case follows Unicode: final sigma and U+0130") {
  CHECK(lower("ΟΔΥΣΣΕΑΣ ΣΑ Σ ΑΣ.") == "οδυσσεας σα σ ας.");
  CHECK(lower("ΑΣ'Α Α'Σ ΑΣ: ªΣ ☺Σ") == "ασ'α α'ς ας: ªς ☺σ");
  CHECK(lower("İI ẞ Ǆ") == "i\xCC\x87i ß ǆ");
  CHECK(bleu_tokens("ÄÖ <SKIPPED>", "13a", true) == "äö");
}

TEST_CASE("bytes that are not UTF-8 count as U+FFFD") {
  CHECK(bleu_tokens("a\xFFz \xE2\x82", "none") == "a\uFFFDz \uFFFD\uFFFD");
}

TEST_CASE("tokenizers have names") {
  for (const std::string& name : list_bleu_tokenizers()) CHECK(to_string(parse_bleu_tokenizer(name)) == name);
  CHECK(message_of<std::invalid_argument>([] { parse_bleu_tokenizer("zh"); }) ==
        "unknown tokenizer \"zh\", expected 13a, intl, none or char");
}
