#include "train/pretrained/pretrained_tokenizer.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "data/text/bpe/tokenizer_json.h"
#include "data/text/piece_model.h"
#include "train/pretrained/families/field_checks.h"

namespace tapeformer {
namespace {

constexpr const char* kPieceModelName = "tokenizer.model";

// A value of tokenizer.ggml.pre.
struct GgufSplit {
  const char* name;
  BpeSplit split;
  bool normalizes_to_nfc = false, ignores_merges = false, has_start_token = false;
};

constexpr GgufSplit kSplits[] = {
    {"gpt-2", BpeSplit::gpt2},
    {"smollm", BpeSplit::smollm},
    {"qwen2", BpeSplit::qwen2, true},
    {"qwen35", BpeSplit::qwen35, true},
    {"llama-bpe", BpeSplit::llama3, false, true, true},
};

// Values of tokenizer.ggml.token_type.
enum GgufTokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

[[noreturn]] void refuse_key(const GgufFile& file, const std::string& key, const std::string& problem) {
  throw CheckpointError(file.path() + ": " + key + ": " + problem);
}

const GgufSplit& find_split(const GgufFile& file) {
  const std::string kind = file.get<std::string>("tokenizer.ggml.model");
  if (kind != "gpt2")
    refuse_key(file, "tokenizer.ggml.model",
               "expected byte-level BPE, \"gpt2\", got \"" + escape_line(kind.substr(0, 60)) + "\"");
  const std::string name = file.get<std::string>("tokenizer.ggml.pre");
  for (const GgufSplit& split : kSplits)
    if (name == split.name) return split;
  refuse_key(
      file, "tokenizer.ggml.pre",
      "expected gpt-2, smollm, qwen2, qwen35 or llama-bpe, got \"" + escape_line(name.substr(0, 60)) + "\"");
}

// Returns the token in `key`, or -1 if the file does not have the key.
int32_t get_token(const GgufFile& file, const std::string& key, const BpeModel& model) {
  if (!file.has(key)) return -1;
  const int64_t token = file.get<int64_t>(key);
  if (token < 0 || token >= static_cast<int64_t>(model.pieces.size()))
    refuse_key(file, key,
               concat_text("is ", token, ", and the vocabulary has ", model.pieces.size(), " tokens"));
  return static_cast<int32_t>(token);
}

void set_token_types(const GgufFile& file, BpeModel& model) {
  const std::string key = "tokenizer.ggml.token_type";
  const auto types = file.get<std::vector<int64_t>>(key);
  if (types.size() != model.pieces.size())
    refuse_key(file, key, concat_text("has ", types.size(), " types for ", model.pieces.size(), " tokens"));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] < kNormal || types[i] > kByte)
      refuse_key(file, key, concat_text("has the unknown type ", types[i]));
    if (types[i] == kControl || types[i] == kUserDefined)
      model.added_tokens.push_back(
          {.id = static_cast<int32_t>(i), .text = model.pieces[i], .is_special = types[i] == kControl});
    if (types[i] == kUnused) model.pieces[i].clear();
  }
  const auto tokens = index_bpe_pieces(model);
  for (size_t i = 0; i < types.size(); ++i)
    if (!model.pieces[i].empty() && tokens.at(model.pieces[i]) != static_cast<int32_t>(i))
      refuse_key(file, "tokenizer.ggml.tokens",
                 concat_text("the tokens ", tokens.at(model.pieces[i]), " and ", i, " are both ",
                             quote_bpe_text(model.pieces[i])));
}

template <class F>
auto translate_errors(F make) try {
  return make();
} catch (const DataError& error) {
  throw CheckpointError(error.what());
}

std::string read_tokenizer_file(const std::string& path) try {
  return read_file(path, kMaxTokenizerJsonBytes);
} catch (const FileError& error) {
  throw CheckpointError(error.what());
}

// Returns the tokens of the key eos_token_id, a number or a list.
std::vector<int32_t> read_end_tokens(const HuggingFaceFolder& folder) {
  for (const std::string name : {"generation_config.json", "config.json"}) {
    if (!folder.has_file(name)) continue;
    const JsonObjectReader json = folder.read_json(name);
    const std::string key = "eos_token_id";
    if (!json.has_key(key) || json.is_null(key)) continue;
    if (!json.is_list(key)) return {static_cast<int32_t>(json.get_integer(key, 0, INT32_MAX))};
    std::vector<int32_t> tokens;
    for (const int64_t token : json.get_integers(key, 0, INT32_MAX))
      tokens.push_back(static_cast<int32_t>(token));
    return tokens;
  }
  return {};
}

}  // namespace

BpeModel read_gguf_tokenizer(const GgufFile& file) {
  const GgufSplit& split = find_split(file);
  BpeModel model;
  model.split = split.split;
  model.normalizes_to_nfc = split.normalizes_to_nfc;
  model.ignores_merges = split.ignores_merges;
  model.pieces = file.get<std::vector<std::string>>("tokenizer.ggml.tokens");
  const std::string merges_key = "tokenizer.ggml.merges", source = file.path() + ": " + merges_key;
  return translate_errors([&] {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const std::string& merge : file.get<std::vector<std::string>>(merges_key))
      pairs.push_back(parse_bpe_merge(merge, source));
    set_token_types(file, model);
    set_bpe_merges(model, pairs, source);
    model.unknown_token = get_token(file, "tokenizer.ggml.unknown_token_id", model);
    const std::string add_key = "tokenizer.ggml.add_bos_token";
    const bool adds_start = file.has(add_key) ? file.get<bool>(add_key) : split.has_start_token;
    const int32_t start = get_token(file, "tokenizer.ggml.bos_token_id", model);
    if (adds_start && start >= 0) model.start_tokens.push_back(start);
    for (const char* key : {"eos", "eot", "eom"})
      if (const int32_t token = get_token(file, concat_text("tokenizer.ggml.", key, "_token_id"), model);
          token >= 0 &&
          std::find(model.stop_tokens.begin(), model.stop_tokens.end(), token) == model.stop_tokens.end())
        model.stop_tokens.push_back(token);
    check_bpe_model(model, file.path());
    return model;
  });
}

