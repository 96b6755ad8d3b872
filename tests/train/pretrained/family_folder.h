// Folders of Hugging Face with the small models of a golden file, such as transformers.safetensors
// (tests/golden/README.md).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/text/bpe/tokenizer_json.h"
#include "tests/support/temp_dir.h"
#include "tests/train/golden.h"

namespace tapeformer::test {

inline const std::vector<std::string>& list_golden_families() {
  static const std::vector<std::string> names{"llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "gemma"};
  return names;
}

// The tensors of a golden model whose names begin with `group` and a period.
inline std::map<std::string, Tensor> read_golden_tensors(const std::string& family, const std::string& group,
                                                         const std::string& golden = "transformers") {
  const SafetensorsFile file = open_golden_file(golden);
  const std::string prefix = family + "." + group + ".";
  std::map<std::string, Tensor> tensors;
  for (const auto& [key, entry] : file.entries())
    if (key.starts_with(prefix)) tensors[key.substr(prefix.size())] = file.read(key);
  return tensors;
}

// A BPE tokenizer of `count` letters without merges.
inline BpeModel make_letter_tokenizer(int count) {
  BpeModel model;
  for (int i = 0; i < count; ++i) model.pieces.emplace_back(1, static_cast<char>('a' + i));
  return model;
}

// A folder with a golden model and a tokenizer of 11 letters; the embedding has 13 rows.
struct FamilyFolder {
  explicit FamilyFolder(const std::string& name, const std::string& golden = "transformers")
      : config(nlohmann::ordered_json::parse(open_golden_file(golden).metadata().at(name))),
        tensors(read_golden_tensors(name, "original", golden)) {}
  // Writes the files. Returns the path of the folder.
  std::string write() const {
    write_file(dir / "config.json", config.dump());
    write_file(dir / "tokenizer.json", tokenizer);
    write_safetensors((dir / "model.safetensors").string(), tensors);
    return dir.path().string();
  }

  TempDir dir;
  nlohmann::ordered_json config;
  std::map<std::string, Tensor> tensors;
  std::string tokenizer = write_tokenizer_json(make_letter_tokenizer(11), false);
};

}  // namespace tapeformer::test
