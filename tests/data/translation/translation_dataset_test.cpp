#include "data/translation/translation_dataset.h"

#include <doctest/doctest.h>

#include <chrono>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "data/batches/loader.h"
#include "data/dataset_kind.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kEnd = 256;  // the end token beside the tokenizer "bytes"

// Collects log messages during its lifetime.
class PairLog {
 public:
  PairLog() {
    text().clear();
    set_log_sink([](LogLevel, const std::string& line) { text() += line + "\n"; });
  }
  PairLog(const PairLog&) = delete;
  PairLog& operator=(const PairLog&) = delete;
  ~PairLog() { set_log_sink(nullptr); }
  static std::string& text() {
    static std::string messages;
    return messages;
  }
};

TranslationOptions make_byte_options(const TempDir& dir, const std::string& source,
                                     const std::string& target) {
  write_file(dir / "source", source);
  write_file(dir / "target", target);
  const SentencePairPaths paths{(dir / "source").string(), (dir / "target").string()};
  return {.train = paths, .valid = paths, .test = paths, .tokenizer_name = "bytes"};
}

TranslationDataset read_split(const TranslationOptions& options, const std::string& split) {
  return TranslationDataset(options, "pairs", split, make_tokenizer(options, 1));
}

}  // namespace

TEST_CASE("a batch of pairs has begin, end and padding tokens, lengths and a mask of the predictions") {
  const TempDir dir;
  const TranslationDataset set = read_split(make_byte_options(dir, "abc\nd\n", "x\nyzw\n"), "train");
  REQUIRE(set.size() == 2);
  CHECK(set.info().vocabulary == 257);
  CHECK(set.end_token() == kEnd);
  const int64_t both[] = {0, 1};
  const Batch batch = set.batch(both);
  CHECK(batch.source.shape() == Shape{2, 4});
  CHECK(batch.source.dtype() == DType::int64);
  CHECK(batch.source.to_vector() == std::vector<double>{'a', 'b', 'c', kEnd, 'd', kEnd, kEnd, kEnd});
  CHECK(batch.source_lengths.to_vector() == std::vector<double>{4, 2});
  CHECK(batch.tokens.shape() == Shape{2, 5});
  CHECK(batch.tokens.to_vector() ==
        std::vector<double>{kEnd, 'x', kEnd, kEnd, kEnd, kEnd, 'y', 'z', 'w', kEnd});
  CHECK(batch.mask.dtype() == DType::uint8);
  CHECK(batch.mask.to_vector() == std::vector<double>{1, 1, 0, 0, 1, 1, 1, 1});
  CHECK(!batch.lengths.defined());
  CHECK(!batch.labels.defined());
  CHECK(set.lengths() == std::vector<int64_t>{4, 4});
  CHECK(set.source(1) == "d");
  CHECK(set.target(1) == "yzw");
  CHECK(set.count_source_tokens(1) == 1);
  CHECK(set.count_target_tokens(1) == 3);
  CHECK(set.batch({}).tokens.shape() == Shape{0, 2});
  CHECK_THROWS_AS(set.source(2), ShapeError);
}

TEST_CASE("pairs that are left out are counted, with the line of the first") {
  const TempDir dir;
  TranslationOptions options = make_byte_options(dir, "one\n\n same\nlong sentence\nab\n  \nok\n",
                                                 "eins\nx\n same\nsatz\nabcdefg\nx\nok\n");
  options.max_length = 8;
  options.max_ratio = 3;
  const PairLog log;
  const TranslationDataset train = read_split(options, "train");
  CHECK(train.size() == 3);
  const std::string source = (dir / "source").string();
  CHECK(contains(
      log.text(),
      "pairs train: 2 of 7 pairs have an empty sentence and are left out, the first in " + source + ":2\n"));
  CHECK(contains(log.text(),
                 "1 of 7 pairs have a sentence of more than TranslationOptions::max_length = 8 tokens "
                 "and are left out, the first in " +
                     source + ":4\n"));
  CHECK(contains(log.text(),
                 "1 of 7 pairs have lengths whose ratio exceeds TranslationOptions::max_ratio = 3 and "
                 "are left out, the first in " +
                     source + ":5\n"));
  CHECK(contains(log.text(),
                 "2 of 7 pairs have the same sentence in both languages, the first in " + source + ":3\n"));
  const TranslationReport& report = train.report();
  CHECK(report.pair_count == 7);
  CHECK(report.empty.count == 2);
  CHECK(report.too_long.count == 1);
  CHECK(report.ratio.count == 1);
  CHECK(report.identical.count == 2);
  CHECK(report.source_tokens == 3 + 5 + 2);
  CHECK(report.target_tokens == 4 + 5 + 2);
  // Evaluation keeps long pairs whole and ignores the ratio.
  const TranslationDataset valid = read_split(options, "valid");
  CHECK(valid.size() == 5);
  CHECK(valid.target(3) == "abcdefg");
  CHECK(valid.info().length == 17);
  CHECK(valid.info().model_length() == train.info().model_length());
  CHECK(train.info().length == 9);
}

