#include "data/dataset_kind.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/options/option_table.h"
#include "core/options/part.h"
#include "data/make_dataset.h"
#include "data/speech/speech_options.h"
#include "data/translation/translation_options.h"

namespace tapeformer {
namespace {

using Problems = std::vector<std::pair<std::string, std::string>>;

constexpr double kMaxSize = 1 << 20;  // the product of three such numbers fits in int64_t

// Adds the options of data sets that are a path with splits: texts and folders of pictures.
template <class Options>
void add_split_options(OptionTable<Options>& table, const char* path_help) {
  constexpr double kDefaultShare = 0.05;
  table.add("path", &Options::path, path_help).mark_as_path().allow_change_on_resume();
  OptionSpec& valid = table.add("valid_share", &Options::valid_share,
                                "share of the data for validation; text: before the test share");
  valid.require_fraction_below_one().default_value = kDefaultShare;
  OptionSpec& test =
      table.add("test_share", &Options::test_share, "share of the data for tests; text: at its end");
  test.require_fraction_below_one().default_value = kDefaultShare;
  table.add("valid_path", &Options::valid_path, "data for validation, as in path; empty: a share of path")
      .mark_as_path()
      .allow_change_on_resume();
  table.add("test_path", &Options::test_path, "data for tests, as in path; empty: a share of path")
      .mark_as_path()
      .allow_change_on_resume();
}

const OptionTable<TextOptions>& text_table() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<TextOptions>(OptionUse::data);
    using O = TextOptions;
    options
        ->add("tokenizer", &O::tokenizer_name,
              "bytes: any data; characters: the characters of a UTF-8 text; sentencepiece: pieces of words, "
              "the default of translation; bpe: byte-level BPE of a tokenizer.json")
        .use_for(OptionUse::model)
        .require_one_of({"bytes", "characters", "sentencepiece", "bpe"});
    options
        ->add("sentencepiece_model", &O::sentencepiece_model,
              "file of a SentencePiece model; empty: train a model from the text")
        .mark_as_path()
        .use_if({"tokenizer", {"sentencepiece"}});
    options->add("tokenizer_file", &O::tokenizer_file, "file of the tokenizer bpe: a tokenizer.json")
        .mark_as_path()
        .use_if({"tokenizer", {"bpe"}});
    options
        ->add("vocabulary", &O::vocabulary,
              "tokens of a trained SentencePiece model; translation: 4000 by default")
        .require_range(2, 65536)
        .use_if({"sentencepiece_model", {""}});
    options
        ->add_choice("unknown_characters", &O::unknown_characters,
                     {{"refuse", UnknownCharacters::refuse}, {"token", UnknownCharacters::token}},
                     "characters that the SentencePiece model or the BPE tokenizer lacks; token: use its "
                     "unknown token, "
                     "whose bits are counted, but not its bytes")
        .use_for(OptionUse::model)
        .use_if({"tokenizer", {kSentencePieceTokenizerName, kBpeTokenizerName}})
        .allow_change_on_resume();
    options->add("sequence_length", &O::sequence_length, "tokens that a window predicts")
        .use_for(OptionUse::model)
        .require_range(1, kMaxSize);
    options
        ->add("eval_context", &O::eval_context,
              "tokens that each window of an evaluation repeats from the previous window and does not score; "
              "0: none")
        .require_range(0, kMaxSize);
    options->add("streams", &O::use_segments,
                 "divide the text into batch_size parts and read a segment of each part per batch, in order");
    add_split_options(
        *options,
        "text: file, folder or pattern such as \"books/*.txt\", plain or compressed; pictures: folder");
    return options;
  }();
  return table;
}

const OptionTable<PromptOptions>& prompt_table() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<PromptOptions>(OptionUse::data);
    using O = PromptOptions;
    options->add_choice(
        "chat_template", &O::chat_template,
        {{"none", ChatTemplate::none}, {"chatml", ChatTemplate::chatml}, {"llama3", ChatTemplate::llama3}},
        "text around the messages; chatml: of SmolLM2 and Qwen; llama3: of Llama 3; none: a prompt "
        "and its completion without other text");
    options->add("system_prompt", &O::system_prompt,
                 "system message of conversations without one; empty: none");
    options->add("packed", &O::packs, "put as many conversations into a window as fit, instead of one");
    return options;
  }();
  return table;
}

