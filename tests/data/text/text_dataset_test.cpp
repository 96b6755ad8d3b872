#include "data/text/text_dataset.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/system/log.h"
#include "data/batches/loader.h"
#include "data/text/bpe/bpe_model.h"
#include "tests/data/support.h"
#include "tests/data/text/piece_model.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns a text of `bytes` bytes. Byte i of the text is i modulo 251.
std::string counted(int64_t bytes) {
  std::string text;
  for (int64_t i = 0; i < bytes; ++i) text += static_cast<char>(i % 251);
  return text;
}

struct TextSplit {
  std::string split;
  TextOptions text;
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: the one that `text` describes
};

TextSplit get_token_text(const std::filesystem::path& path, const std::string& split, int64_t length) {
  TextOptions text;
  text.path = path.string();
  text.sequence_length = length;
  text.valid_share = text.test_share = 0.25;
  return {split, text};
}

std::shared_ptr<const TextDataset> open_split(const TextSplit& part) {
  return std::make_shared<const TextDataset>(part.text, "text", part.split,
                                             part.tokenizer ? part.tokenizer : make_tokenizer(part.text, 0));
}

// Returns how often each token from 0 to `tokens` - 1 is a target of the examples of `dataset`. Does not
// count masked targets.
std::vector<int> target_counts(const Dataset& dataset, int64_t tokens) {
  std::vector<int> counts(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Batch batch = dataset.batch(std::vector<int64_t>{i});
    const auto values = batch.tokens.to_vector();
    for (size_t t = 1; t < values.size(); ++t)
      if (!batch.mask.defined() || batch.mask.data<uint8_t>()[t - 1])
        ++counts[static_cast<size_t>(values[t])];
  }
  return counts;
}

}  // namespace

TEST_CASE("splits are contiguous parts of the text, and evaluation predicts each token but the first once") {
  const TempDir dir;
  write_file(dir / "text", counted(200));
  for (const int64_t context : {0, 1, 5, 9}) {
    TextSplit options = get_token_text(dir / "text", "train", 10);
    options.text.eval_context = context;
    CHECK(open_split(options)->info() == DatasetInfo{"text", "train", 256, 10});
    for (const auto& [split, first] : {std::pair{"valid", 100}, std::pair{"test", 150}}) {
      options.split = split;
      const auto dataset = open_split(options);
      std::vector<int> expected(200);
      std::fill(expected.begin() + first + 1, expected.begin() + first + 50, 1);
      CHECK(target_counts(*dataset, 200) == expected);
      // In each window after the first, at least `context` tokens precede each unmasked prediction.
      const Batch batch = dataset->batch(std::vector<int64_t>{1});
      if (context > 0) CHECK(batch.mask.data<uint8_t>()[context - 1] == 0);
    }
  }
}

TEST_CASE("each window begins with the start tokens, and evaluation predicts each token of the text once") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 80; ++i) text += static_cast<char>('a' + i % 20);
  write_file(dir / "text", text);
  for (const std::vector<int32_t>& starts : {std::vector<int32_t>{20}, {20, 21, 20}})
    for (const int64_t context : {0, 1, 5}) {
      BpeModel model;
      for (int i = 0; i < 22; ++i) model.pieces.emplace_back(1, static_cast<char>('a' + i));
      model.start_tokens = starts;
      TextSplit options = get_token_text(dir / "text", "test", 10);
      options.text.tokenizer_name = "bpe";
      options.text.eval_context = context;
      options.tokenizer = make_bpe_tokenizer(model, "test");
      const auto test = open_split(options);
      const std::vector<int> counts = target_counts(*test, 22);
      CHECK(counts == [] {
        std::vector<int> expected(22, 1);
        expected[20] = expected[21] = 0;
        return expected;
      }());
      for (int64_t i = 0; i < test->size(); ++i) {
        const auto tokens = test->batch(std::vector<int64_t>{i}).tokens.to_vector();
        CHECK(tokens.size() == 11);
        CHECK(std::equal(starts.begin(), starts.end(), tokens.begin()));
      }
    }
}

TEST_CASE("valid_path and test_path select the files of the splits") {
  const TempDir dir;
  write_file(dir / "text", counted(40));
  write_file(dir / "other", counted(20));
  TextSplit options = get_token_text(dir / "text", "valid", 8);
  options.text.valid_path = (dir / "other").string();
  CHECK(open_split(options)->tokens().size() == 20);
  options.split = "train";
  CHECK(open_split(options)->tokens().size() == 30);
}

