#include "models/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/cuda/graph.h"
#include "ops/elementwise.h"
#include "ops/optimizer_step.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Tokens of all sequences that a TokenStream reads at once.
constexpr int64_t kReadTokens = 2048;

// Returns the log-probabilities of the 256 byte values, (rows, 256). `mixtures` (rows, 3 * K) contains the
// parameters of a mixture of K logistics in each row.
Tensor compute_byte_log_probabilities(const Tensor& mixtures) {
  constexpr int64_t kLevels = 256;
  const int64_t rows = mixtures.size(0), dims = mixtures.size(1);
  Tensor levels = Tensor::empty({rows * kLevels}, DType::int64);
  for (int64_t i = 0; i < levels.numel(); ++i) levels.data<int64_t>()[i] = i % kLevels;
  const Tensor repeated = contiguous(broadcast_to(mixtures.view({rows, 1, dims}), {rows, kLevels, dims}));
  const Tensor losses =
      logistic_mixture_nll(repeated.view({rows * kLevels, dims}), levels.to(mixtures.device()), kLevels);
  return mul(losses, -1.0).view({rows, kLevels});
}

// Returns logits (rows, classes) with -infinity for the classes in `tokens`.
Tensor exclude_tokens(const Tensor& logits, const std::vector<int64_t>& tokens) {
  if (tokens.empty()) return logits;
  const Tensor result = logits.clone();
  for (size_t first = 0, last = 0; first < tokens.size(); first = last) {
    while (last < tokens.size() && tokens[last] == tokens[first] + static_cast<int64_t>(last - first)) ++last;
    slice(result, 1, tokens[first], tokens[last - 1] + 1).fill(-std::numeric_limits<double>::infinity());
  }
  return result;
}

// Generates the rows of `columns` (length, batch) after the first `prefix` rows. Row t contains token t of
// every sequence. On a CUDA device, the tokens stay in device memory, so the host does not wait for them.
void generate_recurrently(const AutoregressiveModel& model, const Sampler& sampler, const Tensor& columns,
                          int64_t prefix, WeightFormat format, bool graphs) {
  const int64_t length = columns.size(0), batch = columns.size(1), first = prefix - 1;
  const Device device = columns.device();
  const Tensor tokens = Tensor::empty({batch}, DType::uint8, device);
  Decoder decoder(model, batch, 0, format);
  if (first > 0) decoder.read(contiguous(transpose(slice(columns, 0, 0, first), 0, 1)));
  // Reads token t of every sequence from `tokens`, draws token t + 1 to `tokens`, and stores it in `columns`.
  const auto step = [&](int64_t t) {
    sampler.draw(decoder.step(tokens), t, tokens);
    copy_tokens_at_position(columns, t + 1, prefix, tokens);
  };
  copy_tokens_at_position(columns, first, prefix, tokens);
  if constexpr (kHasCuda)
    if (graphs && sampler.is_allocation_free() && !device.is_cpu() && length - first > 3) {
      // The first step runs outside the graph, because the first run of a kernel cannot be captured.
      step(first);
      cuda::Graph graph(device, 1, [&] { step(first + 1); });
      for (int64_t t = first + 1; t + 1 < length; ++t) graph.launch(t - first - 1);
      return;
    }
  for (int64_t t = first; t + 1 < length; ++t) step(t);
}

}  // namespace

Sampler::Sampler(const AutoregressiveModelOptions& model, const GenerationOptions& options, Device device)
    : head_(model.head),
      options_(options),
      stream_(options.seed, "generate"),
      squared_logit_sum_(Tensor::zeros({1}, DType::float64, device)),
      total_squared_logit_sum_(Tensor::zeros({1}, DType::float64, device)) {}

bool Sampler::is_allocation_free() const {
  return options_.undrawn_tokens.empty() &&
         (head_ == OutputHead::categorical || options_.sampling.is_default());
}

void Sampler::draw(const Tensor& parameters, int64_t t, const Tensor& tokens) const {
  const RandomStream stream = stream_.at_step(static_cast<uint64_t>(t));
  compute_squared_norms_into({parameters}, squared_logit_sum_);
  total_squared_logit_sum_.add_scaled(squared_logit_sum_);
  if (head_ == OutputHead::logistic_mixture && options_.sampling.is_default())
    return sample_logistic_mixture(parameters, stream, options_.first_sequence_index, tokens,
                                   options_.logistic_scale);
  const Tensor logits =
      head_ == OutputHead::categorical ? parameters : compute_byte_log_probabilities(parameters);
  sample_classes(exclude_tokens(logits, options_.undrawn_tokens), stream, options_.first_sequence_index,
                 tokens, options_.sampling);
}

void Sampler::check_logits() const {
  if (!std::isfinite(total_squared_logit_sum_.item()))
    throw DivergenceError("generate: the logits of the model are not finite numbers");
}

TokenStream::TokenStream(const AutoregressiveModel& model, const GenerationOptions& options, int64_t batch,
                         int64_t capacity, int64_t window)
    : model_(model),
      sampler_(model.options(), options, model.predictor.weight.device()),
      batch_(batch),
      capacity_(capacity),
      window_(window > 0 ? std::min(window, capacity) : capacity),
      newest_tokens_(Tensor::zeros({batch}, DType::int64, model.predictor.weight.device())) {
  if (options.mode == GenerationMode::recurrent) {
    decoder_ = std::make_unique<Decoder>(model, batch, window_, options.weights);
    return;
  }
  check(window_ <= model.options().max_length, "TokenStream", "a window of ", window_,
        " tokens exceeds the maximum length of the model, ", model.options().max_length);
}

