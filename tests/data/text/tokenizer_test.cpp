#include "data/text/tokenizer.h"
#include "data/text/piece_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/system/log.h"
#include "data/files/base64.h"
#include "data/text/unknown_tokens.h"
#include "tests/data/support.h"
#include "tests/data/text/encoding_error.h"
#include "tests/data/text/piece_model.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  return tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end()));
}

std::shared_ptr<const Tokenizer> characters_of(const TempDir& dir, const std::string& text) {
  write_file(dir / "characters.txt", text);
  const TextSource source({dir / "characters.txt"});
  return make_character_tokenizer({&source});
}

// Returns a text of about 60 KB from a small grammar.
std::string grammar_text() {
  const std::vector<std::string> names{"Zoë", "the king", "a shepherd", "Naïma", "the river"};
  const std::vector<std::string> verbs{"sees", "follows", "remembers", "carries"};
  std::string text;
  for (size_t i = 0; i < 2000; ++i)
    text += names[i * 7 % 5] + " " + verbs[i * 3 % 4] + " " + names[i * 11 % 5] + ", and  then\n";
  return text;
}

std::shared_ptr<const Tokenizer> trained(const TempDir& dir, const std::string& text, int64_t vocabulary) {
  write_file(dir / "train.txt", text);
  return train_sentencepiece(TextSource({dir / "train.txt"}), vocabulary, 1);
}

bool no_sentencepiece() {
  const auto message = message_of<ConfigError>(
      [] { static_cast<void>(message_of<DataError>([] { make_sentencepiece_tokenizer("", ""); })); });
  if (message.empty()) return false;
  CHECK(contains(message, "install libsentencepiece-dev"));
  MESSAGE("skipped: built without SentencePiece");
  return true;
}

}  // namespace

TEST_CASE("bytes encode any data") {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const auto tokenizer = make_byte_tokenizer();
  CHECK(tokenizer->vocabulary_size() == 256);
  const auto tokens = tokenizer->encode(all);
  CHECK(tokens[200] == 200);
  CHECK(decoded(*tokenizer, tokens) == all);
}

TEST_CASE("characters are numbered in the order of their codes and restored from their data") {
  const TempDir dir;
  const std::string text = std::string("añ€😀 b") + '\0' + "\n";
  const auto tokenizer = characters_of(dir, text);
  CHECK(tokenizer->vocabulary_size() == 8);
  CHECK(tokenizer->serialize() == std::string(1, '\0') + "\n abñ€😀");
  CHECK(tokenizer->encode("a😀") == std::vector<int32_t>{3, 7});
  const auto restored = deserialize_tokenizer(kCharacterTokenizerName, tokenizer->serialize(), "state.json");
  CHECK(decoded(*restored, restored->encode(text)) == text);
}

TEST_CASE("texts and prompts that a tokenizer cannot encode are errors with a position") {
  const TempDir dir;
  CHECK(contains(message_of<DataError>([&] { characters_of(dir, "good\xFF"); }),
                 "characters.txt:1 (byte 5) is not valid UTF-8; the tokenizer \"bytes\" takes any bytes"));
  CHECK(contains(message_of<DataError>([&] { characters_of(dir, "a\ncut \xE2\x82"); }),
                 "characters.txt:2 (byte 7)"));
  const auto tokenizer = characters_of(dir, "abc");
  const EncodingError error = encoding_error_of(*tokenizer, "ab€");
  CHECK(contains(error.what(), "the character \"€\" (U+20AC) is not in the vocabulary"));
  CHECK(error.problem == EncodingProblem::missing_character);
  CHECK(error.offset == 2);
  CHECK(encoding_error_of(*tokenizer, "ab\xFF").problem == EncodingProblem::not_encodable);
  CHECK(contains(message_of<EncodingError>([&] { tokenizer->encode("a\n"); }),
                 "the character \"\\u000a\" (U+000A)"));
  for (const std::string& damaged :
       {std::string(), std::string("ba"), std::string("aa"), std::string("\xFF")})
    CHECK_THROWS_AS(deserialize_tokenizer(kCharacterTokenizerName, damaged, "state.json"), DataError);
  CHECK(contains(message_of<DataError>([] { deserialize_tokenizer("words", "", "state.json"); }),
                 "unknown tokenizer \"words\""));
}

