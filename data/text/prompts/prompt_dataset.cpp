#include "data/text/prompts/prompt_dataset.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "core/system/log.h"
#include "data/text/prompts/prompt_line.h"

namespace tapeformer {
namespace {

constexpr int64_t kNarrowVocabulary = 256;

// Returns the messages of a line, after the system message of the options if they have none.
std::vector<ChatMessage> read_line(const TextLine& line, const PromptOptions& options) {
  std::vector<ChatMessage> messages = parse_prompt_line(line, options.chat_template);
  if (messages.front().role != "system" && !options.system_prompt.empty())
    messages.insert(messages.begin(), {"system", options.system_prompt});
  return messages;
}

// Returns the tokens of the messages. Each part is encoded separately, as in generation, where the text
// before an answer is encoded without the answer.
Conversation encode(const std::vector<ChatMessage>& messages, const PromptOptions& options,
                    const Tokenizer& tokenizer) {
  Conversation result;
  const auto add = [&](std::span<const int32_t> tokens, bool is_answer) {
    result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
    result.is_answer.insert(result.is_answer.end(), tokens.size(), is_answer);
  };
  const bool is_plain = options.chat_template == ChatTemplate::none;
  if (options.chat_template != ChatTemplate::llama3) add(tokenizer.start_tokens(), false);
  for (const ChatPart& part : format_chat(options.chat_template, messages)) {
    add(tokenizer.encode(part.text), part.is_answer);
    if (is_plain && part.is_answer && !tokenizer.stop_tokens().empty())
      add(tokenizer.stop_tokens().first(1), true);
  }
  return result;
}

// Returns the range of the conversations in `path` that belong to a split.
std::pair<size_t, size_t> select_range(size_t count, const TextOptions& text, const std::string& split) {
  const double valid = text.valid_path.empty() ? text.valid_share : 0;
  const double test = text.test_path.empty() ? text.test_share : 0;
  const auto share = [&](double part) {
    return static_cast<size_t>(std::llround(part * static_cast<double>(count)));
  };
  const size_t test_first = count - share(test),
               valid_first = test_first - std::min(share(valid), test_first);
  if (split == "train") return {0, valid_first};
  return split == "valid" ? std::pair(valid_first, test_first) : std::pair(test_first, count);
}

std::vector<Conversation> read_split(const TextOptions& text, const PromptOptions& options,
                                     const std::string& split, const Tokenizer& tokenizer) {
  const std::string own_path = split == "valid" ? text.valid_path : split == "test" ? text.test_path : "";
  if (!own_path.empty()) return read_conversations(own_path, options, tokenizer);
  std::vector<Conversation> all = read_conversations(text.path, options, tokenizer);
  const auto [first, last] = select_range(all.size(), text, split);
  if (first == last)
    throw DataError(
        concat_text(text.path, ": the split \"", split, "\" of ", all.size(),
                    " conversations is empty; change ", name_option("TextOptions::valid_share"), " and ",
                    name_option("TextOptions::test_share"), ", or give the split a path of its own, ",
                    name_option(split == "valid" ? "TextOptions::valid_path" : "TextOptions::test_path")));
  return {std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(first)),
          std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(last))};
}

// Whether a prediction of the conversation belongs to an answer. The first token is not predicted.
bool has_predicted_answer(const Conversation& conversation) {
  const auto& flags = conversation.is_answer;
  return !flags.empty() && std::find(flags.begin() + 1, flags.end(), 1) != flags.end();
}

void append(Conversation& window, const Conversation& conversation) {
  window.tokens.insert(window.tokens.end(), conversation.tokens.begin(), conversation.tokens.end());
  window.is_answer.insert(window.is_answer.end(), conversation.is_answer.begin(),
                          conversation.is_answer.end());
}

}  // namespace

std::vector<Conversation> read_conversations(const std::string& path, const PromptOptions& options,
                                             const Tokenizer& tokenizer) {
  std::vector<Conversation> conversations;
  for (const std::filesystem::path& file : list_text_files(path))
    for (const TextLine& line : read_lines(file)) {
      if (line.text.find_first_not_of(" \t") == std::string::npos) continue;
      try {
        conversations.push_back(encode(read_line(line, options), options, tokenizer));
      } catch (const EncodingError& error) {
        throw EncodingError(error.problem, error.offset, line.location() + ": " + error.what());
      }
    }
  if (conversations.empty()) throw DataError(path + ": no prompts and answers");
  return conversations;
}

PromptDataset::PromptDataset(const TextOptions& text, const PromptOptions& options, const std::string& name,
                             const std::string& split, std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)),
      info_{.name = name,
            .split = split,
            .vocabulary = tokenizer_->vocabulary_size(),
            .length = text.sequence_length} {
  if (tokenizer_->name() == "bpe" && !has_marks(*tokenizer_, options.chat_template))
    log_warning(info_.name, " ", split, ": the tokenizer has no tokens for the marks of ",
                name_option("PromptOptions::chat_template"), ", which the model reads as text");
  add_windows(read_split(text, options, split, *tokenizer_), options.packs);
  if (windows_.empty())
    throw DataError(concat_text(text.path, ": the split \"", split, "\": no answer begins in the first ",
                                info_.length, " tokens; raise ",
                                name_option("TextOptions::sequence_length")));
  if (text.limit > 0 && size() > text.limit) windows_.resize(static_cast<size_t>(text.limit));
}

void PromptDataset::add_windows(std::vector<Conversation> conversations, bool packs) {
  const auto width = static_cast<size_t>(info_.length + 1);
  int64_t cut = 0, dropped = 0;
  for (Conversation& conversation : conversations) {
    if (conversation.tokens.size() > width) {
      ++cut;
      conversation.tokens.resize(width);
      conversation.is_answer.resize(width);
    }
    if (!has_predicted_answer(conversation)) {
      ++dropped;
    } else if (packs && !windows_.empty() &&
               windows_.back().tokens.size() + conversation.tokens.size() <= width) {
      append(windows_.back(), conversation);
    } else {
      windows_.push_back(std::move(conversation));
    }
  }
  if (cut > 0)
    log_warning(info_.name, " ", info_.split, ": ", cut, " of ", conversations.size(),
                " conversations are cut at ", name_option("TextOptions::sequence_length"), " = ",
                info_.length);
  if (dropped > 0)
    log_warning(info_.name, " ", info_.split, ": ", dropped, " of ", conversations.size(),
                " conversations are dropped, because they have no answer or are cut before it");
}

Batch PromptDataset::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t width = info_.length + 1;
  const bool narrow = info_.vocabulary <= kNarrowVocabulary;
  Batch batch{.tokens = Tensor::zeros({count, width}, narrow ? DType::uint8 : DType::int64),
              .mask = Tensor::zeros({count, info_.length}, DType::uint8)};
  for (int64_t row = 0; row < count; ++row) {
    const Conversation& window = windows_[static_cast<size_t>(indices[static_cast<size_t>(row)])];
    if (narrow)
      std::copy(window.tokens.begin(), window.tokens.end(), batch.tokens.data<uint8_t>() + row * width);
    else
      std::copy(window.tokens.begin(), window.tokens.end(), batch.tokens.data<int64_t>() + row * width);
    std::copy(window.is_answer.begin() + 1, window.is_answer.end(),
              batch.mask.data<uint8_t>() + row * info_.length);
  }
  return batch;
}

}  // namespace tapeformer