TEST_CASE("for an ASCII text, tokens of characters and of bytes give windows of the same text") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 3'000'000; ++i)
    text += static_cast<char>(i * 7 % 31 == 0 ? '\n' : 'a' + i % 1000 * 7 % 13);
  write_file(dir / "text", text);
  TextSplit options = get_token_text(dir / "text", "train", 50);
  const auto bytes = open_split(options);
  options.text.tokenizer_name = "characters";
  const auto characters = open_split(options);
  CHECK(characters->info().vocabulary < 15);
  CHECK(characters->size() == bytes->size());
  for (const int64_t index : {int64_t{0}, int64_t{20'971}, bytes->size() - 1}) {
    const std::vector<int64_t> one{index};
    const auto a = bytes->batch(one).tokens.to_vector(), b = characters->batch(one).tokens.to_vector();
    CHECK(bytes->tokenizer()->decode(std::vector<int64_t>(a.begin(), a.end())) ==
          characters->tokenizer()->decode(std::vector<int64_t>(b.begin(), b.end())));
  }
}

TEST_CASE("shares do not divide characters, and many characters need wide tokens") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    const int code = 0x4E00 + i % 600;  // Chinese characters of three bytes
    for (const int byte : {0xE0 | code >> 12, 0x80 | (code >> 6 & 63), 0x80 | (code & 63)})
      text += static_cast<char>(byte);
  }
  write_file(dir / "text", text);
  for (const std::string split : {"train", "valid", "test"}) {
    TextSplit options = get_token_text(dir / "text", split, 20);
    options.text.tokenizer_name = "characters";
    const auto dataset = open_split(options);
    CHECK(dataset->info().vocabulary == 600);
    CHECK(dataset->batch(std::vector<int64_t>{0}).tokens.dtype() == DType::int64);
  }
}

TEST_CASE("training draws windows by seed and step, at all positions") {
  const TempDir dir;
  write_file(dir / "text", counted(400));
  TextSplit options = get_token_text(dir / "text", "train", 16);
  options.text.use_random_windows = true;
  const std::shared_ptr<const Dataset> dataset = open_split(options);
  CHECK(dataset->size() == 200 - 16);
  const Loader loader(dataset, {.batch_size = 4, .seed = 1}), other(dataset, {.batch_size = 4, .seed = 2});
  CHECK(loader.batches_per_epoch() == (200 - 16) / 16 / 4);
  std::set<int64_t> drawn;
  for (int64_t step = 0; step < 500; ++step)
    for (const int64_t index : loader.indices_at(step)) drawn.insert(index);
  CHECK(drawn.size() == 184);
  CHECK(loader.indices_at(7) == loader.indices_at(7));
  CHECK(loader.indices_at(7) != loader.indices_at(8));
  CHECK(loader.indices_at(7) != other.indices_at(7));
  const auto tokens = loader.batch_at(3).tokens.to_vector();
  CHECK(tokens[1] == std::fmod(tokens[0] + 1, 251));
}

TEST_CASE("texts shorter than a window and invalid options are errors") {
  const TempDir dir;
  write_file(dir / "text", counted(40));
  TextSplit options = get_token_text(dir / "text", "valid", 10);
  CHECK(
      contains(message_of<DataError>([&] { open_split(options); }),
               "the split \"valid\" has 10 tokens, expected at least TextOptions::sequence_length + 1 = 11"));
  options = get_token_text(dir / "text", "train", 8);
  options.text.valid_share = 0.8;
  CHECK(contains(message_of<ConfigError>([&] { open_split(options); }), "expected less than 1"));
  options = get_token_text(dir / "text", "test", 8);
  options.text.eval_context = 8;
  CHECK(contains(message_of<ConfigError>([&] { open_split(options); }),
                 "TextOptions::eval_context: expected 0 to 7"));
  write_file(dir / "text", counted(200) + "\xFF");
  options = get_token_text(dir / "text", "train", 8);
  options.text.tokenizer_name = "characters";
  CHECK(contains(message_of<DataError>([&] { open_split(options); }), "is not valid UTF-8"));
}

TEST_CASE("a line of four gigabytes is mapped, and a line of 64 MiB is encoded in parts") {
  const TempDir dir;
  constexpr int64_t kFileBytes = int64_t{1} << 32, kFileCharacters = int64_t{1} << 26;
  const auto write_line = [&](const char* name, int64_t bytes) {
    write_file(dir / name, std::string("start"));
    // resize_file() appends NUL bytes, which use no disk space.
    std::filesystem::resize_file(dir / name, static_cast<uintmax_t>(bytes));
    return dir / name;
  };
  TextSplit options = get_token_text(write_line("bytes", kFileBytes), "train", 8);
  options.text.valid_share = options.text.test_share = 0;
  const auto bytes = open_split(options);
  CHECK(bytes->size() == kFileBytes / 8);
  CHECK(bytes->batch(std::vector<int64_t>{0}).tokens.to_vector()[1] == 't');
  CHECK(bytes->batch(std::vector<int64_t>{bytes->size() - 1}).tokens.to_vector()[8] == 0);
  options.text.path = write_line("characters", kFileCharacters).string();
  options.text.tokenizer_name = "characters";
  const auto characters = open_split(options);
  CHECK(characters->size() == kFileCharacters / 8);
  CHECK(characters->info().vocabulary == 5);  // NUL and the letters a, r, s and t
}

