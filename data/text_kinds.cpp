// The data sets of texts and of prompts: the user's own files, and the texts of the catalogue.
#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "data/dataset_kind.h"
#include "data/sets/directory.h"
#include "data/shared_options.h"
#include "data/text/prompts/prompt_dataset.h"
#include "data/text/text_dataset.h"

namespace tapeformer {
namespace {

OptionTable<TextOptions> make_text_table(bool has_path, bool is_continuous) {
  using O = TextOptions;
  OptionTable<O> table(OptionUse::data);
  table
      .add("tokenizer", &O::tokenizer_name,
           "bytes: any data; characters: the characters of a UTF-8 text; sentencepiece: pieces of words, "
           "the default of translation; bpe: byte-level BPE of a tokenizer.json")
      .use_for(OptionUse::model)
      .require_one_of({"bytes", "characters", "sentencepiece", "bpe"});
  table
      .add("sentencepiece_model", &O::sentencepiece_model,
           "file of a SentencePiece model; empty: train a model from the text")
      .mark_as_path()
      .use_if({"tokenizer", {"sentencepiece"}});
  table.add("tokenizer_file", &O::tokenizer_file, "file of the tokenizer bpe: a tokenizer.json")
      .mark_as_path()
      .use_if({"tokenizer", {"bpe"}});
  table
      .add("vocabulary", &O::vocabulary,
           "tokens of a trained SentencePiece model; translation: 4000 by default")
      .require_range(2, 65536)
      .use_if({"sentencepiece_model", {""}});
  table
      .add_choice("unknown_characters", &O::unknown_characters,
                  {{"refuse", UnknownCharacters::refuse}, {"token", UnknownCharacters::token}},
                  "characters that the SentencePiece model or the BPE tokenizer lacks; token: use its "
                  "unknown token, "
                  "whose bits are counted, but not its bytes")
      .use_for(OptionUse::model)
      .use_if({"tokenizer", {kSentencePieceTokenizerName, kBpeTokenizerName}})
      .allow_change_on_resume();
  table.add("sequence_length", &O::sequence_length, "tokens that a window predicts")
      .use_for(OptionUse::model)
      .require_range(1, kMaxSize);
  if (is_continuous) {
    table
        .add("eval_context", &O::eval_context,
             "tokens that each window of an evaluation repeats from the previous window and does not score; "
             "0: none")
        .require_range(0, kMaxSize);
    table.add("streams", &O::use_segments,
              "divide the text into batch_size parts and read a segment of each part per batch, in order");
  }
  add_split_options(table, has_path);
  return table;
}

OptionTable<PromptOptions> make_prompt_table() {
  using O = PromptOptions;
  OptionTable<O> table(OptionUse::data);
  table.add_choice(
      "chat_template", &O::chat_template, list_chat_templates(),
      "text around the messages; chatml: of SmolLM2 and Qwen; llama3: of Llama 3; none: a prompt "
      "and its completion without other text");
  table.add("system_prompt", &O::system_prompt, "system message of conversations without one; empty: none");
  table.add("packed", &O::packs, "put as many conversations into a window as fit, instead of one");
  return table;
}

OptionProblems find_text_problems(const TextOptions& text, const std::string& needed_path) {
  OptionProblems problems = find_split_problems(text, needed_path);
  problems.require(text.eval_context < text.sequence_length, "eval_context",
                   concat_text("expected less than sequence_length = ", text.sequence_length, ", got ",
                               text.eval_context));
  problems.require(
      !text.use_segments || text.eval_context == 0, "eval_context",
      concat_text("the segments of streams = true do not overlap, expected 0, got ", text.eval_context));
  return problems;
}

// A text of the catalogue or, if `set` is null, of the user's own files.
struct TextSet {
  std::string name;
  OptionTable<TextOptions> table;
  const CatalogueEntry* set = nullptr;
  bool has_prompts = false;

  TextOptions read(const OptionValues& values, const DatasetRequest& request) const {
    TextOptions text = table.read(values);
    text.limit = request.limit;
    text.use_random_windows = request.use_random_windows && !text.use_segments;
    return text;
  }
  // As read(), with the path of the text.
  TextOptions find(const OptionValues& values, const DatasetRequest& request) const {
    TextOptions text = read(values, request);
    if (set)
      text.path = require_file(require_dataset_folder(*set, request.data_dir), set->files.front().name);
    return text;
  }
  std::shared_ptr<const Tokenizer> choose_tokenizer(const OptionValues& values,
                                                    const DatasetRequest& request) const {
    if (request.tokenizer) return request.tokenizer;
    const TextOptions text = read(values, request);
    if (text.tokenizer_name == kByteTokenizerName) return make_byte_tokenizer();
    const bool is_made_from_text =
        text.tokenizer_name == kCharacterTokenizerName ||
        (text.tokenizer_name == kSentencePieceTokenizerName && text.sentencepiece_model.empty());
    if (has_prompts && is_made_from_text)
      throw ConfigError(concat_text(name_option("TextOptions::tokenizer_name"), ": a tokenizer \"",
                                    text.tokenizer_name, "\" of the data set \"", name,
                                    "\" must be that of an earlier run or of a file"));
    return make_tokenizer(find(values, request), request.seed);
  }
};

DatasetKind make_kind(const TextSet& text) {
  DatasetKind kind{.name = text.name,
                   .help = std::string(text.set ? text.set->title : ""),
                   .options = text.table.specs(),
                   .type = DatasetType::text};
  kind.get_info = [text](const OptionValues& values, const DatasetRequest& request) {
    return DatasetInfo{text.name, request.split, text.choose_tokenizer(values, request)->vocabulary_size(),
                       text.read(values, request).sequence_length};
  };
  kind.make = [text](const OptionValues& values, const DatasetRequest& request) {
    return std::make_shared<const TextDataset>(text.find(values, request), text.name, request.split,
                                               text.choose_tokenizer(values, request));
  };
  kind.make_tokenizer = [text](const OptionValues& values, const DatasetRequest& request) {
    return text.choose_tokenizer(values, request);
  };
  kind.has_validation_split = [text](const OptionValues& values) {
    return has_validation_part(text.table.read(values));
  };
  kind.find_problems = [text](const OptionValues& values) {
    return find_text_problems(
        text.table.read(values),
        text.set ? "" : "data set \"" + text.name + "\" needs a file, a folder or a pattern");
  };
  return kind;
}

DatasetKind make_prompt_kind() {
  const TextSet text{.name = "prompts", .table = make_text_table(true, false), .has_prompts = true};
  const auto table = make_prompt_table();
  DatasetKind kind = make_kind(text);
  for (OptionSpec& option : table.specs()) kind.options.push_back(std::move(option));
  kind.make = [text, table](const OptionValues& values, const DatasetRequest& request) {
    return std::make_shared<const PromptDataset>(text.find(values, request), table.read(values), text.name,
                                                 request.split, text.choose_tokenizer(values, request));
  };
  return kind;
}

}  // namespace

std::vector<DatasetKind> make_text_kinds() {
  std::vector<DatasetKind> kinds = {make_kind({.name = "text", .table = make_text_table(true, true)}),
                                    make_prompt_kind()};
  for (const CatalogueEntry& set : list_catalogue_entries())
    if (set.type == DatasetType::text)
      kinds.push_back(
          make_kind({.name = std::string(set.name), .table = make_text_table(false, true), .set = &set}));
  return kinds;
}

}  // namespace tapeformer
