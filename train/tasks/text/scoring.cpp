#include "train/tasks/text/scoring.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "models/decoder.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "train/build.h"

namespace tapeformer {
namespace {

// The streams of an evaluation with carried states read at most this number of tokens at once, and compute at
// most this number of logits.
constexpr int64_t kReadTokens = 2048, kMaxLogits = int64_t{1} << 24;

// Returns the negative log-likelihoods, in nats, of all tokens except the first. The model predicts each
// token from the tokens before it and from `memory`, which may be null.
std::vector<double> compute_window_nats(const AutoregressiveModel& model, std::span<const int64_t> tokens,
                                        SegmentMemory* memory) {
  const auto length = static_cast<int64_t>(tokens.size()) - 1;
  const Tensor inputs =
      Tensor::from_vector(std::vector<int64_t>(tokens.begin(), tokens.end() - 1), {1, length});
  const Tensor logits =
      model.forward(inputs.to(model.predictor.weight.device()), {.is_prefix = true, .memory = memory});
  const Tensor log_probabilities = log_softmax(logits.view({length, logits.size(2)})).to(kCpu);
  const auto values = log_probabilities.to_vector();
  std::vector<double> nats(static_cast<size_t>(length));
  for (size_t t = 0; t < nats.size(); ++t)
    nats[t] = -values[t * static_cast<size_t>(logits.size(2)) + static_cast<size_t>(tokens[t + 1])];
  if (!std::all_of(nats.begin(), nats.end(), [](double x) { return std::isfinite(x); }))
    throw DivergenceError("the logits of the model are not finite numbers");
  return nats;
}

// Throws ConfigError if the model cannot process `tokens` tokens with a recurrent state of constant size.
void check_carried(const AutoregressiveModel& model, int64_t tokens) {
  const auto& attention = model.options().encoder.attention;
  if (const std::string reason =
          describe_unsupported(attention, "recurrent form", &AttentionCapabilities::recurrent);
      !reason.empty())
    throw ConfigError("the context \"carried\": " + reason);
  if (!supports(attention, &AttentionCapabilities::has_constant_size_state))
    throw ConfigError(
        "the context \"carried\": the state of the attention kind grows with the text; give a number of "
        "tokens");
  if (tokens > model.options().position_limit())
    throw ConfigError(
        concat_text("the context \"carried\": the model has ", model.options().position_limit(),
                    " positions, and a stream has ", tokens,
                    " tokens; train with rotary positions or none, or give a number of tokens"));
}

}  // namespace

std::vector<int64_t> encode_text(const Tokenizer& tokenizer, std::string_view text,
                                 const std::string& location) {
  try {
    const auto tokens = tokenizer.encode(text);
    return {tokens.begin(), tokens.end()};
  } catch (const EncodingError& error) {
    throw DataError(concat_text(location, ", byte ", error.offset + 1, ": ", describe_encoding_error(error)));
  }
}

LineScorer::LineScorer(const AutoregressiveModel& model, const Tokenizer& tokenizer)
    : model_(model),
      tokenizer_(tokenizer),
      context_(tokenizer.start_tokens().begin(), tokenizer.start_tokens().end()) {
  try {
    const std::vector<int64_t> tokens = encode_text(tokenizer, "\n", "line end");
    context_.insert(context_.end(), tokens.begin(), tokens.end());
    line_end_ = "\n";
  } catch (const DataError&) {
  }
}

TextScore LineScorer::score(std::string_view line, const std::string& location) const {
  if (line.size() > kMaxLineBytes)
    throw DataError(concat_text(location, ": the line has ", line.size(), " bytes, expected at most ",
                                kMaxLineBytes, "; divide the line"));
  std::vector<int64_t> tokens = context_;
  const auto own = encode_text(tokenizer_, std::string(line) + line_end_, location);
  tokens.insert(tokens.end(), own.begin(), own.end());
  TextScore score;
  if (tokens.size() <= 1) return score;
  const std::vector<double> nats = compute_token_losses(model_, tokens);
  for (size_t i = std::max<size_t>(context_.size(), 1); i < tokens.size(); ++i) {
    score.nats += nats[i - 1];
    score.add_token(tokenizer_, tokens[i]);
  }
  return score;
}

std::string prepare_text(std::string text, const std::string& name, const Tokenizer& tokenizer) {
  const TextEncoding encoding = detect_text_encoding(text);
  if (encoding.is_utf8()) return text.erase(0, encoding.mark_bytes);
  check_encoding(encoding, name, tokenizer);
  return text;
}

void check_encoding(const TextEncoding& encoding, const std::string& name, const Tokenizer& tokenizer) {
  const std::string problem = name + ": " + describe_encoding_problem(encoding);
  if (tokenizer.name() != kByteTokenizerName) throw DataError(problem);
  log_warning(problem, "; the tokens are its bytes as they are");
}

std::vector<double> compute_token_losses(const AutoregressiveModel& model, std::span<const int64_t> tokens) {
  const NoGradScope no_grad;
  const auto count = static_cast<int64_t>(tokens.size()), longest = model.options().max_length;
  const auto memory = model.encoder.make_segment_memory(1);
  std::vector<double> nats;
  while (static_cast<int64_t>(nats.size()) + 1 < count) {
    const auto done = static_cast<int64_t>(nats.size());
    const int64_t repeated = memory ? 0 : longest / 2, first = std::max<int64_t>(0, done - repeated);
    if (memory) memory->start_segment(first);
    const int64_t length = std::min(longest, count - 1 - first);
    const auto part = tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(length + 1));
    const auto window = compute_window_nats(model, part, memory.get());
    nats.insert(nats.end(), window.begin() + (done - first), window.end());
  }
  return nats;
}

