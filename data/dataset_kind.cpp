#include "data/dataset_kind.h"

#include "core/options/part.h"

namespace tapeformer {
namespace {

Registry<DatasetKind>& dataset_registry() {
  static auto& registry = *[] {
    auto* const all = new Registry<DatasetKind>("data set", {});
    for (const auto& make_kinds :
         {make_image_kinds, make_image_folder_kinds, make_symbol_kinds, make_expression_kinds,
          make_vector_kinds, make_text_kinds, make_translation_kinds, make_speech_kinds})
      for (DatasetKind& kind : make_kinds()) all->add(std::move(kind));
    return all;
  }();
  return registry;
}

}  // namespace

void register_dataset_kind(DatasetKind kind) {
  dataset_registry().add(std::move(kind));
}

const std::deque<DatasetKind>& list_dataset_kinds() {
  return dataset_registry().list();
}

const DatasetKind& find_dataset_kind(const std::string& name) {
  return dataset_registry().find(name);
}

}  // namespace tapeformer
