#include "data/speech/read_corpus.h"

#include "core/errors.h"
#include "data/directory.h"
#include "data/speech/kaldi_directory.h"

namespace tapeformer {

Corpus read_corpus(const KnownSet& set, const std::filesystem::path& folder, const std::string& part,
                   const CorpusOptions& options, Faults* faults) {
  switch (set.format) {
    case DatasetFormat::an4:
      return read_an4(contents_folder(set, folder), part, faults);
    case DatasetFormat::spoken_digits:
      return read_spoken_digits(folder, part, faults);
    case DatasetFormat::timit:
      return read_timit(folder, part, options.phone_set, faults);
    case DatasetFormat::librispeech:
      return read_librispeech(folder, part, faults);
    case DatasetFormat::kaldi:
      return read_kaldi_directory(folder / part, options.allow_commands);
    default:
      throw ConfigError(concat_text(set.name, " is not a corpus of speech"));
  }
}

std::filesystem::path cmudict_path(const std::string& data_dir) {
  const KnownSet& set = known_set("cmudict");
  return require_set(set, data_dir) / set.files.front().name;
}

}  // namespace tapeformer
