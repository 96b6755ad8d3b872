// A small language model for tests of commands.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"

namespace tapeformer::test {

using Words = std::vector<std::string>;

// A language model that was trained for three steps on a text of three sentences. call() runs a command on
// the model.
class TextRun {
 public:
  explicit TextRun(const std::string& attention = "linear", const std::string& tokenizer = "characters",
                   const std::string& positions = "sinusoidal") {
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += i % 3 == 0 ? "the cat sat.\n" : i % 3 == 1 ? "a dog ran.\n" : "so it was.\n";
    write_file(text_path(), text);
    config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
    config.data = {.dataset = "text", .batch_size = 4};
    config.data.options.set("path", text_path().string());
    config.data.options.set("tokenizer", tokenizer);
    config.data.options.set("sequence_length", 40);
    for (const char* share : {"valid_share", "test_share"}) config.data.options.set(share, 0.1);
    config.model.type = "sequence";
    config.model.attention = {attention};
    config.model.options.set("positions", positions);
    config.model.options.set("layers", 1);
    config.model.options.set("heads", 2);
    config.model.options.set("head_dim", 8);
    config.model.options.set("feedforward", 16);
    config.attention = {{attention, find_attention_kind(attention).make_options(
                                        find_attention_kind(attention).test_options)}};
    config.train.steps = 3;
    train(config, dir / "run");
  }
  std::filesystem::path text_path() const { return dir / "text.txt"; }
  std::string path() const { return (dir / "run").string(); }
  ProgramResult call(Words words, const Words& extra_words = {}, const std::string& in = "/dev/null") const {
    words.insert(words.begin() + 1, path());
    words.insert(words.end(), extra_words.begin(), extra_words.end());
    return run_program(words, "", in);
  }

  TempDir dir;
  Config config;
};

inline std::string generated(const TextRun& run, const Words& options) {
  const ProgramResult result = run.call({"generate"}, options);
  CAPTURE(result.err);
  CHECK(result.code == 0);
  return result.out;
}

// Prints why a test is skipped if this build has no SentencePiece.
inline bool no_sentencepiece() {
  try {
    make_sentencepiece_tokenizer("", "");
  } catch (const ConfigError&) {
    MESSAGE("skipped: built without SentencePiece");
    return true;
  } catch (const DataError&) {
  }
  return false;
}

}  // namespace tapeformer::test
