// The text of a conversation as a model of chats reads it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/text/tokenizer.h"

namespace tapeformer {

enum class ChatTemplate {
  none,    // only a prompt and its answer, without other text
  chatml,  // "<|im_start|>ROLE\nCONTENT<|im_end|>\n", of SmolLM2 and Qwen
  llama3,  // "<|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>" after "<|begin_of_text|>"
};

// Returns the templates with their names in configs.
std::vector<std::pair<std::string, ChatTemplate>> list_chat_templates();

struct ChatMessage {
  std::string role, content;
};

// A part of the text of a conversation.
struct ChatPart {
  std::string text;
  bool is_answer = false;
};

// Returns the parts of the text of a conversation in order. An answer is the content of a message of the role
// "assistant" and the text that ends it. With the template "none", the text is the contents of the messages.
std::vector<ChatPart> format_chat(ChatTemplate chat_template, const std::vector<ChatMessage>& messages);

// Returns whether the tokenizer has one token for each mark of the template, such as "<|im_start|>".
bool has_marks(const Tokenizer& tokenizer, ChatTemplate chat_template);

// Returns the text before an answer to the messages, with which a model is asked to answer.
std::string format_chat_prompt(ChatTemplate chat_template, const std::vector<ChatMessage>& messages);

}  // namespace tapeformer
