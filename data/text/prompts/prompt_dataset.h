// A data set of prompts and answers, of which a model learns only the answers.
//
// A file has one JSON object per line, in one of two forms:
//   {"prompt": "…", "completion": "…"}
//   {"messages": [{"role": "system", "content": "…"}, {"role": "user", …}, {"role": "assistant", …}, …]}
// Other keys are ignored. The messages of the role "assistant" are the answers. A line can have several.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batches/dataset.h"
#include "data/text/prompts/chat_template.h"
#include "data/text/text_dataset.h"

namespace tapeformer {

struct PromptOptions {
  ChatTemplate chat_template = ChatTemplate::none;
  std::string system_prompt = {};  // text of a system message for conversations without one; empty: none
  // If true, a window contains as many conversations as fit, in the order of the file. A prediction then
  // reads the earlier conversations of its window. If false, each conversation has a window.
  bool packs = true;
};

// The tokens of a conversation, and for each token 1 if it belongs to an answer and 0 otherwise.
struct Conversation {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_answer;
};

// Reads the conversations of the files that `path` selects; see list_text_files(). Throws DataError with the
// file and the line for invalid lines, and if there are no conversations.
std::vector<Conversation> read_conversations(const std::string& path, const PromptOptions& options,
                                             const Tokenizer& tokenizer);

// Windows of `sequence_length` + 1 tokens, padded with zeros. Predictions of padding and of tokens that
// belong to no answer are masked. Longer conversations are cut, and conversations without an answer before
// the cut are dropped; both are logged. Of `text`, uses the paths, the shares, the sequence length and the
// limit. The shares are those of the conversations.
class PromptDataset final : public Dataset {
 public:
  // Throws the errors of read_conversations(). Throws DataError if the split is empty.
  PromptDataset(const TextOptions& text, const PromptOptions& options, const std::string& name,
                const std::string& split, std::shared_ptr<const Tokenizer> tokenizer);

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(windows_.size()); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  // Returns a batch with `tokens` (count, sequence_length + 1), uint8 if the vocabulary has at most 256
  // tokens and int64 otherwise, and `mask` (count, sequence_length).
  Batch batch(std::span<const int64_t> indices) const override;

 private:
  void add_windows(std::vector<Conversation> conversations, bool packs);

  std::shared_ptr<const Tokenizer> tokenizer_;
  DatasetInfo info_;
  std::vector<Conversation> windows_;  // without padding
};

}  // namespace tapeformer