TEST_CASE(
    "decoded SentencePiece tokens equal the text, with spaces, line ends, NUL bytes and rare characters") {
  if (no_sentencepiece()) return;
  const TempDir dir;
  const auto tokenizer = trained(dir, grammar_text(), 300);
  CHECK(tokenizer->vocabulary_size() == 300);
  const std::string text = "the king  sees Zoë,\n\n\tand 龍 then " + std::string(1, '\0') + "\n";
  const auto tokens = tokenizer->encode(text);
  CHECK(decoded(*tokenizer, tokens) == text);
  CHECK(tokens.size() < text.size());
  const auto restored =
      deserialize_tokenizer(kSentencePieceTokenizerName, tokenizer->serialize(), "state.json");
  CHECK(restored->encode(text) == tokens);
  CHECK_THROWS_AS(tokenizer->encode("bad \xFF"), EncodingError);
  // The trained model depends only on the text and the seed.
  CHECK(trained(dir, grammar_text(), 300)->serialize() == tokenizer->serialize());
}

TEST_CASE("a trained SentencePiece model does not change any text") {
  if (no_sentencepiece()) return;
  const TempDir dir;
  const auto tokenizer = trained(dir, "the\u2581king \u2585 sees\n" + grammar_text(), 300);
  const std::vector<std::string> parts{
      "the king", "sees",       " ",      "  ",   "\u2581", "\u2581\u2581",
      "\u2585",   "\n",         "\r\n",   "\t",   "\uFEFF", "\uFFFD",
      "\u2047",   "\u00A0",     "<unk>",  "<s>",  "<0x0A>", "e\u0301",
      "\uFB01",   "\U0001F600", "\u200B", "\x7F", "\u3000", std::string(1, '\0')};
  std::string all;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int j = 0; j < 1 + i % 9; ++j)
      text += parts[static_cast<size_t>(i * 31 + j * j * 17 + i * j * 7) % parts.size()];
    CAPTURE(text);
    CHECK(decoded(*tokenizer, tokenizer->encode(text)) == text);
    all += text;
  }
  CHECK(decoded(*tokenizer, tokenizer->encode(all)) == all);
  const std::string model = tokenizer->serialize();
  CHECK(make_sentencepiece_tokenizer(model, "m")->encode("the\u2581king") != tokenizer->encode("the king"));
}

TEST_CASE("models of other programs keep U+2581 if they have bytes and add no spaces") {
  if (no_sentencepiece()) return;
  PieceModelOptions options{
      .pieces = {"\u2581", "\u2581a", "a", "b"}, .byte_fallback = true, .add_dummy_prefix = false};
  const std::string text = "a\u2581b \u2581\n";
  const auto round_trip = [&] {
    const auto tokenizer = make_sentencepiece_tokenizer(make_piece_model(options), "m");
    return decoded(*tokenizer, tokenizer->encode(text));
  };
  CHECK(round_trip() == text);
  options.add_dummy_prefix = true;
  CHECK(round_trip() == " a b  \n");
  options.byte_fallback = options.add_dummy_prefix = false;
  options.pieces.push_back("\n");
  CHECK(round_trip() == "a b  \n");
}

TEST_CASE(
    "settings behind a SentencePiece model add special and unused tokens, and one space before a text") {
  if (no_sentencepiece()) return;
  const std::string model =
      make_piece_model({.pieces = {"\u2581", "\u2581a", "a", "b"}, .byte_fallback = true});
  PieceModel parsed = parse_piece_model(model, "m");
  CHECK(parsed.model == model);
  CHECK(parsed.adds_space);
  CHECK_FALSE(parsed.removes_spaces);
  parsed.settings = {
      .start_tokens = {1}, .stop_tokens = {2, 300}, .vocabulary_size = 301, .prefixes_texts = true};
  const std::string text = write_piece_model(parsed);
  const PieceModel again = parse_piece_model(text, "m");
  CHECK(again.model == model);
  CHECK(again.settings.stop_tokens == parsed.settings.stop_tokens);
  const auto tokenizer = make_sentencepiece_tokenizer(text, "m"),
             plain = make_sentencepiece_tokenizer(model, "m");
  CHECK(tokenizer->serialize() == text);
  CHECK(tokenizer->vocabulary_size() == 301);
  CHECK(tokenizer->get_token_text(300).empty());
  CHECK(std::vector(tokenizer->start_tokens().begin(), tokenizer->start_tokens().end()) == std::vector{1});
  CHECK(tokenizer->stop_tokens().size() == 2);
  CHECK(decoded(*tokenizer, tokenizer->encode("a\na b")) == " a\na b");
  CHECK(decoded(*plain, plain->encode("a\na b")) == " a\n a b");
  CHECK(decoded(*tokenizer, tokenizer->encode_rest("a")) == "a");
  CHECK(tokenizer->encode("").empty());
  CHECK(encoding_error_of(*tokenizer, "a\nb\xff").offset == 3);
  parsed.settings.stop_tokens = {301};
  CHECK(contains(message_of<DataError>([&] { make_sentencepiece_tokenizer(write_piece_model(parsed), "m"); }),
                 "m: the special token 301 is not below the number of tokens, 301"));
  for (size_t size = 1; size < text.size(); size += 7) try {
      parse_piece_model(text.substr(0, size), "m");
    } catch (const DataError& error) {
      CHECK(contains(error.what(), "m: is"));
    }
}

