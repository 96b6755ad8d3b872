// A reader of the folders in which the libraries of Hugging Face store a model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/checkpoint/json_entries.h"
#include "train/checkpoint/safetensors.h"
#include "train/pretrained/weight_source.h"

namespace tapeformer {

// A folder with config.json and the weights: model.safetensors, or several files that
// model.safetensors.index.json lists. The constructor reads the headers of the weights, and read() reads the
// values. The errors are CheckpointErrors, which name the file.
class HuggingFaceFolder final : public WeightSource {
 public:
  explicit HuggingFaceFolder(const std::string& path);

  const std::string& path() const override { return path_; }
  const std::map<std::string, WeightEntry>& entries() const override { return entries_; }
  Tensor read(const std::string& name) const override;

  // Returns the entries of config.json or of another JSON file in the folder.
  JsonObjectReader read_json(const std::string& file_name = "config.json") const;
  bool has_file(const std::string& file_name) const;
  // Returns the path of a file in the folder.
  std::string file_path(const std::string& file_name) const { return path_ + "/" + file_name; }

 private:
  // Opens a file of weights. Adds all its tensors, or those in `names` if the folder has an index.
  void add_weights(const std::string& file_name, const std::vector<std::string>* names);
  void read_index();

  std::string path_;
  std::map<std::string, WeightEntry> entries_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> file_of_;  // by the name of a tensor
};

}  // namespace tapeformer
