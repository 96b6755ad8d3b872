// Kinds of data sets for translation: the user's own files, and the data sets of the catalogue, whose folder
// has the files train.LANG, valid.LANG and test.LANG, plain or compressed.
#pragma once

#include "data/dataset_kind.h"

namespace tapeformer {

DatasetKind make_translation_kind(const CatalogueEntry& set);

}  // namespace tapeformer
