#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "data/text/bpe/byte_alphabet.h"
#include "data/text/bpe/tokenizer_json.h"
#include "data/text/text_dataset.h"
#include "tests/data/support.h"
#include "tests/data/text/encoding_error.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Json = nlohmann::json;

std::string golden_path(const std::string& name) {
  return SOURCE_DIR "/tests/golden/" + name;
}

std::string read_golden(const std::string& name) {
  const Bytes bytes = read_bytes(golden_path(name), 1 << 24);
  return std::string(view_as_text(bytes, bytes.size()));
}

Json base_json() {
  return Json::parse(read_golden("bpe_tokenizer.json"));
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Json& json,
                                              UnknownCharacters unknown = UnknownCharacters::refuse) {
  return make_bpe_tokenizer(json.dump(), "tokenizer.json", unknown);
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  return tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end()));
}

std::string refusal(const Json& json) {
  return message_of<DataError>([&] { tokenizer_of(json); });
}

// Returns the message for the golden tokenizer whose entry at `pointer` has another value.
std::string refusal_with(const std::string& pointer, const Json& value) {
  Json json = base_json();
  json[Json::json_pointer(pointer)] = value;
  return refusal(json);
}

}  // namespace

TEST_CASE("BPE tokens are those of the package tokenizers, for every split") {
  const Json golden = Json::parse(read_golden("bpe.json"));
  const auto texts = golden["texts"].get<std::vector<std::string>>();
  for (const Json& expected : golden["tokenizers"]) {
    Json json = base_json();
    for (const char* key : {"pre_tokenizer", "normalizer"}) json[key] = expected[key];
    json["model"]["ignore_merges"] = expected["ignore_merges"];
    const auto tokenizer = tokenizer_of(json);
    const auto restored = deserialize_tokenizer(kBpeTokenizerName, tokenizer->serialize(), "state.json");
    CHECK(restored->serialize() == tokenizer->serialize());
    for (size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(expected["name"]);
      CAPTURE(texts[i]);
      const std::vector<int32_t> tokens = tokenizer->encode(texts[i]);
      CHECK(tokens == expected["tokens"][i].get<std::vector<int32_t>>());
      CHECK(tokens == restored->encode(texts[i]));
      if (json["normalizer"].is_null()) CHECK(decoded(*tokenizer, tokens) == texts[i]);
    }
  }
}

TEST_CASE("special tokens with the names of ends are stop tokens, and a template gives start tokens") {
  Json json = base_json();
  auto tokenizer = tokenizer_of(json);
  CHECK(tokenizer->vocabulary_size() == 427);
  CHECK(tokenizer->start_tokens().empty());
  REQUIRE(tokenizer->stop_tokens().size() == 1);
  CHECK(tokenizer->get_token_text(tokenizer->stop_tokens()[0]) == "<|endoftext|>");
  CHECK(tokenizer->get_token_text(421) == "<|end|>");
  json["post_processor"] = Json::parse(
      R"({"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false},
      {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|pad|>","type_id":0}},
      {"Sequence":{"id":"A","type_id":0}}],"pair":[],
      "special_tokens":{"<|pad|>":{"id":"<|pad|>","ids":[422],"tokens":["<|pad|>"]}}}]})");
  tokenizer = tokenizer_of(json);
  REQUIRE(tokenizer->start_tokens().size() == 1);
  CHECK(tokenizer->start_tokens()[0] == 422);
  const auto restored = deserialize_tokenizer(kBpeTokenizerName, tokenizer->serialize(), "state.json");
  CHECK(restored->start_tokens()[0] == 422);
  BpeModel model = parse_tokenizer_json(json.dump(), "t");
  model.stop_tokens = {5, 6};
  model.pieces.resize(512);  // unused tokens, as in models whose embedding is larger than the vocabulary
  const BpeModel again = parse_tokenizer_json(write_tokenizer_json(model, true), "t");
  CHECK(again.stop_tokens == model.stop_tokens);
  CHECK(again.pieces == model.pieces);
  CHECK(make_bpe_tokenizer(again, "t")->get_token_text(511).empty());
}

