#include "train/cli/data_advice.h"

#include "data/files/download.h"
#include "data/speech/prepare/synthetic.h"

namespace tapeformer {

std::string make_data_advice(const CatalogueEntry& set) {
  if (!set.url.empty()) return can_download() ? concat_text("or run: tapeformer data fetch ", set.name) : "";
  if (set.name == kSyntheticSpeech)
    return concat_text("for which you can run: tapeformer data prepare ", set.name);
  if (set.type == DatasetType::lexicon) return "or set data.lexicon to the path of a lexicon";
  return set.type == DatasetType::speech ? "or set data.path to the folder of the corpus" : "";
}

std::string format_missing_dataset_error(const MissingDatasetError& error) {
  const std::string advice = make_data_advice(*error.entry);
  return error.what() + (advice.empty() ? "" : "\n" + advice);
}

}  // namespace tapeformer
