// Generated data sets with the layouts and counts of the real data sets, for machines without the real data
// sets.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "core/random/rng.h"
#include "data/files/text_lines.h"
#include "data/speech/phones/phones.h"
#include "tests/data/support.h"

namespace tapeformer::test {

// cmudict_vowels() and cmudict_consonants() return the phones of CMUdict. The vowels have no stress markers.
inline const Words& cmudict_vowels() {
  static const Words vowels = {"AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER",
                               "EY", "IH", "IY", "OW", "OY", "UH", "UW"};
  return vowels;
}
inline const Words& cmudict_consonants() {
  static const Words consonants = {"B",  "CH", "D", "DH", "F",  "G", "HH", "JH", "K", "L", "M", "N",
                                   "NG", "P",  "R", "S",  "SH", "T", "TH", "V",  "W", "Y", "Z", "ZH"};
  return consonants;
}

// Writes folder/cmudict.dict. The file contains the ten digits and two pronunciations of "aalborg" as in
// CMUdict, and 125,000 generated words, some with a second pronunciation and a comment.
inline void write_stand_in_cmudict(const std::filesystem::path& folder) {
  std::string text =
      "aalborg AO1 L B AO0 R G # place, danish\naalborg(2) AA1 L B AO0 R G\nzero Z IH1 R OW0\nzero(2) Z IY1 "
      "R OW0\n"
      "one W AH1 N\ntwo T UW1\nthree TH R IY1\nfour F AO1 R\nfive F AY1 V\nsix S IH1 K S\nseven S EH1 V AH0 "
      "N\n"
      "eight EY1 T\nnine N AY1 N\n";
  for (uint64_t i = 0; i < 125000; ++i) {
    const RandomStream stream(1, "cmudict", i);
    std::string phones;
    for (uint64_t k = 0; k < 4; ++k)
      phones += " " + cmudict_consonants()[stream.uniform_below(2 * k, 24)] + " " +
                cmudict_vowels()[stream.uniform_below(2 * k + 1, 15)] + std::to_string(k % 3);
    text += "made-" + std::to_string(i) + phones + "\n";
    if (i % 20 == 0) text += "made-" + std::to_string(i) + "(2)" + phones + " S # another\n";
  }
  write_file(folder / "cmudict.dict", text);
}

// Returns the contents of a mono WAV file with 16-bit samples at 8 kHz. Tests that write many files use this
// function instead of write_wav(), which waits for the disk.
inline std::string wav_bytes(const std::vector<int16_t>& samples) {
  std::string bytes;
  const auto append = [&](uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  };
  const auto size = static_cast<uint32_t>(2 * samples.size());
  bytes += "RIFF", append(36 + size, 4);
  bytes += "WAVEfmt ", append(16, 4), append(1, 2), append(1, 2), append(8000, 4), append(16000, 4),
      append(2, 2), append(16, 2);
  bytes += "data", append(size, 4);
  for (const int16_t sample : samples) append(static_cast<uint16_t>(sample), 2);
  return bytes;
}

// Writes WAV files with short tones to folder/recordings, with a sample rate of 8 kHz. Each of six speakers
// has `repeats` recordings of each digit. In the real data set, each speaker has 50 recordings of each digit.
inline void write_stand_in_fsdd(const std::filesystem::path& folder, int repeats = 50) {
  for (const std::string speaker : {"ann", "bob", "cat", "dan", "eve", "fay"})
    for (int digit = 0; digit < 10; ++digit)
      for (int number = 0; number < repeats; ++number) {
        std::vector<int16_t> samples(static_cast<size_t>(1600 + 40 * digit + 16 * number));
        for (size_t i = 0; i < samples.size(); ++i)
          samples[i] = static_cast<int16_t>(9000 * std::sin(static_cast<double>(i) * (0.05 + 0.01 * digit)));
        write_file(folder / "recordings" /
                       (std::to_string(digit) + "_" + speaker + "_" + std::to_string(number) + ".wav"),
                   wav_bytes(samples));
      }
}

// Returns the contents of a .mfc file with 13 random values per frame.
inline Bytes random_mfc(int frames, uint64_t seed) {
  Bytes bytes;
  const auto append = [&](uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
  };
  const RandomStream stream(seed, "mfc");
  append(static_cast<uint32_t>(13 * frames));
  for (int i = 0; i < 13 * frames; ++i)
    append(std::bit_cast<uint32_t>(static_cast<float>(stream.uniform(static_cast<uint64_t>(i)))));
  return bytes;
}

// Writes a corpus in the layout of AN4. The train split has 948 utterances of 74 speakers, and the test split
// has 130 utterances of 10 other speakers. If `part` is greater than 1, only the first 1 / part of the
// utterances of each split are written. The words are letters.
inline void write_stand_in_an4(const std::filesystem::path& folder, int part = 1) {
  const Words letters = {"A", "B", "F", "I", "O", "R"};
  write_file(folder / "etc/an4.dic",
             std::string("A  EY\nA(2)  AH\nB  B IY\nF  EH F\nI  AY\nO  OW\nR  AA R\nSTART  S T AA R T\n"));
  for (const auto& [split, count, speakers] :
       {std::tuple<std::string, int, int>{"train", 948, 74}, {"test", 130, 10}}) {
    std::string ids, texts;
    for (int i = 0; i < count / part; ++i) {
      const RandomStream stream(3, "an4 " + split, static_cast<uint64_t>(i));
      const std::string id = "an" + std::to_string(i) + "-" + split;
      const std::string name = "an4_clstk/s" + split + std::to_string(i % speakers) + "/" + id;
      Words words(1 + stream.uniform_below(0, 6));
      for (size_t k = 0; k < words.size(); ++k)
        words[k] = letters[stream.uniform_below(k + 1, letters.size())];
      ids += name + "\n";
      texts += "<s> " + join_words(words) + " </s> (" + id + ")\n";
      write_file(folder / "feat" / (name + ".mfc"),
                 random_mfc(60 + static_cast<int>(words.size()) * 5, static_cast<uint64_t>(i)));
    }
    write_file(folder / ("etc/an4_" + split + ".fileids"), ids);
    write_file(folder / ("etc/an4_" + split + ".transcription"), texts);
  }
}

// Writes all files of MNIST, unpacked, with generated pixels and labels. As in the real data set, the first
// label is 5 in the train split and 7 in the test split.
inline void write_stand_in_mnist(const std::filesystem::path& folder) {
  for (const auto& [prefix, count, first] :
       {std::tuple<std::string, uint32_t, uint32_t>{"train", 60000, 5}, {"t10k", 10000, 7}}) {
    write_file(folder / (prefix + "-images-idx3-ubyte"),
               idx_bytes(0x803, {count, 28, 28}, size_t{count} * 784));
    Bytes labels = idx_bytes(0x801, {count}, 0);
    for (uint32_t i = 0; i < count; ++i) labels.push_back(static_cast<uint8_t>((first + i) % 10));
    write_file(folder / (prefix + "-labels-idx1-ubyte"), labels);
  }
}

// Writes all files of CIFAR-10 with generated pixels. As in the real data set, the first record has the label
// 6 and the first pixel (59, 62, 63). The colours are stored in planes of red, green and blue.
inline void write_stand_in_cifar10(const std::filesystem::path& folder) {
  for (int batch = 1; batch <= 6; ++batch) {
    Bytes bytes(size_t{10000} * 3073);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 11 % 253);
    for (size_t i = 0; i < 10000; ++i) bytes[i * 3073] = static_cast<uint8_t>((i + 6) % 10);
    if (batch == 1) bytes[1] = 59, bytes[1 + 1024] = 62, bytes[1 + 2048] = 63;
    write_file(folder / (batch > 5 ? "test_batch.bin" : "data_batch_" + std::to_string(batch) + ".bin"),
               bytes);
  }
}

}  // namespace tapeformer::test
