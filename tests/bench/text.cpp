// A benchmark of reading a text. It measures the construction of the tokenizer, the opening and encoding of
// the training split, and the construction of batches of windows at random positions.
#include <filesystem>

#include "data/batches/loader.h"
#include "data/text/text_dataset.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

Report run_text(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const auto path = arguments.options.get<std::string>("text");
  if (path.empty())
    throw ConfigError("the benchmark \"text\" needs --text with a file, a folder or a pattern");
  TextOptions options;
  options.path = path;
  options.tokenizer_name = arguments.options.get<std::string>("tokenizer");
  options.tokenizer_file = arguments.options.get<std::string>("tokenizer-file");
  options.sequence_length = number("length");
  options.use_random_windows = true;
  std::shared_ptr<const Tokenizer> tokenizer;
  const double tokenizer_seconds =
      measure_call_seconds([&] { tokenizer = make_tokenizer(options, kInputSeed); });
  std::shared_ptr<const TextDataset> dataset;
  const double open_seconds = measure_call_seconds(
      [&] { dataset = std::make_shared<const TextDataset>(options, "text", "train", tokenizer); });
  const Loader loader(dataset, {.batch_size = number("batch"), .seed = kInputSeed});
  const int64_t steps = number("steps");
  const double seconds = measure_median_call_seconds(number("repeats"), [&] {
    for (int64_t step = 0; step < steps; ++step) static_cast<void>(loader.batch_at(step));
  });
  const auto tokens = static_cast<double>(steps * number("batch") * (options.sequence_length + 1));
  const auto megabytes = static_cast<double>(TextSource(list_text_files(path)).size()) / 1e6;
  return Report()
      .add("tokenizer", options.tokenizer_name)
      .add("megabytes", megabytes)
      .add("vocabulary", tokenizer->vocabulary_size())
      .add("tokenizer_seconds", tokenizer_seconds)
      .add("open_seconds", open_seconds)
      .add("open_megabytes_per_second",
           megabytes * (1 - options.valid_share - options.test_share) / open_seconds)
      .add("tokens_per_second", tokens / seconds);
}

}  // namespace

Benchmark make_text_benchmark() {
  return {
      .name = "text",
      .summary = "a text: making the tokenizer, opening the training split, and batches of random windows",
      .options =
          {{.name = "text", .default_value = std::string(), .help = "file, folder or pattern"},
           {.name = "tokenizer",
            .default_value = std::string(kByteTokenizerName),
            .help = "tokens of the text",
            .choices = {kByteTokenizerName, kCharacterTokenizerName, kSentencePieceTokenizerName,
                        kBpeTokenizerName}},
           {.name = "tokenizer-file", .default_value = std::string(), .help = "tokenizer.json of bpe"},
           {.name = "length",
            .default_value = int64_t{256},
            .help = "predictions per window",
            .min = 1,
            .max = 1 << 20},
           {.name = "batch", .default_value = int64_t{64}, .help = "windows", .min = 1, .max = 1 << 16},
           {.name = "steps", .default_value = int64_t{1000}, .help = "batches", .min = 1, .max = 1 << 24},
           {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1}},
      .run = run_text};
}

}  // namespace tapeformer