// Returns the options of a text and of prompts.
std::vector<OptionSpec> list_prompt_options() {
  std::vector<OptionSpec> options = text_table().specs();
  std::erase_if(options,
                [](const OptionSpec& spec) { return spec.name == "eval_context" || spec.name == "streams"; });
  for (OptionSpec& spec : prompt_table().specs()) options.push_back(std::move(spec));
  return options;
}

const OptionTable<ImageFolderOptions>& image_folder_table() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<ImageFolderOptions>(OptionUse::data);
    using O = ImageFolderOptions;
    options
        ->add("image_size", &O::image_size,
              "side of the square images; pictures are cropped at the centre and averaged")
        .use_for(OptionUse::model)
        .require_range(2, 512);
    options->add_choice<int64_t>("color", &O::channels, {{"rgb", 3}, {"gray", 1}}, "rgb or gray")
        .use_for(OptionUse::model);
    options->add_choice("bad_images", &O::reject_faulty_files, {{"drop", false}, {"refuse", true}},
                        "treatment of files that cannot be used");
    options->add("image_cache", &O::cache_folder, "folder for decoded pictures; empty: none")
        .mark_as_path()
        .allow_change_on_resume();
    add_split_options(
        *options,
        "text: file, folder or pattern such as \"books/*.txt\", plain or compressed; pictures: folder");
    return options;
  }();
  return table;
}

// The options of images of a known size and of generated data.
const OptionTable<DatasetOptions>& general_table() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<DatasetOptions>(OptionUse::model);
    using O = DatasetOptions;
    options->add_choice("color", &O::use_grey, {{"rgb", false}, {"gray", true}}, "rgb or gray");
    options->add("downscale", &O::downscale, "average blocks of k x k pixels")
        .require_one_of_integers({1, 2, 4, 7});
    options->add("validation", &O::validation_count, "examples held out from the end of the training split")
        .use_for(OptionUse::data)
        .require_at_least(0);
    options
        ->add("max_length", &O::max_length,
              "sequence length; listops and sets: largest number of tokens or elements")
        .require_range(SymbolTask::kMinLength, kMaxSize);
    options->add("test_length", &O::test_length, "sequence length of the test split; 0: max_length")
        .require_range(0, kMaxSize);
    options
        ->add("min_length", &O::min_length,
              "smallest number of tokens or elements; 0: a quarter of max_length")
        .use_for(OptionUse::data)
        .require_range(0, kMaxSize);
    options->add("components", &O::components, "components of a mixture of Gaussians").require_range(1, 1000);
    options->add("max_depth", &O::max_depth, "levels of nested operations")
        .use_for(OptionUse::data)
        .require_range(2, 1000);
    options->add("max_args", &O::max_args, "largest number of operands of an operation")
        .use_for(OptionUse::data)
        .require_range(2, 1000);
    options->add("tokens", &O::tokens, "size of the vocabulary; half are keys and half are values")
        .require_range(4, 1 << 20);
    options->add("pairs", &O::pairs, "pairs of a key and a value in a sequence")
        .use_for(OptionUse::data)
        .require_range(1, kMaxSize);
    options
        ->add("min_pairs", &O::min_pairs,
              "smallest number of pairs in training, which halves pairs at random; 0: always pairs")
        .use_for(OptionUse::data)
        .require_range(0, kMaxSize);
    options->add("test_pairs", &O::test_pairs, "pairs in a sequence of the test split; 0: pairs")
        .use_for(OptionUse::data)
        .require_range(0, kMaxSize);
    options
        ->add("power", &O::power,
              "gap n between the pairs and a query has a probability proportional to (n + 1)^(power - 1)")
        .use_for(OptionUse::data)
        .require_range(1e-6, 10);
    options->add("symbols", &O::symbols, "symbols besides the separator").require_range(1, 65535);
    return options;
  }();
  return table;
}

std::vector<OptionSpec> select_general_options(const std::vector<std::string>& names) {
  std::vector<OptionSpec> selected;
  for (OptionSpec& spec : general_table().specs())
    if (std::find(names.begin(), names.end(), spec.name) != names.end()) selected.push_back(std::move(spec));
  return selected;
}

bool is_image_folder(const CatalogueEntry& set) {
  return set.format == DatasetFormat::image_folder;
}