TEST_CASE("a byte that the BPE vocabulary lacks is an error with its position, or the unknown token") {
  Json json = base_json();
  Json& vocabulary = json["model"]["vocab"];
  vocabulary["(none)"] = vocabulary[write_byte_character(0xF1)];
  vocabulary.erase(write_byte_character(0xF1));
  const std::string text = "ab<|end|>é \U00040000";  // U+40000 begins with the byte 0xF1
  const EncodingError error = encoding_error_of(*tokenizer_of(json), text);
  CHECK(error.problem == EncodingProblem::missing_character);
  CHECK(contains(error.what(), "(U+40000) has a byte that is not in the vocabulary"));
  CHECK(error.offset == text.size() - 4);
  json["model"]["unk_token"] = "a";
  CHECK(encoding_error_of(*tokenizer_of(json), text).problem == EncodingProblem::unknown_character);
  const auto accepting = tokenizer_of(json, UnknownCharacters::token);
  CHECK(accepting->unknown_token() == tokenizer_of(json)->encode("a")[0]);
  CHECK(decoded(*accepting, accepting->encode("b\U00040000")) == "b\uFFFD\x80\x80\x80");
  CHECK(encoding_error_of(*tokenizer_of(json), "bad \xFF").problem == EncodingProblem::not_encodable);
}