TEST_CASE("lines are not divided between line ends that a token joins") {
  if (no_sentencepiece()) return;
  const std::string model =
      make_piece_model({.pieces = {"a", "\n\n"}, .byte_fallback = true, .add_dummy_prefix = false});
  const auto tokenizer = make_sentencepiece_tokenizer(model, "m");
  const auto joined = static_cast<int32_t>(tokenizer->vocabulary_size() - 1);
  const auto tokens = tokenizer->encode("a\n\na\n");
  REQUIRE(tokens.size() == 4);
  CHECK(tokens[1] == joined);
}

TEST_CASE(
    "a character that a SentencePiece model lacks is named with its position, or is the unknown token") {
  if (no_sentencepiece()) return;
  for (const bool add_dummy_prefix : {false, true}) {
    const std::string model =
        make_piece_model({.pieces = {"\u2581", "a", "b", "\n"}, .add_dummy_prefix = add_dummy_prefix});
    const auto tokenizer = make_sentencepiece_tokenizer(model, "m");
    const std::string text = "ab a\nbé\u200Bb\u200B a\n";
    const EncodingError error = encoding_error_of(*tokenizer, text);
    CHECK(error.problem == EncodingProblem::unknown_character);
    CHECK(contains(error.what(),
                   "the character \"é\" (U+00E9) is not in the vocabulary of the SentencePiece model"));
    CHECK(error.offset == 6);
    const auto accepting = make_sentencepiece_tokenizer(model, "m", UnknownCharacters::token);
    // A model can predict the unknown token also if texts must not have it.
    for (const auto* one : {&tokenizer, &accepting}) CHECK((*one)->unknown_token() == 0);
    const auto tokens = accepting->encode(text);
    CHECK(std::count(tokens.begin(), tokens.end(), 0) == 2);  // consecutive unknown characters are one token
    CHECK(accepting->get_token_text(0).empty());
    CHECK(decoded(*accepting, tokens) ==
          (add_dummy_prefix ? " ab a\n b\uFFFDb\uFFFD a\n" : "ab a\nb\uFFFDb\uFFFD a\n"));
    CHECK(count_unknown(*accepting, tokens) == 2);
    CHECK(accepting->encode("ab a\n") == tokenizer->encode("ab a\n"));
  }
}

TEST_CASE("the training of a SentencePiece model logs the elapsed time until it ends") {
  if (no_sentencepiece()) return;
  const TempDir dir;
  write_file(dir / "train.txt", grammar_text());
  static std::mutex mutex;
  static std::vector<std::string> lines;
  set_log_sink([](LogLevel, const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  });
  train_sentencepiece(TextSource({dir / "train.txt"}), 300, 1, std::chrono::milliseconds(1));
  const std::vector<std::string> logged = lines;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  set_log_sink(nullptr);
  REQUIRE(logged.size() >= 2);
  CHECK(contains(logged[0], "training a SentencePiece model with 300 tokens on a text of "));
  CHECK(logged[1] == "training the SentencePiece model: 0 s");
  CHECK(lines.size() == logged.size());
}

