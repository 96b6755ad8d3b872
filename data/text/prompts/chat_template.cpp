#include "data/text/prompts/chat_template.h"

#include <algorithm>

namespace tapeformer {
namespace {

// The texts around the messages of a template.
struct Layout {
  const char *start, *before_role, *after_role, *end, *after_end;
  bool trims_contents;
};

Layout get_layout(ChatTemplate chat_template) {
  if (chat_template == ChatTemplate::chatml) return {"", "<|im_start|>", "\n", "<|im_end|>", "\n", false};
  return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "", true};
}

std::string trim(const std::string& text) {
  constexpr const char* kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::vector<std::pair<std::string, ChatTemplate>> list_chat_templates() {
  return {{"none", ChatTemplate::none}, {"chatml", ChatTemplate::chatml}, {"llama3", ChatTemplate::llama3}};
}

std::vector<ChatPart> format_chat(ChatTemplate chat_template, const std::vector<ChatMessage>& messages) {
  std::vector<ChatPart> parts;
  const auto add = [&](const std::string& text, bool is_answer) {
    if (parts.empty() || parts.back().is_answer != is_answer) parts.push_back({"", is_answer});
    parts.back().text += text;
  };
  if (chat_template == ChatTemplate::none) {
    for (const ChatMessage& message : messages) add(message.content, message.role == "assistant");
    return parts;
  }
  const Layout layout = get_layout(chat_template);
  add(layout.start, false);
  for (const ChatMessage& message : messages) {
    const std::string content = layout.trims_contents ? trim(message.content) : message.content;
    add(layout.before_role + message.role + layout.after_role, false);
    add(content + layout.end, message.role == "assistant");
    add(layout.after_end, false);
  }
  return parts;
}

bool has_marks(const Tokenizer& tokenizer, ChatTemplate chat_template) {
  if (chat_template == ChatTemplate::none) return true;
  const Layout layout = get_layout(chat_template);
  const auto is_token = [&](std::string mark) {
    mark.erase(mark.find_last_not_of('\n') + 1);
    return mark.empty() || tokenizer.encode(mark).size() == 1;
  };
  try {
    return is_token(layout.before_role) && is_token(layout.after_role) && is_token(layout.end);
  } catch (const EncodingError&) {
    return false;
  }
}

std::string format_chat_prompt(ChatTemplate chat_template, const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatPart& part : format_chat(chat_template, messages)) text += part.text;
  if (chat_template == ChatTemplate::none) return text;
  const Layout layout = get_layout(chat_template);
  return text + layout.before_role + "assistant" + layout.after_role;
}

}  // namespace tapeformer
