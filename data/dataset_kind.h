// Kinds of data sets. A kind has a name, options of its own and functions that make its splits. The families
// of built-in kinds are listed at the end of this file: a family is a file with a struct of options, their
// table and the functions that make its kinds. Programs can add kinds.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"
#include "data/batches/dataset.h"
#include "data/sets/catalogue.h"
#include "data/text/tokenizer.h"

namespace tapeformer {

// What a run asks of a data set besides its options.
struct DatasetRequest {
  std::string split = "train";  // "train", "valid" or "test"
  std::string data_dir = {};    // folder of the data sets; empty: the default folders
  int64_t limit = 0;            // maximum number of examples, from the start of the split; 0: all
  uint64_t seed = 0;
  std::shared_ptr<const Tokenizer> tokenizer =
      nullptr;                      // for texts and translation; if null, a new one is made
  bool use_random_windows = false;  // for texts; see TextOptions::use_random_windows
};

// Invalid options with their problems.
class OptionProblems : public std::vector<std::pair<std::string, std::string>> {
 public:
  void require(bool condition, const std::string& option, const std::string& problem) {
    if (!condition) emplace_back(option, problem);
  }
};

struct DatasetKind {
  std::string name;
  std::string help = {};  // a one-line description
  std::vector<OptionSpec> options = {};
  DatasetType type = DatasetType::sequences;
  std::vector<std::string> model_types = {"sequence"};  // types of models that can learn the data set
  int64_t classes = 0;                                  // number of classes of the labels; 0: no labels
  // Return the sizes of the examples, and a split. `options` has a value for each option of the kind. Empty
  // for data sets of speech, which have a task of their own. Throw ConfigError for invalid options and
  // DataError for missing or invalid files.
  std::function<DatasetInfo(const OptionValues& options, const DatasetRequest& request)> get_info = nullptr;
  std::function<std::shared_ptr<const Dataset>(const OptionValues& options, const DatasetRequest& request)>
      make = nullptr;
  // Returns a new tokenizer. Only for texts and translation.
  std::function<std::shared_ptr<const Tokenizer>(const OptionValues& options, const DatasetRequest& request)>
      make_tokenizer = nullptr;
  // Returns whether training evaluates on the split "valid" instead of "test". Empty: on "test".
  std::function<bool(const OptionValues& options)> has_validation_split = nullptr;
  // Returns invalid options with their problems. Optional.
  std::function<OptionProblems(const OptionValues& options)> find_problems = nullptr;
};

// See Registry in core/options/part.h.
void register_dataset_kind(DatasetKind kind);
const std::deque<DatasetKind>& list_dataset_kinds();
const DatasetKind& find_dataset_kind(const std::string& name);

// The built-in families.
std::vector<DatasetKind> make_image_kinds();         // data/images/images.cpp
std::vector<DatasetKind> make_image_folder_kinds();  // data/images/image_folder.cpp
std::vector<DatasetKind> make_symbol_kinds();        // data/generated/symbol_sets.cpp
std::vector<DatasetKind> make_expression_kinds();    // data/generated/listops.cpp
std::vector<DatasetKind> make_vector_kinds();        // data/generated/vector_sets.cpp
std::vector<DatasetKind> make_text_kinds();          // data/text_kinds.cpp
std::vector<DatasetKind> make_translation_kinds();   // data/translation/translation_kinds.cpp
std::vector<DatasetKind> make_speech_kinds();        // data/speech/speech_options.cpp

}  // namespace tapeformer