TEST_CASE("SentencePiece encodes long lines in parts") {
  if (no_sentencepiece()) return;
  const TempDir dir;
  std::string line;
  while (line.size() < 300'000) line += "the king sees Zoë and ";
  const auto tokenizer = trained(dir, grammar_text() + line, 300);
  CHECK(decoded(*tokenizer, tokenizer->encode(line)) == line);
}

TEST_CASE("a SentencePiece model whose table of characters would be read outside of its bounds is an error") {
  // A double array of 512 units in which "A" stands for the text at the byte 0. The root is the unit 0.
  std::vector<uint32_t> units(512);
  for (uint32_t i = 0; i < units.size(); ++i) units[i] = (i & 0xFF) ^ 0x55;  // the labels of no node
  constexpr uint32_t kLeaf = 1U << 31, kHasLeaf = 1U << 8, kNode = 0x100 ^ 'A', kValue = 0x102;
  units[0] = 0x100 << 10;
  units[kNode] = (kNode ^ kValue) << 10 | kHasLeaf | 'A';
  units[kValue] = kLeaf;
  const auto make_model = [](const std::vector<uint32_t>& trie, const std::string& texts) {
    std::string map(sizeof(uint32_t) * (1 + trie.size()), '\0');
    const auto bytes = static_cast<uint32_t>(sizeof(uint32_t) * trie.size());
    std::memcpy(map.data(), &bytes, sizeof bytes);
    std::memcpy(map.data() + sizeof bytes, trie.data(), bytes);
    return make_piece_model({.pieces = {"\u2581", "a", "b"}, .character_map = map + texts});
  };
  const auto error = [&](const std::vector<uint32_t>& trie, const std::string& texts) {
    return message_of<DataError>([&] { parse_piece_model(make_model(trie, texts), "m"); });
  };
  const auto changed = [&](size_t unit, uint32_t value) {
    std::vector<uint32_t> other = units;
    other[unit] = value;
    return error(other, std::string("a\0", 2));
  };
  const std::string damaged = "the table of normalised characters is damaged";
  CHECK(error(units, std::string("a\0", 2)).empty());
  CHECK(contains(error(units, "a"), damaged));
  CHECK(contains(error(units, ""), damaged));
  CHECK(contains(error(units, std::string("\xE2\0", 2)), damaged));
  CHECK(contains(error({}, std::string("a\0", 2)), damaged));
  CHECK(contains(changed(0, 0x200 << 10), damaged));                                 // children
  CHECK(contains(changed(kValue, kLeaf | 2), damaged));                              // text
  CHECK(contains(changed(kNode, (kNode ^ 0x300) << 10 | kHasLeaf | 'A'), damaged));  // leaf
  CHECK(contains(changed(kNode, (kNode ^ 0x100) << 10 | kHasLeaf | 'A'), damaged));  // child of itself
  if (no_sentencepiece()) return;
  const auto tokenizer = make_sentencepiece_tokenizer(make_model(units, std::string("a\0", 2)), "m");
  CHECK(tokenizer->encode("A") == tokenizer->encode("a"));
}

TEST_CASE("damaged SentencePiece models and vocabularies that the text cannot fill are errors") {
  if (no_sentencepiece()) return;
  const TempDir dir;
  const std::string model = trained(dir, grammar_text(), 300)->serialize();
  for (const std::string& damaged :
       {std::string(), std::string("not a model"), model.substr(0, model.size() / 2)}) {
    const std::string error =
        message_of<DataError>([&] { make_sentencepiece_tokenizer(damaged, "m.model"); });
    CHECK(error.starts_with("m.model: is not a SentencePiece model or is damaged"));
    CHECK(!contains(error, ".cc"));  // a source file of the SentencePiece library
  }
  const std::string too_many = message_of<ConfigError>([&] { trained(dir, "a b c\n", 5000); });
  CHECK(
      too_many.starts_with("SentencePiece cannot train a vocabulary of 5000 tokens; choose another "
                           "TextOptions::vocabulary: Vocabulary size too high (5000)"));
  CHECK(!contains(too_many, ".cc"));
  CHECK(contains(message_of<DataError>([&] { trained(dir, "good\nbad \xFF\n", 300); }),
                 "train.txt:2 (byte 10) is not valid"));
}

TEST_CASE("decoded Base64 equals the data, and invalid Base64 is refused") {
  for (const std::string& data : {std::string(), std::string("f"), std::string("fo"), std::string("foo"),
                                  std::string("\x00\xFF\x10", 3)})
    CHECK(decode_base64(encode_base64(data)) == data);
  CHECK(encode_base64("foob") == "Zm9vYg==");  // RFC 4648, section 10
  CHECK(!decode_base64("abc"));
  for (const std::string invalid : {"ab!=", "=abc", "ab==cdef", " abc", "abcd\n", "===="})
    CHECK(!decode_base64(invalid));
}