TEST_CASE("segments follow each other, and the last segment is padded with masked tokens") {
  const TempDir dir;
  write_file(dir / "text", counted(200));
  TextSplit options =
      get_token_text(dir / "text", "test", 10);  // the test split contains the bytes 150 to 199
  options.text.use_segments = true;
  const auto dataset = open_split(options);
  REQUIRE(dataset->size() == 5);
  const Batch batch = dataset->batch(std::vector<int64_t>{3, 4});
  const auto tokens = batch.tokens.to_vector(), mask = batch.mask.to_vector();
  CHECK(std::vector(tokens.begin(), tokens.begin() + 2) == std::vector<double>{180, 181});
  CHECK(std::vector(tokens.begin() + 11, tokens.begin() + 13) == std::vector<double>{190, 191});
  CHECK(tokens.back() == 0);
  CHECK(std::count(mask.begin(), mask.end(), 0) == 1);
  CHECK(mask.back() == 0);
  std::vector<int> expected(200);
  std::fill(expected.begin() + 151, expected.end(), 1);
  CHECK(target_counts(*dataset, 200) == expected);
  options.text.eval_context = 2;
  CHECK_THROWS_WITH_AS(open_split(options), doctest::Contains("segments have no common predictions"),
                       ConfigError);
}

TEST_CASE("a text with unknown characters names the first of them, or counts their tokens") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += i % 10 == 3 ? "a\u200Bb\n" : "ab ab\n";
  write_file(dir / "text", text);
  write_file(dir / "m.model", make_piece_model({.pieces = {"\u2581", "a", "b", "\n"}}));
  TextSplit options = get_token_text(dir / "text", "train", 10);
  options.text.tokenizer_name = "sentencepiece";
  options.text.sentencepiece_model = (dir / "m.model").string();
  std::string error;
  try {
    open_split(options);
  } catch (const ConfigError&) {
    MESSAGE("skipped: built without SentencePiece");
    return;
  } catch (const EncodingError& unknown) {
    CHECK(unknown.problem == EncodingProblem::unknown_character);
    error = unknown.what();
  }
  CHECK(contains(error, (dir / "text").string() +
                            ":4 (byte 20): the character \"\u200B\" (U+200B) is not in the vocabulary"));
  static std::string log;
  log.clear();
  set_log_sink([](LogLevel, const std::string& line) { log += line + "\n"; });
  options.text.unknown_characters = UnknownCharacters::token;
  const auto dataset = open_split(options);
  set_log_sink(nullptr);
  const auto& tokens = dynamic_cast<const TextDataset&>(*dataset).tokens();
  std::vector<int64_t> all(static_cast<size_t>(tokens.size()));
  tokens.read(0, tokens.size(), all.data());
  const auto unknown = std::count(all.begin(), all.end(), 0);
  CHECK(unknown == 5);
  CHECK(contains(log, concat_text("text train: ", unknown, " of ", all.size(), " tokens (")));
  // 50 lines have a space more than the text, and 5 lines lack a character of 3 bytes.
  CHECK(contains(log, "text train: the tokens have 335 bytes, the text has 300"));
}

TEST_CASE(
    "the log says that a SentencePiece model changes a text, also if the number of bytes stays the same") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a  b\n";
  write_file(dir / "text", text);
  static std::string log;
  // The model adds a space before each line and removes one within it.
  for (const bool changes : {true, false}) {
    write_file(dir / "m.model", make_piece_model({.pieces = {"\u2581", "a", "b", "\n"},
                                                  .add_dummy_prefix = changes,
                                                  .remove_extra_whitespaces = changes}));
    TextSplit options = get_token_text(dir / "text", "train", 10);
    options.text.tokenizer_name = "sentencepiece";
    options.text.sentencepiece_model = (dir / "m.model").string();
    log.clear();
    set_log_sink([](LogLevel, const std::string& line) { log += line + "\n"; });
    try {
      open_split(options);
    } catch (const ConfigError&) {
      set_log_sink(nullptr);
      MESSAGE("skipped: built without SentencePiece");
      return;
    }
    set_log_sink(nullptr);
    CHECK(contains(log, "have 250 bytes, the text has 250, and they differ") == changes);
  }
}