TEST_CASE(
    "sentences of evaluations are cut to twice max_length, and the warning names the limit and the first") {
  const TempDir dir;
  TranslationOptions options = make_byte_options(dir, "a\nb\nabcdefghi\n", "x\n123456789\n12345678\n");
  options.max_length = 4;
  const PairLog log;
  const TranslationDataset test = read_split(options, "test");
  CHECK(test.size() == 3);
  CHECK(test.report().cut.count == 2);
  CHECK(test.count_target_tokens(1) == 8);
  CHECK(test.count_source_tokens(2) == 8);
  CHECK(test.target(1) == "123456789");  // references stay whole
  CHECK(log.text().find("pairs test: 2 of 3 pairs have a sentence of more than 8 tokens, twice "
                        "TranslationOptions::max_length, and are cut, the first in " +
                        (dir / "source").string() + ":2") != std::string::npos);
  CHECK(read_split(options, "train").size() == 1);
}

TEST_CASE("a split without pairs is an error") {
  const TempDir dir;
  const PairLog log;
  const TranslationOptions empty = make_byte_options(dir, "\n\n", "x\ny\n");
  CHECK(message_of<DataError>([&] {
          read_split(empty, "train");
        }).starts_with("pairs train: no pair is left: 2 of 2 pairs have an empty sentence"));
}

TEST_CASE("without validation files, the last training pairs are held out") {
  const TempDir dir;
  TranslationOptions options = make_byte_options(dir, "a\nb\nc\nd\n", "A\nB\nC\nD\n");
  options.valid = options.test = {};
  options.valid_pairs = 1;
  const TranslationDataset train = read_split(options, "train"), valid = read_split(options, "valid");
  CHECK(train.size() == 3);
  CHECK(train.source(2) == "c");
  REQUIRE(valid.size() == 1);
  CHECK(valid.source(0) == "d");
  CHECK(
      contains(message_of<ConfigError>([&] { read_split(options, "test"); }), "the test split has no files"));
  options.limit = 2;
  CHECK(read_split(options, "train").size() == 2);
  options.valid_pairs = 4;
  CHECK(contains(message_of<DataError>([&] { read_split(options, "train"); }),
                 " has 4 pairs, expected more than TranslationOptions::valid_pairs = 4"));
}

TEST_CASE("a character that the tokenizer lacks is an error with the file and the line") {
  const TempDir dir;
  TranslationOptions options = make_byte_options(dir, "a\nb\n", "x\ny\n");
  options.tokenizer_name = "characters";
  const auto tokenizer = make_tokenizer(options, 1);
  CHECK(tokenizer->vocabulary_size() == 5);
  write_file(dir / "target", std::string("x\nz\n"));
  CHECK(message_of<DataError>([&] { TranslationDataset(options, "pairs", "train", tokenizer); }) ==
        (dir / "target").string() +
            ":2: the character \"z\" (U+007A) is not in the vocabulary of the training text");
}

TEST_CASE("the pairs do not depend on the number of threads, and a loader makes batches of tokens") {
  const TempDir dir;
  std::string source, target;
  for (int i = 0; i < 300; ++i) {
    source += std::string(static_cast<size_t>(1 + i * 7 % 20), 's') + "\n";
    target += std::string(static_cast<size_t>(1 + i * 11 % 30), 't') + "\n";
  }
  const TranslationOptions options = make_byte_options(dir, source, target);
  const int before = get_thread_count();
  set_thread_count(1);
  const auto one =
      std::make_shared<const TranslationDataset>(options, "pairs", "train", make_byte_tokenizer());
  set_thread_count(4);
  const auto four =
      std::make_shared<const TranslationDataset>(options, "pairs", "train", make_byte_tokenizer());
  set_thread_count(before);
  const LoaderOptions batches{.batch_size = 0, .seed = 3, .batch_tokens = 200};
  const Loader straight(one, batches), resumed(four, batches);
  const auto last = static_cast<int64_t>(straight.count_batches(2)) - 1;
  std::vector<Batch> expected;
  for (int64_t step = 0; step <= last; ++step) {
    expected.push_back(straight.batch_at(step));
    CHECK(expected.back().source.numel() <= 200);
    CHECK(expected.back().mask.numel() <= 200);
  }
  for (const int64_t step : {last, int64_t{0}, last / 2}) {
    const Batch batch = resumed.batch_at(step);
    CHECK(batch.source.to_vector() == expected[static_cast<size_t>(step)].source.to_vector());
    CHECK(batch.tokens.to_vector() == expected[static_cast<size_t>(step)].tokens.to_vector());
  }
}

