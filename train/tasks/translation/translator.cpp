#include "train/tasks/translation/translator.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/base/interruption.h"
#include "core/system/utf8.h"
#include "data/batches/bucket_plan.h"
#include "data/text/unknown_tokens.h"
#include "data/translation/translation_dataset.h"

namespace tapeformer {
namespace {

std::vector<TokenSpan> select_sentences(const std::vector<std::vector<int32_t>>& sentences,
                                        const std::vector<int64_t>& indices) {
  std::vector<TokenSpan> chosen;
  for (const int64_t i : indices) chosen.emplace_back(sentences[static_cast<size_t>(i)]);
  return chosen;
}

// Shortens a sentence to the length that the model takes. Returns whether it was longer.
bool cut(std::vector<int32_t>& sentence, const TranslationModel& model) {
  const auto longest = static_cast<size_t>(model.max_sentence_length());
  if (sentence.size() <= longest) return false;
  sentence.resize(longest);
  return true;
}

}  // namespace

std::string decode_line(const Tokenizer& tokenizer, const std::vector<int64_t>& tokens) {
  const std::string raw = tokenizer.decode(tokens);
  std::string line;
  for (size_t at = 0; at < raw.size();) {
    const Utf8Character character = decode_first_utf8_character(std::string_view(raw).substr(at));
    if (character.bytes == 0)
      line += kReplacementText;
    else if (raw[at] == '\n' || raw[at] == '\r')
      line += ' ';
    else
      line.append(raw, at, character.bytes);
    at += std::max<size_t>(character.bytes, 1);
  }
  line.erase(0, line.find_first_not_of(' '));
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::vector<ScoredTarget> score_targets(const TranslationModel& model, const Tokenizer& tokenizer,
                                        const std::vector<std::string>& sources,
                                        const std::vector<std::string>& targets,
                                        const std::pair<std::string, std::string>& names, int64_t first_line,
                                        int64_t batch_tokens) {
  std::vector<ScoredTarget> results(sources.size());
  const auto encode_all = [&](const std::vector<std::string>& lines, const std::string& name) {
    std::vector<std::vector<int32_t>> all;
    for (const std::string& line : lines) {
      throw_if_interrupted();
      try {
        all.push_back(tokenizer.encode(line));
      } catch (const EncodingError& error) {
        throw DataError(concat_text(name, ":", first_line + static_cast<int64_t>(all.size()), ", byte ",
                                    error.offset + 1, ": ", error.what()));
      }
      if (cut(all.back(), model)) results[all.size() - 1].is_cut = true;
    }
    return all;
  };
  const auto source_tokens = encode_all(sources, names.first),
             target_tokens = encode_all(targets, names.second);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < sources.size(); ++i)
    sizes.push_back(static_cast<int64_t>(std::max(source_tokens[i].size(), target_tokens[i].size())) + 1);
  for (const auto& indices : plan_batches(sizes, {.max_batch_length = batch_tokens, .shuffle = false}, 0)) {
    const Batch batch = make_translation_batch(select_sentences(source_tokens, indices),
                                               select_sentences(target_tokens, indices), model.end_token());
    const Tensor losses = model.compute_token_losses(batch);
    const int64_t width = losses.size(1);
    for (size_t row = 0; row < indices.size(); ++row) {
      const double* const first = losses.data<double>() + static_cast<int64_t>(row) * width;
      const auto index = static_cast<size_t>(indices[row]);
      results[index].log_probability = -std::accumulate(first, first + width, 0.0);
      results[index].source_unknown_count = count_unknown(tokenizer, source_tokens[index]);
      results[index].target_unknown_count = count_unknown(tokenizer, target_tokens[index]);
      results[index].token_count = static_cast<int64_t>(target_tokens[index].size()) + 1;
    }
  }
  return results;
}

std::string describe_sentence_limit(const TranslationModel& model) {
  return concat_text(model.max_sentence_length(), " tokens, twice data.max_length");
}

TranslatedText Translator::decode(const TranslationHypothesis& hypothesis) const {
  return {.text = decode_line(*tokenizer_, hypothesis.tokens),
          .token_count = static_cast<int64_t>(hypothesis.tokens.size()) + (hypothesis.is_complete ? 1 : 0),
          .unknown_count = count_unknown(*tokenizer_, hypothesis.tokens),
          .log_probability = hypothesis.log_probability,
          .score = hypothesis.score,
          .is_complete = hypothesis.is_complete};
}

std::vector<int32_t> Translator::encode(std::string_view line, LineCounts& counts) const {
  std::vector<int32_t> all;
  while (true) {
    size_t offset = 0;
    try {
      const std::vector<int32_t> tokens = tokenizer_->encode(line);
      all.insert(all.end(), tokens.begin(), tokens.end());
      return all;
    } catch (const EncodingError& error) {
      offset = error.offset;
    }
    const std::vector<int32_t> tokens = tokenizer_->encode(line.substr(0, offset));
    all.insert(all.end(), tokens.begin(), tokens.end());
    line.remove_prefix(offset);
    line.remove_prefix(std::max<size_t>(decode_first_utf8_character(line).bytes, 1));
    ++counts.left_out_characters;
  }
}

std::vector<std::vector<TranslatedText>> Translator::translate(
    const std::vector<std::string>& lines, const std::function<void(int64_t)>& on_progress) {
  std::vector<std::vector<int32_t>> sentences;
  std::vector<int64_t> sizes, numbers;  // of the lines that have tokens
  std::vector<bool> are_cut;
  LineCounts counts = counts_;
  for (const std::string& line : lines) {
    throw_if_interrupted();
    sentences.push_back(is_blank(line) ? std::vector<int32_t>() : encode(line, counts));
    are_cut.push_back(cut(sentences.back(), model_));
    ++counts.lines;
    if (are_cut.back() && counts.cut_lines++ == 0) counts.first_cut_line = counts.lines;
    counts.unknown_tokens += count_unknown(*tokenizer_, sentences.back());
    if (sentences.back().empty()) continue;
    sizes.push_back(static_cast<int64_t>(sentences.back().size()) + 1);
    numbers.push_back(static_cast<int64_t>(sentences.size()) - 1);
  }
  std::vector<std::vector<TranslatedText>> results(lines.size(), std::vector<TranslatedText>(1));
  auto finished = static_cast<int64_t>(lines.size() - numbers.size());
  for (const auto& batch : plan_batches(sizes,
                                        {.max_batch_length = options_.batch_tokens,
                                        .max_examples = options_.batch_sentences,
                                        .shuffle = false},
                                        0)) {
    std::vector<int64_t> indices;
    for (const int64_t i : batch) indices.push_back(numbers[static_cast<size_t>(i)]);
    const Batch sources =
        make_translation_batch(select_sentences(sentences, indices), {}, model_.end_token());
    const auto hypotheses =
        tapeformer::translate(decoder_, sources.source, sources.source_lengths, options_.search);
    for (size_t row = 0; row < indices.size(); ++row) {
      auto& result = results[static_cast<size_t>(indices[row])];
      result.clear();
      for (const TranslationHypothesis& one : hypotheses[row]) {
        result.push_back(decode(one));
        result.back().is_cut = are_cut[static_cast<size_t>(indices[row])];
      }
    }
    finished += static_cast<int64_t>(indices.size());
    if (on_progress) on_progress(finished);
  }
  counts_ = counts;
  return results;
}

}  // namespace tapeformer