std::vector<OptionSpec> list_sequence_options(DatasetFormat format) {
  if (format == DatasetFormat::mqar)
    return select_general_options(
        {"max_length", "test_length", "tokens", "pairs", "min_pairs", "test_pairs", "power"});
  if (format == DatasetFormat::parity)
    return select_general_options({"max_length", "min_length", "test_length"});
  if (format == DatasetFormat::palindrome)
    return select_general_options({"max_length", "test_length", "symbols"});
  return select_general_options({"max_length", "symbols"});
}

std::vector<OptionSpec> list_options(const CatalogueEntry& set) {
  switch (set.type) {
    case DatasetType::speech:
      return list_speech_options(set);
    case DatasetType::text: {
      if (set.format == DatasetFormat::prompts) return list_prompt_options();
      std::vector<OptionSpec> options = text_table().specs();
      if (!set.needs_path) std::erase_if(options, [](const OptionSpec& spec) { return spec.name == "path"; });
      return options;
    }
    case DatasetType::sequences:
      return list_sequence_options(set.format);
    case DatasetType::expressions:
      return select_general_options({"max_length", "min_length", "max_depth", "max_args"});
    case DatasetType::vectors:
      return select_general_options(set.format == DatasetFormat::set_mixture
                                        ? std::vector<std::string>{"max_length", "min_length", "components"}
                                        : std::vector<std::string>{"max_length", "min_length"});
    case DatasetType::images:
      if (is_image_folder(set)) return image_folder_table().specs();
      return select_general_options(set.channels == 3
                                        ? std::vector<std::string>{"color", "downscale", "validation"}
                                        : std::vector<std::string>{"downscale", "validation"});
    case DatasetType::translation:  // see make_translation_kind()
    case DatasetType::lexicon:
      break;
  }
  return {};
}

std::vector<std::string> list_model_types(const CatalogueEntry& set) {
  if (set.type == DatasetType::sequences || set.type == DatasetType::text) return {"sequence"};
  if (set.type == DatasetType::expressions) return {"classification"};
  if (set.type == DatasetType::vectors) return {"set"};
  if (set.type == DatasetType::speech) return {"speech"};
  return set.classes > 0 ? std::vector<std::string>{"image", "classification"}
                         : std::vector<std::string>{"image"};
}

DatasetOptions make_options(const CatalogueEntry& set, const OptionValues& values,
                            const DatasetRequest& request) {
  DatasetOptions options = general_table().read(values);
  if (set.type == DatasetType::text) options.text_options = text_table().read(values);
  if (set.format == DatasetFormat::prompts) options.prompt_options = prompt_table().read(values);
  if (is_image_folder(set)) options.image_folder_options = image_folder_table().read(values);
  options.name = std::string(set.name);
  options.split = request.split;
  options.data_dir = request.data_dir;
  options.limit = request.limit;
  options.seed = request.seed;
  options.tokenizer = request.tokenizer;
  options.text_options.use_random_windows = request.use_random_windows && !options.text_options.use_segments;
  return options;
}

bool has_validation_split(const CatalogueEntry& set, const OptionValues& values) {
  if (set.type == DatasetType::expressions || set.type == DatasetType::vectors ||
      values.contains("test_length"))
    return true;
  if (set.type == DatasetType::text || is_image_folder(set))
    return values.get<double>("valid_share") > 0 || !values.get<std::string>("valid_path").empty();
  return set.type == DatasetType::images && values.get<int64_t>("validation") > 0;
}

Problems find_text_problems(const OptionValues& values) {
  const TextOptions text = text_table().read(values);
  Problems problems;
  if (text.eval_context >= text.sequence_length)
    problems.emplace_back("eval_context", concat_text("expected less than sequence_length = ",
                                                      text.sequence_length, ", got ", text.eval_context));
  if (text.use_segments && text.eval_context > 0)
    problems.emplace_back(
        "eval_context",
        concat_text("the segments of streams = true do not overlap, expected 0, got ", text.eval_context));
  return problems;
}

