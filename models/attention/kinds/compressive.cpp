#include <cmath>

#include "models/attention/kinds/relative.h"
#include "models/layers/layers.h"
#include "models/layers/loss_terms.h"
#include "models/layers/option_error.h"
#include "ops/linear.h"
#include "ops/losses.h"
#include "ops/reduce.h"
#include "ops/softmax_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kCompressive = "compressive";

// A state that also has the newest inputs of the layer, (batch, compression_rate, width).
class CompressiveState final : public RelativeAttentionState {
 public:
  CompressiveState(RelativeState state, Tensor newest_inputs)
      : RelativeAttentionState(std::move(state)), inputs(std::move(newest_inputs)) {}

  Tensor inputs;
};

// Attention of a Compressive Transformer (Rae et al. 2020). It is the attention of Transformer-XL with a
// second memory of compressed rows. Each compressed row represents SegmentMemorySize::compression_rate older
// inputs of the layer.
class CompressiveKind final : public RelativeAttention {
 public:
  CompressiveKind(const RelativeAttentionOptions& options, const std::string& compression,
                  const AttentionSetup& setup)
      : RelativeAttention(options, setup),
        heads_(setup.heads),
        dim_(setup.dim),
        width_(setup.input_width()),
        projections_(setup.projections),
        compression_(compression) {
    if (memory_size().compressed_rows == 0 || compression != "convolution") return;
    const int64_t inputs = memory_size().compression_rate * width_;
    const Initializer initializer = make_uniform_initializer(1 / std::sqrt(static_cast<double>(inputs)));
    add_parameter("compression.weight", weight_, {width_, inputs}, initializer);
    add_parameter("compression.bias", bias_, {width_}, initializer);
  }

  Tensor prepend_memory(const Tensor& x, const ForwardContext& context,
                        const std::string& name) const override {
    if (context.memory) {
      const Tensor evicted = context.memory->write(name, x);
      if (evicted.defined()) store_compressed(x, evicted, context, name);
    }
    // The second call of write() in a segment has no effect.
    return RelativeAttention::prepend_memory(x, context, name);
  }

  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& s) const override {
    if (memory_size().compressed_rows == 0) return RelativeAttention::make_state(s);
    const Shape inputs{s.batch, memory_size().compression_rate, width_};
    return std::make_unique<CompressiveState>(make_relative_state(s),
                                              Tensor::zeros(inputs, s.dtype, s.device));
  }

  // After every `rate` inputs, compresses these inputs to one row and appends the row to the compressed
  // memory. Queries attend to the row when its tokens are outside the uncompressed memory.
  //
  // A captured CUDA graph uses the same `slot` in every replay, so the replays append wrong rows. These rows
  // do not affect the results: queries read a row only in later segments, and a graph decodes at most one
  // segment.
  void observe_input(const Tensor& x, AttentionState& state) const override {
    if (memory_size().compressed_rows == 0) return;
    auto& compressive = static_cast<CompressiveState&>(state);
    const RelativeAttentionCache& cache = compressive.relative.cache;
    const int64_t rate = cache.compression_rate, slot = cache.length % rate;
    slice(compressive.inputs, 1, slot, slot + 1).copy_from(reshape(x, {x.size(0), 1, x.size(1)}));
    if (slot + 1 < rate) return;
    const Tensor row = compress(compressive.inputs);
    const int64_t index = cache.length / rate % cache.compressed_keys.size(1);
    for (const auto& [rows, projection] : {std::pair(&cache.compressed_keys, projections_.key),
                                           std::pair(&cache.compressed_values, projections_.value)})
      slice(*rows, 1, index, index + 1).copy_from(project(row, projection));
  }

 private:
  // Compresses consecutive inputs x (batch, count, width). The result is (batch, count / rate, width). The
  // kernel size and the stride of the convolution are `rate`, so the convolution is computed as a linear
  // layer on spans of `rate` tokens.
  Tensor compress(const Tensor& x) const {
    const int64_t batch = x.size(0), width = x.size(2), rate = memory_size().compression_rate;
    if (compression_ == "convolution") return linear(reshape(x, {batch, -1, rate * width}), weight_, bias_);
    const Tensor spans = reshape(x, {batch, -1, rate, width});
    return compression_ == "mean" ? mean(spans, 2) : max(spans, 2);
  }

  // Compresses `evicted`, the old inputs that the segment x displaces from the uncompressed memory, and
  // stores the resulting rows in the compressed memory. If the rows require gradients, adds the
  // reconstruction loss.
  //
  // Recomputed and reversible layers do not record ops in the forward pass. They record ops when backward()
  // replays the forward pass, but the memory evicts nothing in the replay. Therefore, this function enables
  // recording if context.loss_terms is not null. Otherwise, the reconstruction loss would have no gradients.
  void store_compressed(const Tensor& x, const Tensor& evicted, const ForwardContext& context,
                        const std::string& name) const {
    const RecordingScope scope(context.loss_terms != nullptr);
    const Tensor rows = compress(evicted);
    context.memory->write_compressed(name, rows);
    if (requires_grad(rows)) context.loss_terms->add(compute_reconstruction_loss(detach(x), evicted, rows));
  }

  // Returns the attention-reconstruction loss (Rae et al. 2020, algorithm 2). The loss is the mean squared
  // difference between the attention of x to `evicted` and the attention of x to `compressed`. Both
  // attentions are softmax attention without positions and masks. Gradients reach only `compressed`.
  Tensor compute_reconstruction_loss(const Tensor& x, const Tensor& evicted, const Tensor& compressed) const {
    const Tensor q = project(x, projections_.query);
    const auto attended = [&](const Tensor& rows) {
      return softmax_attention(q, project(rows, projections_.key), project(rows, projections_.value));
    };
    return mse_loss(attended(compressed), attended(evicted));
  }

  // Returns a projection of the layer, (batch, rows, heads, dim). Gradients do not reach the projection.
  Tensor project(const Tensor& rows, const Linear* projection) const {
    check(projection != nullptr, kCompressive, "the compressed memory needs the projections of a layer");
    const Tensor bias = projection->bias.defined() ? detach(projection->bias) : Tensor{};
    return reshape(linear(rows, detach(projection->weight), bias),
                   {rows.size(0), rows.size(1), heads_, dim_});
  }

  int64_t heads_, dim_, width_;
  AttentionProjections projections_;
  std::string compression_;
  Tensor weight_, bias_;  // (width, rate * width) and (width,); undefined without a convolution
};

