#include "train/checkpoint/source_facts.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "train/checkpoint/json_entries.h"
#include "train/checkpoint/run_directory.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr const char *kFacts = "source.json", *kTemplate = "chat_template.jinja";
constexpr const char *kContext = "context_length", *kStart = "start_token", *kPadding = "padding_token";
constexpr size_t kMaxFactsBytes = size_t{1} << 12, kMaxTemplateBytes = size_t{1} << 20;

// Returns the contents of a file, or "" if there is none.
std::string read_optional_file(const fs::path& path, size_t max_bytes) try {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return "";
  std::string text = read_file(path.string(), max_bytes);
  if (find_invalid_utf8(text) != std::string::npos)
    throw CheckpointError(path.string() + ": is not valid UTF-8");
  return text;
} catch (const FileError& error) {
  throw CheckpointError(error.what());
}

}  // namespace

void write_source_facts(const Folder& run, const SourceFacts& facts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (facts.context_length > 0) json[kContext] = facts.context_length;
  if (facts.start_token >= 0) json[kStart] = facts.start_token;
  if (facts.padding_token >= 0) json[kPadding] = facts.padding_token;
  if (!json.empty()) run.replace_file(kFacts, json.dump(2) + "\n");
  if (!facts.chat_template.empty()) run.replace_file(kTemplate, facts.chat_template);
}

SourceFacts read_source_facts(const fs::path& checkpoint) {
  const fs::path run = find_run_folder(checkpoint);
  if (run.empty()) return {};
  SourceFacts facts{.chat_template = read_optional_file(run / kTemplate, kMaxTemplateBytes)};
  const std::string text = read_optional_file(run / kFacts, kMaxFactsBytes);
  if (text.empty()) return facts;
  const JsonObjectReader json(text, (run / kFacts).string() + ": ");
  const auto read = [&](const char* key, int64_t min, int64_t& value) {
    if (json.has_key(key)) value = json.get_integer(key, min, INT32_MAX);
  };
  read(kContext, 1, facts.context_length);
  read(kStart, 0, facts.start_token);
  read(kPadding, 0, facts.padding_token);
  return facts;
}

}  // namespace tapeformer
