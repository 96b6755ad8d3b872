#include "core/base/errors.h"
#include "data/text/prompts/chat_template.h"
#include "train/cli/generate/text_commands.h"
#include "train/tasks/autoregressive.h"

namespace tapeformer {
namespace {

ChatTemplate find_template(const AutoregressiveTask& task) {
  const DataConfig& data = task.config().data;
  const std::string name = data.has("chat_template") ? data.get<std::string>("chat_template") : "";
  for (const auto& [known_name, known] : list_chat_templates())
    if (known != ChatTemplate::none && name == known_name) return known;
  for (const auto& [known_name, known] : list_chat_templates())
    if (known != ChatTemplate::none && has_marks(*task.tokenizer(), known)) return known;
  throw ConfigError(
      "--chat: neither the data of the run nor its tokenizer has a chat template; use --prompt");
}

}  // namespace

std::string make_chat_prompt(const AutoregressiveTask& task, const std::string& question,
                             const std::string& system) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", question});
  std::string prompt = format_chat_prompt(find_template(task), messages);
  // The start tokens of the tokenizer precede the prompt.
  std::string starts;
  for (const int32_t token : task.tokenizer()->start_tokens())
    starts += task.tokenizer()->get_token_text(token);
  return !starts.empty() && prompt.starts_with(starts) ? prompt.substr(starts.size()) : prompt;
}

}  // namespace tapeformer
