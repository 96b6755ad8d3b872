// The data sets for translation: of the user's own files, and the data sets of the catalogue, whose folder
// has the files train.LANG, valid.LANG and test.LANG, plain or compressed.
#include <algorithm>

#include "core/base/errors.h"
#include "data/dataset_kind.h"
#include "data/sets/directory.h"
#include "data/shared_options.h"
#include "data/translation/translation_dataset.h"

namespace tapeformer {
namespace {

constexpr char kNoFiles[] = "needs a file, a folder or a pattern";

// The options of the user's own files, or of a data set of the catalogue.
struct TranslationValues {
  TranslationOptions pairs = {};
  std::string source = {}, target = {}, valid_source = {}, valid_target = {}, test_source = {},
              test_target = {};
  std::string source_language = {}, target_language = {};
  bool join_chapters = false;
  int64_t batch_tokens = 4096;  // of a training batch; the loader reads it
};

using Table = OptionTable<TranslationValues>;

OptionTable<TranslationOptions> make_pair_table(bool holds_out_pairs) {
  using O = TranslationOptions;
  OptionTable<O> table(OptionUse::data);
  table.add("tokenizer", &O::tokenizer_name, "one tokenizer for both languages")
      .use_for(OptionUse::model)
      .require_one_of(
          {kByteTokenizerName, kCharacterTokenizerName, kSentencePieceTokenizerName, kBpeTokenizerName});
  table
      .add("sentencepiece_model", &O::sentencepiece_model,
           "file of a SentencePiece model; empty: train a model from both languages")
      .mark_as_path()
      .use_if({"tokenizer", {kSentencePieceTokenizerName}});
  table.add("tokenizer_file", &O::tokenizer_file, "file of the tokenizer bpe: a tokenizer.json")
      .mark_as_path()
      .use_if({"tokenizer", {kBpeTokenizerName}});
  table.add("vocabulary", &O::vocabulary, "tokens of a trained SentencePiece model")
      .require_range(2, 65536)
      .use_if({"sentencepiece_model", {""}});
  add_max_length(table).help = "largest number of tokens of a training sentence";
  table
      .add("max_ratio", &O::max_ratio,
           "leave out training pairs whose longer sentence has more than max_ratio times the tokens of the "
           "shorter; 0: keep them")
      .require_range(0, 1e6);
  if (holds_out_pairs)
    table
        .add("valid_pairs", &O::valid_pairs,
             "pairs held out from the end of the training files for validation, where valid_source is empty")
        .require_at_least(0)
        .use_if({"valid_source", {""}});
  return table;
}

void add_paths(Table& table) {
  using V = TranslationValues;
  const auto add = [&](const char* name, std::string V::*member, const char* help) {
    table.add(name, member, help).mark_as_path().allow_change_on_resume();
  };
  add("source", &V::source,
      "sentences to translate, one a line: file, folder or pattern such as \"train/*.en\", plain or "
      "compressed");
  add("target", &V::target, "translations of the lines of source, as in source");
  add("valid_source", &V::valid_source, "validation sentences, as in source; empty: valid_pairs of source");
  add("valid_target", &V::valid_target, "translations of the lines of valid_source");
  add("test_source", &V::test_source, "test sentences, as in source; empty: no test split");
  add("test_target", &V::test_target, "translations of the lines of test_source");
}

void add_languages(Table& table) {
  using V = TranslationValues;
  table.add("source_language", &V::source_language,
            "language to translate from; empty: en, or the other than target_language");
  table.add("target_language", &V::target_language,
            "language to translate to; empty: the other than source_language");
}

// Whether the data set has files of the chapter of each line.
bool has_chapters(const CatalogueEntry& set) {
  return std::any_of(set.files.begin(), set.files.end(),
                     [](const CatalogueFile& file) { return file.name.ends_with(".ref"); });
}

// `set` is null for the user's own files.
Table make_table(const CatalogueEntry* set) {
  using V = TranslationValues;
  Table table(OptionUse::data);
  set ? add_languages(table) : add_paths(table);
  if (set && has_chapters(*set))
    table.add_choice("unit", &V::join_chapters, {{"line", false}, {"chapter", true}},
                     "chapter: join the verses of a chapter to one sequence");
  table.include(&V::pairs, make_pair_table(!set));
  table
      .add("batch_tokens", &V::batch_tokens,
           "largest number of tokens of one language in a batch, padding included; 0: batch_size sentences")
      .use_for(OptionUse::training)
      .require_range(0, 1e9);
  return table;
}

// The languages of a data set of the catalogue.
struct LanguagePair {
  std::string source, target;
};

LanguagePair choose_languages(const CatalogueEntry& set, const TranslationValues& values) {
  const std::string first(set.languages[0]), second(set.languages[1]);
  const auto other = [&](const std::string& language) { return language == first ? second : first; };
  if (!values.source_language.empty())
    return {values.source_language,
            values.target_language.empty() ? other(values.source_language) : values.target_language};
  return values.target_language.empty() ? LanguagePair{first, second}
                                        : LanguagePair{other(values.target_language), values.target_language};
}

// Returns the options with the paths of the files. Throws DataError if files of a data set of the catalogue
// are missing.
TranslationOptions find_files(const CatalogueEntry* set, const TranslationValues& values,
                              const std::string& data_dir) {
  TranslationOptions options = values.pairs;
  if (!set) {
    options.train = {values.source, values.target};
    options.valid = {values.valid_source, values.valid_target};
    options.test = {values.test_source, values.test_target};
    return options;
  }
  const std::filesystem::path folder = require_dataset_folder(*set, data_dir);
  const auto [source, target] = choose_languages(*set, values);
  const auto find_split = [&](const std::string& split) {
    return SentencePairPaths{require_file(folder, split + "." + source).string(),
                             require_file(folder, split + "." + target).string(),
                             values.join_chapters ? require_file(folder, split + ".ref").string() : ""};
  };
  options.train = find_split("train");
  options.valid = find_split("valid");
  options.test = find_split("test");
  return options;
}

OptionProblems find_file_problems(const TranslationValues& values) {
  OptionProblems problems;
  // An evaluation needs only the files of its split.
  const bool has_own_split = !values.valid_source.empty() || !values.test_source.empty();
  problems.require(!values.source.empty() || (has_own_split && values.target.empty()), "source", kNoFiles);
  problems.require(!values.target.empty() || (has_own_split && values.source.empty()), "target", kNoFiles);
  problems.require(values.valid_source.empty() == values.valid_target.empty(), "valid_target",
                   "expected both valid_source and valid_target, or none");
  problems.require(values.test_source.empty() == values.test_target.empty(), "test_target",
                   "expected both test_source and test_target, or none");
  problems.require(values.pairs.valid_pairs > 0 || has_own_split, "valid_pairs",
                   "evaluation needs pairs: name valid_source or test_source, or set valid_pairs above 0");
  return problems;
}

OptionProblems find_language_problems(const CatalogueEntry& set, const TranslationValues& values) {
  OptionProblems problems;
  const auto [source, target] = choose_languages(set, values);
  for (const auto& [option, language] : {std::pair("source_language", source), {"target_language", target}})
    problems.require(language == set.languages[0] || language == set.languages[1], option,
                     concat_text("expected \"", set.languages[0], "\" or \"", set.languages[1], "\", got \"",
                                 language, "\""));
  problems.require(source != target, "target_language",
                   concat_text("expected another language than source_language = \"", source, "\""));
  return problems;
}

OptionProblems find_problems(const CatalogueEntry* set, const TranslationValues& values) {
  const TranslationOptions& pairs = values.pairs;
  OptionProblems problems;
  problems.require(pairs.max_ratio == 0 || pairs.max_ratio >= 1, "max_ratio",
                   concat_text("expected 0 or at least 1, got ", pairs.max_ratio));
  problems.require(values.batch_tokens == 0 || values.batch_tokens > pairs.max_length, "batch_tokens",
                   concat_text("expected 0 or at least max_length + 1 = ", pairs.max_length + 1, ", got ",
                               values.batch_tokens));
  for (const auto& problem : set ? find_language_problems(*set, values) : find_file_problems(values))
    problems.push_back(problem);
  return problems;
}

DatasetKind make_kind(const std::string& name, const CatalogueEntry* set) {
  const Table table = make_table(set);
  const auto find_pairs = [set, table](const OptionValues& values, const DatasetRequest& request) {
    TranslationOptions options = find_files(set, table.read(values), request.data_dir);
    options.limit = request.limit;
    return options;
  };
  const auto choose_tokenizer = [table, find_pairs](const OptionValues& values,
                                                    const DatasetRequest& request) {
    if (request.tokenizer) return request.tokenizer;
    if (table.read(values).pairs.tokenizer_name == kByteTokenizerName) return make_byte_tokenizer();
    return make_tokenizer(find_pairs(values, request), request.seed);
  };
  DatasetKind kind{.name = name,
                   .help = std::string(set ? set->title : ""),
                   .options = table.specs(),
                   .type = DatasetType::translation,
                   .model_types = {"translation"}};
  kind.get_info = [=](const OptionValues& values, const DatasetRequest& request) {
    return make_translation_info(table.read(values).pairs, name, request.split,
                                 *choose_tokenizer(values, request));
  };
  kind.make = [=](const OptionValues& values, const DatasetRequest& request) {
    return std::make_shared<const TranslationDataset>(find_pairs(values, request), name, request.split,
                                                      choose_tokenizer(values, request));
  };
  kind.make_tokenizer = choose_tokenizer;
  kind.has_validation_split = [set, table](const OptionValues& option_values) {
    const TranslationValues values = table.read(option_values);
    return set || !values.valid_source.empty() || values.pairs.valid_pairs > 0;
  };
  kind.find_problems = [set, table](const OptionValues& values) {
    return find_problems(set, table.read(values));
  };
  return kind;
}

}  // namespace

std::vector<DatasetKind> make_translation_kinds() {
  std::vector<DatasetKind> kinds = {make_kind("translation", nullptr)};
  for (const CatalogueEntry& set : list_catalogue_entries())
    if (set.type == DatasetType::translation) kinds.push_back(make_kind(std::string(set.name), &set));
  return kinds;
}

}  // namespace tapeformer
