#include "data/text/prompts/prompt_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/options/option_names.h"

namespace tapeformer {
namespace {

using Json = nlohmann::json;

Json parse_line(const TextLine& line) try {
  Json json = Json::parse(line.text);
  if (!json.is_object()) line.fail("expected a JSON object");
  return json;
} catch (const Json::parse_error& error) {
  line.fail(concat_text("expected a JSON object, found no valid JSON at byte ", error.byte));
} catch (const Json::out_of_range&) {
  line.fail("contains a number that is too large");
}

std::string get_text(const Json& object, const char* key, const std::string& name, const TextLine& line) {
  const auto found = object.find(key);
  if (found == object.end()) line.fail(name + ": is missing");
  if (!found->is_string()) line.fail(name + ": expected a text, got another type");
  return found->get<std::string>();
}

std::vector<ChatMessage> read_messages(const Json& list, ChatTemplate chat_template, const TextLine& line) {
  if (chat_template == ChatTemplate::none)
    line.fail(concat_text("messages need a template: set ", name_option("PromptOptions::chat_template")));
  if (!list.is_array()) line.fail("messages: expected a list");
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = concat_text("messages[", i, "]");
    if (!list[i].is_object()) line.fail(name + ": expected an object with a role and a content");
    const std::string role = get_text(list[i], "role", name + ".role", line);
    if (role != "system" && role != "user" && role != "assistant")
      line.fail(name + ".role: expected \"system\", \"user\" or \"assistant\"");
    messages.push_back({role, get_text(list[i], "content", name + ".content", line)});
  }
  const auto answers = [](const ChatMessage& message) { return message.role == "assistant"; };
  if (std::none_of(messages.begin(), messages.end(), answers))
    line.fail("messages: no message has the role \"assistant\"");
  return messages;
}

}  // namespace

std::vector<ChatMessage> parse_prompt_line(const TextLine& line, ChatTemplate chat_template) {
  const Json json = parse_line(line);
  const bool has_messages = json.contains("messages");
  if (has_messages == json.contains("prompt"))
    line.fail("expected either \"prompt\" and \"completion\", or \"messages\"");
  if (has_messages) return read_messages(json["messages"], chat_template, line);
  return {{"user", get_text(json, "prompt", "prompt", line)},
          {"assistant", get_text(json, "completion", "completion", line)}};
}

}  // namespace tapeformer
