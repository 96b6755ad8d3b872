#include "train/pretrained/exported_model.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/errors.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/bpe/tokenizer_json.h"
#include "data/text/piece_model.h"
#include "train/checkpoint/safetensors.h"
#include "train/pretrained/families/find_family.h"
#include "train/pretrained/family_config.h"
#include "train/pretrained/family_weights.h"
#include "train/pretrained/gguf_config.h"
#include "train/pretrained/gguf_rotary.h"
#include "train/pretrained/pretrained_tokenizer.h"

namespace tapeformer {
namespace {

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

ConfigJson make_fields(const ModelFamily& family, const Config& config, const AutoregressiveModel& model,
                       const ExportOptions& options) {
  const int64_t length = options.context_length > 0
                             ? options.context_length
                             : std::max(options.facts.context_length, model.options().max_length);
  return write_family_config(family, config, model.options().vocabulary_size, length);
}

// Returns the facts with the start token of the tokenizer if it has one, and without tokens that it does not
// have.
SourceFacts complete_facts(SourceFacts facts, const Tokenizer& tokenizer) {
  for (int64_t* const token : {&facts.start_token, &facts.padding_token})
    if (*token >= tokenizer.vocabulary_size()) *token = -1;
  if (!tokenizer.start_tokens().empty()) facts.start_token = tokenizer.start_tokens().front();
  return facts;
}

// Adds the tokens that begin, end and fill texts.
void add_special_tokens(const Tokenizer& tokenizer, const SourceFacts& facts, ConfigJson& json) {
  const std::span<const int32_t> stop = tokenizer.stop_tokens();
  if (facts.start_token >= 0) json["bos_token_id"] = facts.start_token;
  if (facts.padding_token >= 0) json["pad_token_id"] = facts.padding_token;
  if (stop.size() == 1)
    json["eos_token_id"] = stop.front();
  else if (!stop.empty())
    json["eos_token_id"] = std::vector<int32_t>(stop.begin(), stop.end());
}

std::string get_token_text(const BpeModel& tokenizer, int64_t token) {
  for (const BpeAddedToken& added : tokenizer.added_tokens)
    if (added.id == token) return added.text;
  return tokenizer.pieces[static_cast<size_t>(token)];
}

ConfigJson make_tokenizer_config(const BpeModel& tokenizer, const ConfigJson& fields,
                                 const ExportOptions& options) {
  ConfigJson json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const char* key : {"max_position_embeddings", "n_positions"})
    if (fields.contains(key)) json["model_max_length"] = fields.at(key);
  const auto add_token = [&](const char* key, int64_t token) {
    if (token < 0) return;
    if (const std::string text = get_token_text(tokenizer, token); !text.empty()) json[key] = text;
  };
  add_token("bos_token", options.facts.start_token);
  add_token("eos_token", tokenizer.stop_tokens.empty() ? -1 : tokenizer.stop_tokens.front());
  add_token("pad_token", options.facts.padding_token);
  if (!options.facts.chat_template.empty()) json["chat_template"] = options.facts.chat_template;
  return json;
}

ConfigJson make_piece_config(const PieceModel& pieces, const ExportOptions& options) {
  ConfigJson json{{"tokenizer_class", "LlamaTokenizer"},
                  {"legacy", false},
                  {"add_bos_token", !pieces.settings.start_tokens.empty()},
                  {"add_eos_token", false},
                  {"clean_up_tokenization_spaces", false}};
  if (!options.facts.chat_template.empty()) json["chat_template"] = options.facts.chat_template;
  return json;
}

void write_json(const std::string& path, const ConfigJson& json) {
  replace_file(path, json.dump(2) + "\n");
}

// Returns the type of a tensor: matrices have the chosen type, if it can have their rows.
GgufWriteType choose_type(const FamilyTensor& tensor, GgufWriteType type) {
  constexpr int64_t kBlock = 32;
  if (tensor.shape.rank() < 2 || tensor.name == "position_embd.weight") return GgufWriteType::float32;
  return type == GgufWriteType::q8_0 && tensor.shape[-1] % kBlock != 0 ? GgufWriteType::float32 : type;
}

// Returns the largest number of the type. The scales of q8_0 are float16.
float get_limit(GgufWriteType type) {
  switch (type) {
    case GgufWriteType::float16:
      return 65504.0F;
    case GgufWriteType::q8_0:
      return 65504.0F * 127;
    case GgufWriteType::bfloat16:
      return 0x1.FEp127F;
    case GgufWriteType::float32:
      break;
  }
  return std::numeric_limits<float>::max();
}

// Throws ConfigError if a number is too large for the type.
Tensor check_range(const Tensor& tensor, const std::string& name, GgufWriteType type) {
  const float limit = get_limit(type);
  const float* const values = tensor.data<float>();
  if (std::any_of(values, values + tensor.numel(), [&](float x) { return std::abs(x) > limit; }))
    throw ConfigError(name + ": has numbers that are too large for the type; choose --type float32");
  return tensor;
}

int64_t get_file_type(GgufWriteType type) {
  switch (type) {
    case GgufWriteType::float16:
      return 1;
    case GgufWriteType::q8_0:
      return 7;
    case GgufWriteType::bfloat16:
      return 32;
    case GgufWriteType::float32:
      break;
  }
  return 0;
}

}  // namespace

