#include "train/tasks/text/description.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "data/files/base64.h"
#include "train/checkpoint/json_entries.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxVocabulary = 1 << 24;

}  // namespace

std::string to_json(const Tokenizer& tokenizer) {
  nlohmann::ordered_json json{{"tokenizer", tokenizer.name()}, {"vocabulary", tokenizer.vocabulary_size()}};
  if (tokenizer.name() == kCharacterTokenizerName) json["characters"] = tokenizer.serialize();
  if (tokenizer.name() == kSentencePieceTokenizerName) json["model"] = encode_base64(tokenizer.serialize());
  if (tokenizer.name() == kBpeTokenizerName) json["model"] = tokenizer.serialize();
  return json.dump();
}

std::shared_ptr<const Tokenizer> parse_tokenizer(const std::string& task_json, const std::string& path,
                                                 UnknownCharacters unknown) try {
  if (task_json.empty()) throw CheckpointError(path + ": task: is missing, expected a tokenizer");
  const JsonObjectReader entries(task_json, path + ": task.");
  const std::string name = entries.get_string("tokenizer");
  std::string data;
  if (name == kCharacterTokenizerName) data = entries.get_string("characters");
  if (name == kSentencePieceTokenizerName) {
    const auto model = decode_base64(entries.get_string("model"));
    if (!model) throw CheckpointError(path + ": task.model: expected Base64");
    data = *model;
  }
  if (name == kBpeTokenizerName) data = entries.get_string("model");
  auto tokenizer = deserialize_tokenizer(name, data, path + ": task", unknown);
  const int64_t vocabulary = entries.get_integer("vocabulary", 1, kMaxVocabulary);
  if (vocabulary != tokenizer->vocabulary_size())
    throw CheckpointError(concat_text(path, ": task.vocabulary: expected ", tokenizer->vocabulary_size(),
                                      ", got ", vocabulary));
  return tokenizer;
} catch (const DataError& error) {
  throw CheckpointError(error.what());
}

}  // namespace tapeformer