void TokenStream::check_capacity() const {
  check(size_ <= capacity_, "TokenStream", "more than ", capacity_ + 1, " tokens");
}

void TokenStream::append_to_window(const std::vector<int64_t>& tokens) {
  ++size_;
  ++unread_count_;
  window_tokens_.insert(window_tokens_.end(), tokens.begin(), tokens.end());
  if (count_window_tokens() <= window_ || window_ == capacity_) return;
  window_tokens_.erase(window_tokens_.begin(), window_tokens_.end() - (window_ + 1) / 2 * batch_);
  unread_count_ = count_window_tokens();
  must_restart_ = true;
}

Tensor TokenStream::make_window(int64_t first, int64_t last) const {
  const Tensor columns = Tensor::from_vector<int64_t>(
      {window_tokens_.begin() + first * batch_, window_tokens_.begin() + last * batch_},
      {last - first, batch_});
  return contiguous(transpose(columns, 0, 1)).to(newest_tokens_.device());
}

void TokenStream::append(int64_t token) {
  check(token >= 0 && token < model_.options().vocabulary_size, "TokenStream", "token ", token,
        " is not below the vocabulary, ", model_.options().vocabulary_size);
  check_capacity();
  newest_tokens_.fill(static_cast<double>(token));
  append_to_window(std::vector<int64_t>(static_cast<size_t>(batch_), token));
}

void TokenStream::read() {
  if (!decoder_) return;
  const NoGradScope no_grad;
  if (std::exchange(must_restart_, false)) decoder_->reset();
  const int64_t end = count_window_tokens() - 1;
  while (unread_count_ > 1) {
    const int64_t count = std::min(unread_count_ - 1, std::max<int64_t>(1, kReadTokens / batch_)),
                  first = end + 1 - unread_count_;
    decoder_->read(make_window(first, first + count));
    unread_count_ -= count;
  }
}

Tensor TokenStream::compute_distributions() {
  if (decoder_) {
    read();
    unread_count_ = 0;
    if (window_ == capacity_) window_tokens_.clear();
    return decoder_->step(newest_tokens_);
  }
  const int64_t length = count_window_tokens();
  const Tensor encoded = model_.encode(make_window(0, length), {.is_prefix = true});
  return model_.predictor.forward(reshape(slice(encoded, 1, length - 1, length), {batch_, encoded.size(2)}));
}

std::vector<int64_t> TokenStream::draw() {
  check(size_ > 0, "TokenStream", "the stream has no token");
  check_capacity();
  const NoGradScope no_grad;
  sampler_.draw(compute_distributions(), size_ - 1, newest_tokens_);
  sampler_.check_logits();
  const auto drawn = newest_tokens_.to_vector();
  const std::vector<int64_t> tokens(drawn.begin(), drawn.end());
  append_to_window(tokens);
  return tokens;
}

Tensor generate(const AutoregressiveModel& model, const Tensor& prefix, int64_t length,
                const GenerationOptions& options) {
  check(prefix.rank() == 2 && prefix.size(1) >= 1 && prefix.size(1) <= length, "generate", "prefix ",
        prefix.shape(), " must be (batch, 1 to ", length, ")");
  check(length <= model.options().max_length + 1, "generate", "length ", length,
        " exceeds the maximum length of the model, ", model.options().max_length + 1);
  check(model.options().vocabulary_size <= 256, "generate",
        "expected a vocabulary of at most 256 tokens, got ", model.options().vocabulary_size);
  const NoGradScope no_grad;
  const int64_t batch = prefix.size(0), prefix_length = prefix.size(1);
  // Row t of `columns` contains token t of all sequences. `columns` is on the device of the model, so the
  // host waits for the device only at the end.
  const Tensor columns = Tensor::zeros({length, batch}, DType::uint8, model.predictor.weight.device());
  const Sampler sampler(model.options(), options, columns.device());
  columns.view({prefix_length, batch}, columns.strides()).copy_from(transpose(prefix, 0, 1));
  const auto column = [&](int64_t t) { return columns.view({batch}, {1}, t * batch); };
  if (options.mode == GenerationMode::recurrent) {
    const bool graphs = options.use_cuda_graphs &&
                        supports(model.options().encoder.attention, &AttentionCapabilities::step_graphs);
    generate_recurrently(model, sampler, columns, prefix_length, options.weights, graphs);
  } else {
    for (int64_t t = prefix_length - 1; t + 1 < length; ++t) {
      const Tensor tokens = columns.view({batch, t + 1}, {1, batch}).clone();
      const Tensor outputs = model.forward(tokens, {.is_prefix = true});
      sampler.draw(contiguous(slice(outputs, 1, t, t + 1)).view({batch, outputs.size(2)}), t, column(t + 1));
    }
  }
  sampler.check_logits();
  return columns.view({batch, length}, {1, batch}).clone().to(kCpu);
}

int64_t get_default_window(const AutoregressiveModel& model) {
  const bool is_limited =
      model.options().position_limit() < INT64_MAX || model.encoder.make_segment_memory(1) != nullptr;
  return is_limited ? 0 : model.options().max_length;
}

}  // namespace tapeformer
