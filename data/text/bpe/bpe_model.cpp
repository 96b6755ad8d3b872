#include "data/text/bpe/bpe_model.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

constexpr const char* kStopTokens[] = {"<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>",
                                       "<|eom_id|>"};
constexpr size_t kMaxStartTokens = 16;

}  // namespace

std::string quote_bpe_text(std::string_view text, size_t max_bytes) {
  return "\"" + escape_line(text.substr(0, max_bytes)) + (text.size() > max_bytes ? "…\"" : "\"");
}

std::unordered_map<std::string_view, int32_t> index_bpe_pieces(const BpeModel& model) {
  std::unordered_map<std::string_view, int32_t> tokens;
  tokens.reserve(model.pieces.size());
  for (size_t i = 0; i < model.pieces.size(); ++i)
    if (!model.pieces[i].empty()) tokens.emplace(model.pieces[i], static_cast<int32_t>(i));
  return tokens;
}

void set_bpe_merges(BpeModel& model, const std::vector<std::pair<std::string, std::string>>& pairs,
                    const std::string& source) {
  const auto tokens = index_bpe_pieces(model);
  const auto find = [&](const std::string& piece, size_t rank) {
    const auto found = tokens.find(piece);
    if (found == tokens.end())
      throw DataError(
          concat_text(source, ": merge ", rank, ": ", quote_bpe_text(piece), " is not in the vocabulary"));
    return found->second;
  };
  model.merges.clear();
  for (const auto& [left, right] : pairs) {
    const size_t rank = model.merges.size();
    model.merges.push_back({find(left, rank), find(right, rank), find(left + right, rank)});
  }
}

std::pair<std::string, std::string> parse_bpe_merge(std::string_view text, const std::string& source) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    throw DataError(source + ": expected two pieces with a space between them, got " + quote_bpe_text(text));
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

std::vector<int32_t> find_bpe_stop_tokens(const std::vector<BpeAddedToken>& added_tokens) {
  std::vector<int32_t> tokens;
  for (const BpeAddedToken& added : added_tokens)
    if (added.is_special &&
        std::find(std::begin(kStopTokens), std::end(kStopTokens), added.text) != std::end(kStopTokens))
      tokens.push_back(added.id);
  return tokens;
}

void check_bpe_model(const BpeModel& model, const std::string& source) {
  const auto check_token = [&](int32_t token, const char* what) {
    if (token < 0 || token >= static_cast<int64_t>(model.pieces.size()))
      throw DataError(concat_text(source, ": ", what, " is ", token, ", and the vocabulary has ",
                                  model.pieces.size(), " tokens"));
  };
  if (model.pieces.empty()) throw DataError(source + ": the vocabulary is empty");
  for (const auto& merge : model.merges)
    for (const int32_t token : merge) check_token(token, "a token of a merge");
  for (const BpeAddedToken& added : model.added_tokens) {
    check_token(added.id, "an added token");
    if (added.text.empty() || find_invalid_utf8(added.text) != std::string_view::npos)
      throw DataError(
          concat_text(source, ": the added token ", added.id, " has no text or is not valid UTF-8"));
  }
  if (model.unknown_token != -1) {
    check_token(model.unknown_token, "the unknown token");
    if (model.pieces[static_cast<size_t>(model.unknown_token)].empty())
      throw DataError(concat_text(source, ": the unknown token ", model.unknown_token, " is unused"));
  }
  if (model.start_tokens.size() > kMaxStartTokens)
    throw DataError(concat_text(source, ": has ", model.start_tokens.size(),
                                " start tokens, expected at most ", kMaxStartTokens));
  for (const int32_t token : model.start_tokens) check_token(token, "a start token");
  for (const int32_t token : model.stop_tokens) check_token(token, "a stop token");
}

}  // namespace tapeformer
