#include "data/text/bpe/split_pattern.h"

#include <algorithm>
#include <vector>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

using Json = nlohmann::json;

struct Pattern {
  BpeSplit split;
  const char* text;
};

constexpr Pattern kPatterns[] = {
    {BpeSplit::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {BpeSplit::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {BpeSplit::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {BpeSplit::llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {BpeSplit::qwen35, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                       R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

// Returns the type of an entry, or "" if it has none.
std::string get_type(const Json& entry) {
  const auto found = entry.is_object() ? entry.find("type") : entry.end();
  return entry.is_object() && found != entry.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns whether the value of `key` is `expected`. A missing entry has the value `missing`.
bool has_value(const Json& entry, const char* key, const Json& expected, const Json& missing) {
  const auto found = entry.find(key);
  return (found == entry.end() ? missing : *found) == expected;
}

bool is_byte_level(const Json& entry, bool uses_regex) {
  return get_type(entry) == "ByteLevel" && has_value(entry, "add_prefix_space", false, true) &&
         has_value(entry, "use_regex", uses_regex, true);
}

bool is_regex_split(const Json& entry) {
  return get_type(entry) == "Split" && has_value(entry, "behavior", "Isolated", nullptr) &&
         has_value(entry, "invert", false, false) && entry.contains("pattern") &&
         entry["pattern"].is_object() && entry["pattern"].contains("Regex") &&
         entry["pattern"]["Regex"].is_string();
}

}  // namespace

BpeSplit read_bpe_split(const Json& pre_tokenizer, const std::string& source) {
  std::vector<Json> parts{pre_tokenizer};
  if (get_type(pre_tokenizer) == "Sequence" && pre_tokenizer.contains("pretokenizers") &&
      pre_tokenizer["pretokenizers"].is_array())
    parts = pre_tokenizer["pretokenizers"].get<std::vector<Json>>();
  if (parts.size() == 1 && is_byte_level(parts[0], true)) return BpeSplit::gpt2;
  if (parts.size() == 2 && get_type(parts[0]) == "Digits" &&
      has_value(parts[0], "individual_digits", true, false) && is_byte_level(parts[1], true))
    return BpeSplit::smollm;
  if (parts.size() == 2 && is_regex_split(parts[0]) && is_byte_level(parts[1], false)) {
    const auto text = parts[0]["pattern"]["Regex"].get<std::string>();
    for (const Pattern& pattern : kPatterns)
      if (text == pattern.text) return pattern.split;
  }
  constexpr size_t kMaxShown = 400;
  const std::string found = pre_tokenizer.dump(-1, ' ', false, Json::error_handler_t::replace);
  throw DataError(source +
                  ": pre_tokenizer: expected the split of GPT-2, SmolLM, Llama 3, Qwen2 or Qwen3.5, got " +
                  quote_bpe_text(found, kMaxShown));
}

Json write_bpe_split(BpeSplit split) {
  const auto byte_level = [](bool uses_regex) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", true},
                {"use_regex", uses_regex}};
  };
  if (split == BpeSplit::gpt2) return byte_level(true);
  if (split == BpeSplit::smollm)
    return {{"type", "Sequence"},
            {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}}};
  const Pattern* const pattern = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                              [&](const Pattern& known) { return known.split == split; });
  const Json regex{{"type", "Split"},
                   {"pattern", {{"Regex", pattern->text}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({regex, byte_level(false)})}};
}

}  // namespace tapeformer