TEST_CASE("a tokenizer.json with unsupported parts is refused, and the error names them") {
  CHECK(contains(refusal_with("/model/type", "Unigram"), R"(expected "BPE", got "Unigram")"));
  CHECK(contains(refusal_with("/normalizer", {{"type", "Lowercase"}}), R"(NFC or none, got "Lowercase")"));
  CHECK(contains(refusal_with("/pre_tokenizer", {{"type", "Metaspace"}}), "got \"{"));
  CHECK(
      contains(refusal_with("/pre_tokenizer/add_prefix_space", true), "expected the split of GPT-2, SmolLM"));
  CHECK(contains(refusal_with("/pre_tokenizer", nullptr), "pre_tokenizer"));
  CHECK(contains(refusal_with("/post_processor", {{"type", "RobertaProcessing"}}), "RobertaProcessing"));
  CHECK(contains(refusal_with("/decoder", {{"type", "WordPiece"}}), "WordPiece"));
  CHECK(contains(refusal_with("/model/dropout", 0.1), "expected null, got 0.1"));
  CHECK(contains(refusal_with("/model/byte_fallback", true), "byte_fallback: expected false, got true"));
  CHECK(contains(refusal_with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix"));
  CHECK(contains(refusal_with("/added_tokens/0/lstrip", true), "\"<|endoftext|>\" has lstrip = true"));
  CHECK(contains(refusal_with("/model/new_option", 1), "unknown entry \"new_option\""));
  CHECK(contains(refusal_with("/new_part", 1), "unknown entry \"new_part\""));
}

TEST_CASE("added tokens have the numbers that the package tokenizers gives them") {
  const auto added_error = [](const std::vector<std::pair<int, std::string>>& tokens) {
    Json list = Json::array();
    for (const auto& [id, text] : tokens) list.push_back({{"id", id}, {"content", text}});
    return refusal_with("/added_tokens", list);
  };
  const int token = base_json()["model"]["vocab"]["a"];  // the vocabulary has 420 pieces
  CHECK(added_error({{420, "<x>"}, {token, "a"}, {421, "<y>"}}).empty());
  CHECK(
      contains(added_error({{420, "a"}}), concat_text("expected ", token, ", the number of \"a\", got 420")));
  CHECK(
      contains(added_error({{5, "<x>"}}), "added_tokens[0].id: expected 420, the number of \"<x>\", got 5"));
  CHECK(contains(added_error({{420, "<x>"}, {420, "<y>"}}), "expected 421"));
  CHECK(contains(added_error({{420, "<x>"}, {421, "<x>"}}), "expected 420"));
  CHECK(contains(added_error({{427, "<x>"}}), "expected 420"));
}

TEST_CASE("a template of start tokens has one text after at most 16 tokens") {
  const auto template_error = [](const Json& single, size_t count = 1) {
    Json json = base_json();
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", single},
                              {"special_tokens", {{"<|pad|>", {{"ids", std::vector<int>(count, 422)}}}}}};
    return refusal(json);
  };
  const Json start = {{"SpecialToken", {{"id", "<|pad|>"}}}}, text = {{"Sequence", {{"id", "A"}}}};
  CHECK(template_error({start, text}).empty());
  CHECK(template_error({start, text}, 16).empty());
  CHECK(contains(template_error({start, text}, 17), "has 17 start tokens, expected at most 16"));
  CHECK(contains(template_error(Json::array({start})), "expected special tokens, and then one text"));
  CHECK(contains(template_error({start, text, text}), "expected special tokens, and then one text"));
  CHECK(contains(template_error({text, start}), "expected special tokens, and then one text"));
  CHECK(contains(template_error({start, {{"Sequence", {{"id", "B"}}}}}), "expected \"A\", got \"B\""));
  CHECK(contains(template_error(Json::array()), "single"));
  const Json part = {{"type", "TemplateProcessing"}, {"single", {text}}, {"special_tokens", Json::object()}};
  CHECK(contains(refusal_with("/post_processor", {{"type", "Sequence"}, {"processors", {part, part}}}),
                 "one TemplateProcessing"));
}

TEST_CASE("a damaged tokenizer.json is an error with the entry") {
  CHECK(contains(refusal_with("/model/vocab/a", -1), "vocab[\"a\"]: expected an integer from 0"));
  CHECK(contains(refusal_with("/model/vocab/a", 12345678), "the largest token is 12345678, and only 427"));
  CHECK(contains(refusal_with("/model/vocab/a", 0), "the token 0 has two pieces"));
  CHECK(contains(refusal_with("/model/merges/0", "a b c"), "expected two pieces with a space"));
  CHECK(contains(refusal_with("/model/merges/0", Json::array({"a"})), "expected two pieces"));
  CHECK(contains(refusal_with("/model/merges/0", Json::array({"a", "\u4e2d"})), "is not in the vocabulary"));
  CHECK(contains(refusal_with("/added_tokens/0/content", ""), "the added token 420 has no text"));
  CHECK(contains(refusal_with("/added_tokens", 3), "added_tokens: expected a list, got 3"));
  CHECK(contains(refusal_with("/model", 3), "expected an object"));
  const std::string text = read_golden("bpe_tokenizer.json");
  const auto parse_error = [](const std::string& damaged) {
    return message_of<DataError>([&] { make_bpe_tokenizer(damaged, "t.json"); });
  };
  CHECK(contains(parse_error(text.substr(0, 3000)), "t.json: is not valid JSON at byte"));
  CHECK(contains(parse_error(std::string(100'000, '[')), "t.json: is nested deeper than 16"));
  CHECK(contains(parse_error("[]"), "t.json: expected an object"));
  CHECK(contains(parse_error("{}"), "t.json: the entry \"pre_tokenizer\" is missing"));
}

TEST_CASE("a text that is encoded in parts has the tokens of the whole text") {
  const TempDir dir;
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i)
    text += i % 3 == 0   ? "In the beginning  \n\n"
            : i % 3 == 1 ? "\n12345\n  the earth\r\n"
                         : "void.\n日本語\n";
  write_file(dir / "text.txt", text);
  TextOptions options;
  options.path = (dir / "text.txt").string();
  options.tokenizer_name = kBpeTokenizerName;
  options.tokenizer_file = golden_path("bpe_tokenizer.json");
  options.valid_share = options.test_share = 0;
  const auto tokenizer = make_tokenizer(options, 1);
  const TextDataset dataset(options, "text", "train", tokenizer);
  const std::vector<int32_t> expected = tokenizer->encode(text);
  std::vector<int64_t> tokens(static_cast<size_t>(dataset.tokens().size()));
  dataset.tokens().read(0, dataset.tokens().size(), tokens.data());
  CHECK(tokens == std::vector<int64_t>(expected.begin(), expected.end()));
}

TEST_CASE("the time of BPE grows almost linearly with the length of a word") {
  const auto tokenizer = tokenizer_of(base_json());
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += static_cast<char>('a' + i * 7 % 26);
  CHECK(decoded(*tokenizer, tokenizer->encode(text)) == text);  // takes hours in quadratic time
}