const ModelFamily& choose_model_family(const Config& config, const std::string& name) {
  if (!name.empty()) {
    const ModelFamily& family = find_model_family(name, "--family");
    const FamilyProblems problems = find_family_problems(family, config);
    if (problems.texts.empty()) return family;
    throw ConfigError("the family " + name + " has no such model: " + join(problems.texts, "; "));
  }
  std::optional<FamilyProblems> nearest;
  std::string nearest_name;
  for (const ModelFamily& family : list_model_families()) {
    const FamilyProblems problems = find_family_problems(family, config);
    if (problems.texts.empty()) return family;
    const auto rank = [](const FamilyProblems& p) { return std::pair(!p.is_complete, p.texts.size()); };
    if (nearest && rank(problems) >= rank(*nearest)) continue;
    nearest = problems;
    nearest_name = family.name;
  }
  std::vector<std::string> others;
  for (const ModelFamily& family : list_model_families())
    if (family.name != nearest_name) others.push_back(family.name);
  throw ConfigError("no family of other programs has such a model; the nearest is " + nearest_name + ": " +
                    join(nearest->texts, "; ") + "\nother families: " + join(others, ", ") +
                    "; --family NAME names the differences from one of them");
}

void check_folder_type(GgufWriteType type) {
  if (type != GgufWriteType::bfloat16 && type != GgufWriteType::float32)
    throw ConfigError("--type: folders of Hugging Face have float32 or bfloat16");
}

std::optional<BpeModel> convert_to_bpe(const Tokenizer* tokenizer) {
  if (!tokenizer) return {};
  if (tokenizer->name() == kBpeTokenizerName)
    return parse_tokenizer_json(tokenizer->serialize(), "tokenizer");
  if (tokenizer->name() != kByteTokenizerName) return {};
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte)
    model.pieces.push_back(write_byte_character(static_cast<uint8_t>(byte)));
  return model;
}

void write_huggingface_folder(const std::string& folder, const ModelFamily& family, const Config& config,
                              const AutoregressiveModel& model, const Tokenizer* tokenizer,
                              ExportOptions options) {
  check_folder_type(options.type);
  const bool is_narrow = options.type == GgufWriteType::bfloat16;
  std::map<std::string, Tensor> tensors;
  for (const FamilyTensor& tensor :
       list_family_tensors(family, PretrainedFormat::huggingface, get_family_sizes(model.options().encoder),
                           model.saved_tensors())) {
    const Tensor values = check_range(tensor.read(), tensor.name, options.type);
    tensors[tensor.name] = is_narrow ? values.to(DType::bfloat16) : values;
  }
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  ConfigJson fields = make_fields(family, config, model, options);
  fields["dtype"] = fields["torch_dtype"] = is_narrow ? "bfloat16" : "float32";
  ConfigJson generation{{"do_sample", false}};
  if (tokenizer) {
    options.facts = complete_facts(options.facts, *tokenizer);
    add_special_tokens(*tokenizer, options.facts, fields);
    add_special_tokens(*tokenizer, options.facts, generation);
  }
  if (const std::optional<BpeModel> bpe = convert_to_bpe(tokenizer)) {
    replace_file(folder + "/tokenizer.json", write_tokenizer_json(*bpe, false));
    write_json(folder + "/tokenizer_config.json", make_tokenizer_config(*bpe, fields, options));
  } else if (tokenizer && tokenizer->name() == kSentencePieceTokenizerName) {
    const PieceModel pieces = parse_piece_model(tokenizer->serialize(), "tokenizer");
    replace_file(folder + "/tokenizer.model", pieces.model);
    write_json(folder + "/tokenizer_config.json", make_piece_config(pieces, options));
  }
  write_json(folder + "/generation_config.json", generation);
  write_json(folder + "/config.json", fields);
}

void write_gguf_model(const std::string& path, const ModelFamily& family, const Config& config,
                      const AutoregressiveModel& model, const Tokenizer* own_tokenizer,
                      const ExportOptions& options) {
  const std::optional<BpeModel> tokenizer = convert_to_bpe(own_tokenizer);
  if (family.gguf.empty()) throw ConfigError("the family " + family.name + " has no GGUF files");
  if (!tokenizer)
    throw ConfigError("a GGUF file needs a tokenizer \"bpe\" or \"bytes\"; write a folder instead");
  std::vector<std::pair<std::string, GgufValue>> metadata{{"general.architecture", family.gguf},
                                                          {"general.name", config.run.name},
                                                          {"general.file_type", get_file_type(options.type)}};
  const ConfigJson fields = make_fields(family, config, model, options);
  for (auto& entry : write_gguf_config(family, fields)) metadata.push_back(std::move(entry));
  const SourceFacts facts = complete_facts(options.facts, *own_tokenizer);
  for (auto& entry : write_gguf_tokenizer(*tokenizer)) metadata.push_back(std::move(entry));
  for (const auto& [key, token] : {std::pair("tokenizer.ggml.bos_token_id", facts.start_token),
                                   std::pair("tokenizer.ggml.padding_token_id", facts.padding_token)})
    if (token >= 0) metadata.emplace_back(key, token);
  if (!facts.chat_template.empty()) metadata.emplace_back("tokenizer.chat_template", facts.chat_template);
  std::vector<GgufOutput> outputs;
  if (const Tensor divisors = make_gguf_rotary_divisors(fields); divisors.defined())
    outputs.push_back(
        {"rope_freqs.weight", divisors.shape(), GgufWriteType::float32, [=] { return divisors; }});
  for (const FamilyTensor& tensor :
       list_family_tensors(family, PretrainedFormat::gguf, get_family_sizes(model.options().encoder),
                           model.saved_tensors())) {
    const GgufWriteType type = choose_type(tensor, options.type);
    outputs.push_back({tensor.name, tensor.shape, type,
                       [tensor, type] { return check_range(tensor.read(), tensor.name, type); }});
  }
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  write_gguf(file, metadata, outputs);
}

}  // namespace tapeformer