SegmentMemorySize compute_segment_memory_size(const OptionValues& options) {
  return {.tokens = options.get<int64_t>("memory"),
          .compressed_rows = options.get<int64_t>("compressed_memory"),
          .compression_rate = options.get<int64_t>("rate")};
}

std::unique_ptr<Attention> make_compressive(const OptionValues& options, const AttentionSetup& setup) {
  const SegmentMemorySize memory = compute_segment_memory_size(options);
  check_relative_attention_setup(kCompressive, setup);
  if (memory.compressed_rows > 0 && memory.tokens == 0)
    throw OptionError("compressed_memory",
                      concat_text("needs a memory of tokens: expected 0 with memory = 0, "
                                  "got ",
                                  memory.compressed_rows));
  if (memory.compressed_rows > 0 && memory.tokens % memory.compression_rate != 0)
    throw OptionError("memory", concat_text("expected a multiple of rate = ", memory.compression_rate,
                                            ", got ", memory.tokens));
  return std::make_unique<CompressiveKind>(RelativeAttentionOptions{memory, options.get<int64_t>("clamp")},
                                           options.get<std::string>("compression"), setup);
}

void check_segment_length(const OptionValues& options, int64_t length) {
  const SegmentMemorySize memory = compute_segment_memory_size(options);
  if (memory.compressed_rows > 0 && length % memory.compression_rate != 0)
    throw OptionError("rate", concat_text("expected a divisor of the segment length ", length, ", got ",
                                          memory.compression_rate));
}

std::vector<OptionSpec> compressive_options() {
  constexpr double kMaxTokens = 1 << 20;
  const OptionCondition compresses{.option = "compressed_memory"};
  return {make_memory_option(768),
          {.name = "compressed_memory",
           .default_value = int64_t{1152},
           .help = "rows of compressed tokens before the memory; 0: none",
           .min = 0,
           .max = kMaxTokens},
          {.name = "rate",
           .default_value = int64_t{3},
           .help = "tokens in a row; divides memory and the length of a segment",
           .min = 1,
           .max = kMaxTokens,
           .used_if = compresses},
          {.name = "compression",
           .default_value = std::string("convolution"),
           .help = "compresses the inputs of the layer",
           .choices = {"convolution", "mean", "max"},
           .used_if = compresses,
           .is_fixed_by_training = true},
          make_clamp_option()};
}

AttentionCapabilities make_compressive_capabilities() {
  AttentionCapabilities capabilities = make_relative_attention_capabilities();
  capabilities.grouped_heads = capabilities.normalized_heads =
      make_unsupported("it projects compressed inputs itself");
  return capabilities;
}

}  // namespace

AttentionKind make_compressive_attention_kind() {
  return {.name = kCompressive,
          .help = "transformer-xl with a second memory of compressed tokens",
          .capabilities = make_compressive_capabilities(),
          .options = compressive_options(),
          .make = make_compressive,
          .check_length = check_segment_length,
          .compute_segment_memory_size = compute_segment_memory_size,
          .count_multiply_adds = count_relative_attention_multiply_adds,
          .test_options = {{"memory", int64_t{0}}, {"compressed_memory", int64_t{0}}},
          // Benchmark charts measure sequences without earlier segments, for which a memory would be empty.
          // The variant therefore has no memory.
          .variants = {{kCompressive, {{"memory", int64_t{0}}, {"compressed_memory", int64_t{0}}}}}};
}

}  // namespace tapeformer