TEST_CASE("the kind \"translation\" reads the user's files, and named sets choose their languages") {
  const DatasetKind& own = find_dataset_kind("translation");
  const OptionValues defaults(own.options);
  CHECK(own.make_tokenizer);
  CHECK(defaults.get<std::string>("tokenizer") == "sentencepiece");
  CHECK(defaults.get<int64_t>("vocabulary") == 4000);
  CHECK(own.find_problems(defaults).size() == 2);  // no source and no target
  const TempDir dir;
  write_file(dir / "s", std::string("a\nb\n"));
  write_file(dir / "t", std::string("A\nB\n"));
  OptionValues values = defaults;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, OptionValue>>{{"source", (dir / "s").string()},
                                                        {"target", (dir / "t").string()},
                                                        {"tokenizer", std::string("bytes")},
                                                        {"valid_pairs", int64_t{1}}})
    values.set(name, value);
  CHECK(own.find_problems(values).empty());
  CHECK(own.has_validation_split(values));
  CHECK(own.make(values, {.split = "valid"})->size() == 1);
  CHECK(own.get_info(values, {.split = "train"}) == own.make(values, {.split = "train"})->info());
  values.set("valid_pairs", int64_t{0});
  values.set("batch_tokens", int64_t{128});
  values.set("max_ratio", 0.5);
  values.set("test_source", (dir / "s").string());
  std::vector<std::string> wrong;
  for (const auto& [option, problem] : own.find_problems(values)) wrong.push_back(option);
  CHECK(wrong == std::vector<std::string>{"max_ratio", "batch_tokens", "test_target"});

  const DatasetKind& bible = find_dataset_kind("bible-en-es");
  for (const std::string split : {"train", "valid", "test"}) {
    write_file(dir / "bible-en-es" / (split + ".en"), std::string("one\ntwo\n"));
    write_file(dir / "bible-en-es" / (split + ".es"), std::string("uno\ndos\n"));
    write_file(dir / "bible-en-es" / (split + ".ref"), std::string("Gen 1:1\nGen 1:2\n"));
  }
  OptionValues chosen(bible.options);
  chosen.set("tokenizer", std::string("bytes"));
  const auto first_pair = [&] {
    const auto set = bible.make(chosen, {.split = "train", .data_dir = dir.path().string()});
    const auto& pairs = dynamic_cast<const TranslationDataset&>(*set);
    return pairs.source(0) + "|" + pairs.target(0);
  };
  CHECK(first_pair() == "one|uno");
  chosen.set("source_language", std::string("es"));
  CHECK(first_pair() == "uno|one");
  chosen.set("unit", std::string("chapter"));
  CHECK(first_pair() == "uno dos|one two");
  CHECK(bible.find_problems(chosen).empty());
  chosen.set("target_language", std::string("es"));
  CHECK(bible.find_problems(chosen).size() == 1);
  chosen.set("source_language", std::string("fr"));
  CHECK(bible.find_problems(chosen).front().second == "expected \"en\" or \"es\", got \"fr\"");
}

TEST_CASE("the pairs of Tatoeba are read completely, and their batches have little padding" *
          doctest::skip(!have_real("tatoeba-de-en"))) {
  const std::string folder = real_set("tatoeba-de-en").string();
  const SentencePairPaths valid{folder + "/valid.en", folder + "/valid.de"};
  const auto tokenizer = make_tokenizer({.train = valid, .vocabulary = 1000}, 1);  // quick to train
  CHECK(tokenizer->vocabulary_size() == 1000);
  const DatasetKind& kind = find_dataset_kind("tatoeba-de-en");
  const OptionValues values(kind.options);
  CHECK(kind.make(values, {.split = "valid", .tokenizer = tokenizer})->size() == 2000);
  CHECK(kind.make(values, {.split = "test", .tokenizer = tokenizer})->size() == 3000);
  const auto begin = std::chrono::steady_clock::now();
  const auto set = kind.make(values, {.split = "train", .tokenizer = tokenizer});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto& pairs = dynamic_cast<const TranslationDataset&>(*set);
  CHECK(pairs.report().pair_count == 162993);
  CHECK(pairs.size() + pairs.report().too_long.count == 162993);
  const int64_t index[] = {0};
  std::vector<int64_t> target;
  for (const double token : set->batch(index).tokens.to_vector())
    if (token != static_cast<double>(pairs.end_token())) target.push_back(static_cast<int64_t>(token));
  CHECK(tokenizer->decode(target) == pairs.target(0));
  const auto lengths = set->lengths();
  const double padding = compute_padding_share(lengths, plan_batches(lengths, {.max_batch_length = 4096}, 0));
  MESSAGE("reading " << seconds << " s, " << pairs.report().source_tokens << " source and "
                     << pairs.report().target_tokens << " target tokens, " << 100 * padding << " % padding");
  CHECK(padding < 0.05);
}