Evaluation evaluate_recurrent(const AutoregressiveModel& model, const TextDataset& dataset,
                              int64_t stream_count, int64_t limit, const StopCheck& stop) {
  const TokenSequence& text = dataset.tokens();
  stream_count = std::min(stream_count, text.size() - 1);
  // The first `longer_count` streams have one prediction more than the others.
  const int64_t shortest = (text.size() - 1) / stream_count, longer_count = (text.size() - 1) % stream_count;
  int64_t length = shortest + (longer_count > 0);
  if (limit > 0) length = std::min(length, limit);
  const auto starts = dataset.tokenizer()->start_tokens();
  const auto start_count = static_cast<int64_t>(starts.size());
  check_carried(model, start_count + length);
  const NoGradScope no_grad;
  Decoder decoder(model, stream_count, start_count + length);
  Evaluation result{.example_count = stream_count, .text_score = TextScore()};
  // Returns tokens [first, last) of every stream, (streams, last - first).
  const auto read = [&](int64_t first, int64_t last) {
    const int64_t count = last - first;
    Tensor tokens = Tensor::zeros({stream_count, count}, DType::int64);
    for (int64_t s = 0; s < stream_count; ++s) {
      const int64_t begin = s * shortest + std::min(s, longer_count) + first;
      // After the last token of a shorter stream, any token will do.
      text.read(begin, std::min(count, text.size() - begin), tokens.data<int64_t>() + s * count);
    }
    return tokens;
  };
  const Device device = model.predictor.weight.device();
  for (const int32_t token : starts) decoder.step(Tensor::full({stream_count}, token, DType::int64, device));
  const int64_t rows = std::min(kReadTokens, kMaxLogits / model.options().vocabulary_size),
                step = std::max<int64_t>(1, rows / stream_count);
  double correct = 0;
  for (int64_t t = 0, next = 0; t < length; t = next) {
    throw_if_stopped(stop);
    // The last token of the longer streams is alone.
    next = std::min(t + step, t < shortest ? std::min(length, shortest) : length);
    const int64_t count = t < shortest ? stream_count : longer_count;
    const Tensor encoded = slice(decoder.read(read(t, next).to(device)), 0, 0, count),
                 targets = reshape(slice(read(t + 1, next + 1), 0, 0, count), {count * (next - t)});
    const Tensor logits = model.predictor.forward(reshape(encoded, {targets.numel(), encoded.size(2)}));
    const double nats = cross_entropy(logits, targets.to(device)).item();
    if (!std::isfinite(nats)) throw DivergenceError("the logits of the model are not finite numbers");
    result.text_score->nats += nats * static_cast<double>(targets.numel());
    const auto best = argmax(logits).to_vector(), expected = targets.to_vector();
    for (size_t i = 0; i < best.size(); ++i) correct += best[i] == expected[i];
    for (const double token : expected)
      result.text_score->add_token(*dataset.tokenizer(), static_cast<int64_t>(token));
  }
  const auto predictions = static_cast<double>(result.text_score->token_count);
  result.nats_per_dim = result.text_score->nats / predictions;
  result.bits_per_dim = result.nats_per_dim / std::numbers::ln2;
  result.accuracy = correct / predictions;
  return result;
}

void add_unknown_tokens(const TextScore& score, Report& report) {
  if (score.unknown_count > 0)
    report.add("unknown_tokens", score.unknown_count)
        .add("unknown_share",
             static_cast<double>(score.unknown_count) / static_cast<double>(score.token_count));
}

}  // namespace tapeformer
