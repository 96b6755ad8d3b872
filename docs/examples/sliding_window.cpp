// The command line of Tapeformer with one more attention kind, "sliding_window". Each token attends to itself
// and to the window - 1 tokens before it, and to as many tokens after it if the model is not causal. Each
// head learns the scale of its scores. docs/adding-an-attention-kind.md explains this file.
//
// Usage: sliding_window train sliding_window.toml
#include <tapeformer/tapeformer.h>
#include <tapeformer/train/cli/run.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>

using namespace tapeformer;

class SlidingWindow : public Attention {
 public:
  SlidingWindow(int64_t window, const AttentionSetup& setup) : window_(window) {
    const double scale = 1 / std::sqrt(static_cast<double>(setup.dim));
    add_parameter("scale", scale_, {setup.heads, 1, 1}, make_constant_initializer(scale));
  }

  // Returns the attention of q, k, v (batch, length, heads, dim).
  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string&) const override {
    const auto heads_first = [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); };
    const Tensor scores = mul(matmul(heads_first(q), heads_first(k), {.transpose_b = true}), scale_);
    const Tensor masked = add(scores, score_mask(q, mask.causal, context.is_prefix));
    const Tensor weights = softmax(masked);  // (batch, heads, length, length)
    return contiguous(heads_first(matmul(weights, heads_first(v))));
  }

 private:
  // Returns a mask (length, length): 0 where a query attends to a key, and -inf elsewhere. A CUDA graph
  // cannot copy from the CPU, so the first step, which runs before the capture, creates the mask and keeps it
  // for replays. In generation, prefixes have many lengths and run without graphs, so their masks are not
  // kept.
  Tensor score_mask(const Tensor& q, bool causal, bool is_prefix) const {
    const int64_t length = q.size(1);
    Tensor mask = is_prefix ? Tensor() : masks_[length];
    if (mask.defined() && mask.dtype() == q.dtype() && mask.device() == q.device()) return mask;
    const Tensor values = Tensor::full({length, length}, -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < length; ++i)
      for (int64_t j = 0; j < length; ++j)
        if (std::abs(i - j) < window_ && (j <= i || !causal)) values.data<float>()[i * length + j] = 0;
    mask = values.to(q.dtype()).to(q.device());
    if (!is_prefix) masks_[length] = mask;
    return mask;
  }

  int64_t window_;
  Tensor scale_;                             // (heads, 1, 1)
  mutable std::map<int64_t, Tensor> masks_;  // indexed by length
};

int main(int argc, char** argv) {
  register_attention_kind(
      {.name = "sliding_window",
       .help = "softmax attention to the last tokens",
       .capabilities = {.causal = true},
       .options = {{.name = "window", .default_value = int64_t{16}, .help = "number of tokens", .min = 1}},
       .make = [](const OptionValues& options, const AttentionSetup& setup) {
         return std::make_unique<SlidingWindow>(options.get<int64_t>("window"), setup);
       }});
  return cli::run(argc, argv);
}
