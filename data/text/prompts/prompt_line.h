// Lines of files of prompts and answers; see data/text/prompts/prompt_dataset.h.
#pragma once

#include <vector>

#include "data/files/text_lines.h"
#include "data/text/prompts/chat_template.h"

namespace tapeformer {

// Returns the messages of a line. A prompt is a message of the role "user", and a completion is one of the
// role "assistant". Throws DataError with the location of the line if it has another form, or if it has a
// list of messages and the template is "none".
std::vector<ChatMessage> parse_prompt_line(const TextLine& line, ChatTemplate chat_template);

}  // namespace tapeformer