BpeModel read_huggingface_tokenizer(const HuggingFaceFolder& folder) {
  const std::string path = folder.file_path("tokenizer.json");
  if (!folder.has_file("tokenizer.json")) throw CheckpointError(folder.path() + ": has no tokenizer.json");
  return translate_errors([&] {
    const std::string text = read_tokenizer_file(path);
    BpeModel model = parse_tokenizer_json(text, path);
    if (std::vector<int32_t> ends = read_end_tokens(folder); !ends.empty())
      model.stop_tokens = std::move(ends);
    check_bpe_model(model, path);
    return model;
  });
}

bool has_piece_model(const HuggingFaceFolder& folder) {
  return folder.has_file(kPieceModelName);
}

std::shared_ptr<const Tokenizer> read_piece_model(const HuggingFaceFolder& folder, int64_t rows) {
  const std::string path = folder.file_path(kPieceModelName), config = "tokenizer_config.json",
                    adds_start = "add_bos_token";
  return translate_errors([&] {
    const std::string text = read_tokenizer_file(path);
    PieceModel model = parse_piece_model(text, path);
    if (model.adds_space && model.removes_spaces)
      throw CheckpointError(path +
                            ": removes spaces at the start of texts, and adds one: expected one of them");
    if (model.settings.vocabulary_size != 0) throw CheckpointError(path + ": is a tokenizer of a run");
    const PieceTokens special = find_piece_tokens(text, path);
    if (special.count > rows)
      throw CheckpointError(concat_text(path, ": the tokenizer has ", special.count,
                                        " tokens, and the embedding of the model has ", rows, " rows"));
    model.settings = {
        .stop_tokens = read_end_tokens(folder), .vocabulary_size = rows, .prefixes_texts = model.adds_space};
    bool has_start = special.start >= 0;
    if (folder.has_file(config)) {
      const ConfigJson json = ConfigJson::parse(folder.read_json(config).to_json());
      if (!is_missing(json, adds_start)) {
        if (!json.at(adds_start).is_boolean())
          refuse_field(folder.file_path(config), adds_start, "true or false", json.at(adds_start));
        has_start = has_start && json.at(adds_start) == true;
      }
    }
    if (has_start) model.settings.start_tokens = {special.start};
    if (model.settings.stop_tokens.empty() && special.end >= 0) model.settings.stop_tokens = {special.end};
    return make_sentencepiece_tokenizer(write_piece_model(model), path, UnknownCharacters::token);
  });
}

std::vector<std::pair<std::string, GgufValue>> write_gguf_tokenizer(const BpeModel& model) {
  const auto split = std::find_if(std::begin(kSplits), std::end(kSplits), [&](const GgufSplit& known) {
    return known.split == model.split && known.normalizes_to_nfc == model.normalizes_to_nfc &&
           known.ignores_merges == model.ignores_merges;
  });
  if (split == std::end(kSplits))
    throw ConfigError(
        "the GGUF format has no name for this tokenizer: the normal form or the use of merges is not that of "
        "a "
        "known model");
  std::vector<std::string> tokens = model.pieces, merges;
  std::vector<int64_t> types(tokens.size(), kNormal);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty()) continue;
    tokens[i] = concat_text("[PAD", i, "]");
    types[i] = kUnused;
  }
  for (const BpeAddedToken& added : model.added_tokens) {
    tokens[static_cast<size_t>(added.id)] = added.text;
    types[static_cast<size_t>(added.id)] = added.is_special ? kControl : kUserDefined;
  }
  for (const auto& merge : model.merges)
    merges.push_back(model.pieces[static_cast<size_t>(merge[0])] + " " +
                     model.pieces[static_cast<size_t>(merge[1])]);
  const std::string prefix = "tokenizer.ggml.";
  std::vector<std::pair<std::string, GgufValue>> metadata{
      {prefix + "model", std::string("gpt2")},
      {prefix + "pre", std::string(split->name)},
      {prefix + "tokens", tokens},
      {prefix + "token_type", types},
      {prefix + "merges", merges},
      {prefix + "add_bos_token", !model.start_tokens.empty()},
      {prefix + "add_space_prefix", false}};
  const auto add_token = [&](const char* key, int64_t token) { metadata.emplace_back(prefix + key, token); };
  // Readers take a token of their own as the end of a text if the file names none. No text in UTF-8 has the
  // byte 255.
  constexpr size_t kBytes = 256;
  if (!model.stop_tokens.empty())
    add_token("eos_token_id", model.stop_tokens.front());
  else if (model.merges.empty() && model.pieces.size() == kBytes)
    add_token("eos_token_id", kBytes - 1);
  if (model.stop_tokens.size() > 1) add_token("eot_token_id", model.stop_tokens[1]);
  if (model.unknown_token >= 0) add_token("unknown_token_id", model.unknown_token);
  return metadata;
}

void fit_bpe_vocabulary(BpeModel& model, int64_t rows, const std::string& source) {
  const auto size = static_cast<int64_t>(model.pieces.size());
  if (size > rows)
    throw CheckpointError(concat_text(source, ": the tokenizer has ", size,
                                      " tokens, and the embedding of the model has ", rows, " rows"));
  model.pieces.resize(static_cast<size_t>(rows));
}

}  // namespace tapeformer
