// Functions that generate a speech corpus in the layout of AN4. Each phone has clearly different features, so
// a small model learns to recognise the phones in a few seconds.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "core/random/rng.h"
#include "data/files/file.h"
#include "tests/support/temp_dir.h"
#include "train/build.h"

namespace tapeformer::test {

inline void append_big_endian(Bytes& bytes, uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
}

// Returns the contents of a .mfc file with 13 values per frame and 6 frames per phone. One value is high in
// the first four frames of a phone: value 0 for "A", 2 for "B" and 4 for "C". In the last two frames, value
// 12 is high.
inline Bytes make_mfc_file(const std::string& phones, uint64_t seed) {
  std::vector<float> values;
  const RandomStream noise(seed, "mfc", 0);
  const auto frame = [&](int high) {
    for (int d = 0; d < 13; ++d)
      values.push_back((d == high ? 3.0F : 0.0F) + 0.3F * static_cast<float>(noise.uniform(values.size())));
  };
  for (const char phone : phones) {
    for (int i = 0; i < 4; ++i) frame(2 * (phone - 'A'));
    for (int i = 0; i < 2; ++i) frame(12);
  }
  Bytes bytes;
  append_big_endian(bytes, static_cast<uint32_t>(values.size()));
  for (const float value : values) append_big_endian(bytes, std::bit_cast<uint32_t>(value));
  return bytes;
}

// Writes a corpus with `train` training and `test` test utterances of one to four words. Each speaker has
// three consecutive utterances.
inline void write_tiny_an4(const std::filesystem::path& folder, int train, int test) {
  std::filesystem::create_directories(folder / "etc");
  write_file(folder / "etc/an4.dic", std::string("A A\nB B\nC C\n"));
  uint64_t seed = 0;
  for (const auto& [split, count] : {std::pair<std::string, int>{"train", train}, {"test", test}}) {
    std::string ids, texts;
    for (int i = 0; i < count; ++i) {
      ++seed;
      const std::string speaker = split + std::to_string(i / 3), id = split + "-" + std::to_string(i);
      std::string phones, words;
      for (uint64_t n = 0; n <= seed % 4; ++n) {
        phones += static_cast<char>('A' + (seed * 5 + n * (seed + 1)) % 3);
        words += std::string(1, phones.back()) + " ";
      }
      const std::string name = "clstk/" + speaker + "/" + id;
      std::filesystem::create_directories((folder / "feat" / name).parent_path());
      write_file(folder / "feat" / (name + ".mfc"), make_mfc_file(phones, seed));
      ids += name + "\n";
      texts += "<s> " + words + "</s> (" + id + ")\n";
    }
    write_file(folder / ("etc/an4_" + split + ".fileids"), ids);
    write_file(folder / ("etc/an4_" + split + ".transcription"), texts);
  }
}

// Returns a config of a model that learns the corpus in seconds.
inline Config make_tiny_speech_config(const std::filesystem::path& corpus,
                                      const std::string& encoder = "lstm") {
  Config config;
  config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
  config.data.dataset = "an4";
  config.data.options.set("path", corpus.string());
  config.data.options.set("max_frames", 60);
  config.data.batch_size = 8;
  config.model.type = "speech";
  config.model.options.set("encoder", encoder);
  config.attention = {{"linear", find_attention_kind("linear").default_options()}};
  config.model.options.set("layers", 1);
  config.model.options.set("hidden", 16);
  config.model.options.set("heads", 2);
  config.model.options.set("head_dim", 8);
  config.model.options.set("feedforward", 32);
  config.model.options.set("max_frames", 100);
  config.model.options.set("dropout", 0.1);
  config.optimizer.kind = "adam";
  config.optimizer.lr = 1e-2;
  config.train.epochs = 2;
  config.train.eval_epochs = 1;
  config.train.log_every = 1;
  return config;
}

}  // namespace tapeformer::test