Problems find_problems(const CatalogueEntry& set, const OptionValues& values) {
  Problems problems;
  const auto require = [&](bool condition, const char* option, const std::string& problem) {
    if (!condition) problems.emplace_back(option, problem);
  };
  const DatasetOptions options = general_table().read(values);
  const auto has = [&](const char* name) { return values.values_by_name().contains(name); };
  require(!has("min_length") || options.min_length <= options.max_length, "min_length",
          concat_text("expected at most max_length = ", options.max_length, ", got ", options.min_length));
  require(!has("downscale") || (set.height % options.downscale == 0 && set.width % options.downscale == 0),
          "downscale",
          concat_text(options.downscale, " does not divide images of ", set.height, " x ", set.width));
  const auto add_all = [&](const Problems& more) {
    problems.insert(problems.end(), more.begin(), more.end());
  };
  if (set.type == DatasetType::sequences)
    add_all(find_length_problems(
        make_symbol_options(options),
        set.format == DatasetFormat::duplication_task || set.format == DatasetFormat::palindrome));
  if (set.format == DatasetFormat::mqar) add_all(find_option_problems(make_recall_options(options)));
  require(!set.needs_path || !values.get<std::string>("path").empty(), "path",
          concat_text("data set \"", set.name, "\" needs ",
                      set.type == DatasetType::text     ? "a file, a folder or a pattern"
                      : set.type == DatasetType::images ? "the folder of the pictures"
                                                        : "the folder of the corpus"));
  if (has("valid_share")) {
    const double sum = values.get<double>("valid_share") + values.get<double>("test_share");
    require(sum < 1, "test_share",
            concat_text("valid_share + test_share is ", sum, ", expected less than 1"));
  }
  if (set.type == DatasetType::text) add_all(find_text_problems(values));
  return problems;
}

DatasetKind make_catalogue_kind(const CatalogueEntry& set) {
  DatasetKind kind{.name = std::string(set.name),
                   .help = std::string(set.title),
                   .options = list_options(set),
                   .type = set.type,
                   .model_types = list_model_types(set),
                   .classes = set.classes};
  kind.find_problems = [&set](const OptionValues& values) { return find_problems(set, values); };
  if (set.type == DatasetType::speech) return kind;
  kind.get_info = [&set](const OptionValues& values, const DatasetRequest& request) {
    return make_dataset_info(make_options(set, values, request));
  };
  kind.make = [&set](const OptionValues& values, const DatasetRequest& request) {
    return make_dataset(make_options(set, values, request));
  };
  kind.has_validation_split = [&set](const OptionValues& values) {
    return has_validation_split(set, values);
  };
  if (set.type == DatasetType::text)
    kind.make_tokenizer = [&set](const OptionValues& values, const DatasetRequest& request) {
      return make_tokenizer(make_options(set, values, request));
    };
  return kind;
}

std::shared_ptr<const Tokenizer> choose_tokenizer(const CatalogueEntry& set, const OptionValues& values,
                                                  const DatasetRequest& request) {
  if (request.tokenizer) return request.tokenizer;
  if (read_translation_options(values).tokenizer_name == kByteTokenizerName) return make_byte_tokenizer();
  return make_tokenizer(find_translation_files(set, values, request.data_dir), request.seed);
}

DatasetKind make_translation_kind(const CatalogueEntry& set) {
  DatasetKind kind{.name = std::string(set.name),
                   .help = std::string(set.title),
                   .options = list_translation_options(set),
                   .type = set.type,
                   .model_types = {"translation"}};
  kind.get_info = [&set](const OptionValues& values, const DatasetRequest& request) {
    return make_translation_info(read_translation_options(values), std::string(set.name), request.split,
                                 *choose_tokenizer(set, values, request));
  };
  kind.make = [&set](const OptionValues& values, const DatasetRequest& request) {
    TranslationOptions options = find_translation_files(set, values, request.data_dir);
    options.limit = request.limit;
    return std::make_shared<const TranslationDataset>(options, std::string(set.name), request.split,
                                                      choose_tokenizer(set, values, request));
  };
  kind.make_tokenizer = [&set](const OptionValues& values, const DatasetRequest& request) {
    return choose_tokenizer(set, values, request);
  };
  kind.has_validation_split = [&set](const OptionValues& values) {
    return has_validation_pairs(set, values);
  };
  kind.find_problems = [&set](const OptionValues& values) { return find_translation_problems(set, values); };
  return kind;
}

Registry<DatasetKind>& dataset_registry() {
  static auto& registry = *[] {
    auto* const all = new Registry<DatasetKind>("data set", {});
    for (const CatalogueEntry& set : list_catalogue_entries())
      if (set.type == DatasetType::translation)
        all->add(make_translation_kind(set));
      else if (set.type != DatasetType::lexicon)
        all->add(make_catalogue_kind(set));
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
