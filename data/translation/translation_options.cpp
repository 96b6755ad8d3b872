#include "data/translation/translation_options.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/options/option_table.h"
#include "data/sets/directory.h"

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;

constexpr char kNoFiles[] = "needs a file, a folder or a pattern";
constexpr double kMinLength = 8, kMaxCount = 1 << 20;  // as for other data sets with these options

struct TranslationValues {
  TranslationOptions pairs = {};
  std::string source = {}, target = {}, valid_source = {}, valid_target = {}, test_source = {},
              test_target = {};
  std::string source_language = {}, target_language = {};
  bool join_chapters = false;
  int64_t batch_tokens = 4096;  // of a training batch; the loader reads it
};

const OptionTable<TranslationOptions>& pair_table() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<TranslationOptions>(OptionUse::data);
    using O = TranslationOptions;
    options->add("tokenizer", &O::tokenizer_name, "one tokenizer for both languages")
        .use_for(OptionUse::model)
        .require_one_of(
            {kByteTokenizerName, kCharacterTokenizerName, kSentencePieceTokenizerName, kBpeTokenizerName});
    options
        ->add("sentencepiece_model", &O::sentencepiece_model,
              "file of a SentencePiece model; empty: train a model from both languages")
        .mark_as_path()
        .use_if({"tokenizer", {kSentencePieceTokenizerName}});
    options->add("tokenizer_file", &O::tokenizer_file, "file of the tokenizer bpe: a tokenizer.json")
        .mark_as_path()
        .use_if({"tokenizer", {kBpeTokenizerName}});
    options->add("vocabulary", &O::vocabulary, "tokens of a trained SentencePiece model")
        .require_range(2, 65536)
        .use_if({"sentencepiece_model", {""}});
    options->add("max_length", &O::max_length, "largest number of tokens of a training sentence")
        .use_for(OptionUse::model)
        .require_range(kMinLength, kMaxCount);
    options
        ->add(
            "max_ratio", &O::max_ratio,
            "leave out training pairs whose longer sentence has more than max_ratio times the tokens of the "
            "shorter; 0: keep them")
        .require_range(0, 1e6);
    options
        ->add("valid_pairs", &O::valid_pairs,
              "pairs held out from the end of the training files for validation, where valid_source is empty")
        .require_at_least(0)
        .use_if({"valid_source", {""}});
    return options;
  }();
  return table;
}

void add_paths(OptionTable<TranslationValues>& table) {
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

const OptionTable<TranslationValues>& translation_table() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<TranslationValues>(OptionUse::data);
    using V = TranslationValues;
    add_paths(*options);
    options->add("source_language", &V::source_language,
                 "language to translate from; empty: en, or the other than target_language");
    options->add("target_language", &V::target_language,
                 "language to translate to; empty: the other than source_language");
    options->add_choice("unit", &V::join_chapters, {{"line", false}, {"chapter", true}},
                        "chapter: join the verses of a chapter to one sequence");
    options->include(&V::pairs, pair_table());
    options
        ->add(
            "batch_tokens", &V::batch_tokens,
            "largest number of tokens of one language in a batch, padding included; 0: batch_size sentences")
        .use_for(OptionUse::training)
        .require_range(0, 1e9);
    return options;
  }();
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

}  // namespace

std::vector<OptionSpec> list_translation_options(const CatalogueEntry& set) {
  Names excluded = {"source",      "target",      "valid_source", "valid_target",
                    "test_source", "test_target", "valid_pairs"};
  if (set.needs_path) excluded = {"source_language", "target_language"};
  if (set.format != DatasetFormat::verse_pairs) excluded.push_back("unit");
  std::vector<OptionSpec> options = translation_table().specs();
  std::erase_if(options, [&](const OptionSpec& spec) {
    return std::find(excluded.begin(), excluded.end(), spec.name) != excluded.end();
  });
  return options;
}

TranslationOptions read_translation_options(const OptionValues& values) {
  return translation_table().read(values).pairs;
}

TranslationOptions find_translation_files(const CatalogueEntry& set, const OptionValues& option_values,
                                          const std::string& data_dir) {
  const TranslationValues values = translation_table().read(option_values);
  TranslationOptions options = values.pairs;
  if (set.needs_path) {
    options.train = {values.source, values.target};
    options.valid = {values.valid_source, values.valid_target};
    options.test = {values.test_source, values.test_target};
    return options;
  }
  const std::filesystem::path folder = require_dataset_folder(set, data_dir);
  const auto [source, target] = choose_languages(set, values);
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

bool has_validation_pairs(const CatalogueEntry& set, const OptionValues& option_values) {
  const TranslationValues values = translation_table().read(option_values);
  return !set.needs_path || !values.valid_source.empty() || values.pairs.valid_pairs > 0;
}

std::vector<std::pair<std::string, std::string>> find_translation_problems(
    const CatalogueEntry& set, const OptionValues& option_values) {
  const TranslationValues values = translation_table().read(option_values);
  const TranslationOptions& pairs = values.pairs;
  std::vector<std::pair<std::string, std::string>> problems;
  const auto require = [&](bool condition, const char* option, const std::string& problem) {
    if (!condition) problems.emplace_back(option, problem);
  };
  require(pairs.max_ratio == 0 || pairs.max_ratio >= 1, "max_ratio",
          concat_text("expected 0 or at least 1, got ", pairs.max_ratio));
  require(values.batch_tokens == 0 || values.batch_tokens > pairs.max_length, "batch_tokens",
          concat_text("expected 0 or at least max_length + 1 = ", pairs.max_length + 1, ", got ",
                      values.batch_tokens));
  if (set.needs_path) {
    // An evaluation needs only the files of its split.
    const bool has_own_split = !values.valid_source.empty() || !values.test_source.empty();
    require(!values.source.empty() || (has_own_split && values.target.empty()), "source", kNoFiles);
    require(!values.target.empty() || (has_own_split && values.source.empty()), "target", kNoFiles);
    require(values.valid_source.empty() == values.valid_target.empty(), "valid_target",
            "expected both valid_source and valid_target, or none");
    require(values.test_source.empty() == values.test_target.empty(), "test_target",
            "expected both test_source and test_target, or none");
    require(pairs.valid_pairs > 0 || !values.valid_source.empty() || !values.test_source.empty(),
            "valid_pairs",
            "evaluation needs pairs: name valid_source or test_source, or set valid_pairs above 0");
    return problems;
  }
  const auto [source, target] = choose_languages(set, values);
  for (const auto& [option, language] : {std::pair("source_language", source), {"target_language", target}})
    require(language == set.languages[0] || language == set.languages[1], option,
            concat_text("expected \"", set.languages[0], "\" or \"", set.languages[1], "\", got \"", language,
                        "\""));
  require(source != target, "target_language",
          concat_text("expected another language than source_language = \"", source, "\""));
  return problems;
}

}  // namespace tapeformer
