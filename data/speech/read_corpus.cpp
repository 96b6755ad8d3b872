#include "data/speech/read_corpus.h"

#include "core/base/errors.h"
#include "data/sets/directory.h"
#include "data/speech/kaldi_directory.h"

namespace tapeformer {

Corpus read_corpus(const CatalogueEntry& set, const std::filesystem::path& folder, const std::string& part,
                   const CorpusOptions& options, Faults* faults) {
  switch (set.format) {
    case CorpusFormat::an4:
      return read_an4(find_contents_folder(set, folder), part, faults);
    case CorpusFormat::spoken_digits:
      return read_spoken_digits(folder, part, faults);
    case CorpusFormat::timit:
      return read_timit(folder, part, options.phone_set, faults);
    case CorpusFormat::librispeech:
      return read_librispeech(folder, part, faults);
    case CorpusFormat::kaldi:
      return read_kaldi_directory(folder / part, options.allow_commands);
    default:
      throw ConfigError(concat_text(set.name, " is not a corpus of speech"));
  }
}

std::filesystem::path find_cmudict(const std::string& data_dir) {
  const CatalogueEntry& set = require_catalogue_entry("cmudict");
  return require_dataset_folder(set, data_dir) / set.files.front().name;
}

}  // namespace tapeformer
