// The forward and backward passes of attention as Python functions of torch tensors. The caller allocates the
// results. tapeformer/torch.py documents the arguments.
#include <nanobind/stl/string.h>

#include <string>

#include "ops/gated_linear_attention.h"
#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/softmax_attention.h"
#include "python/src/tensor_access.h"

namespace tapeformer::python {
namespace {

using Object = nb::handle;

AttentionResult read_result(Object out, Object statistics) {
  return {read_tensor(out, "out"), read_tensor(statistics, "statistics")};
}
AttentionResult read_new_result(Object out, Object statistics) {
  return {read_new_tensor(out, "out"), read_new_tensor(statistics, "statistics")};
}

// Adds the functions of both passes of attention with the inputs q, k and v. The arguments of `read_options`
// follow v. The statistics can be None if no backward pass follows.
template <class Options, class... Arguments>
void bind_passes(nb::module_& m, const char* forward_name, const char* backward_name,
                 Options (*read_options)(Arguments...),
                 void (*forward)(const Tensor&, const Tensor&, const Tensor&, const Options&,
                                 const AttentionResult&),
                 void (*backward)(const Tensor&, const Tensor&, const Tensor&, const Options&,
                                  const AttentionResult&, const Tensor&, const Gradients&)) {
  add_function(m, forward_name,
               [=](int threads, Object q, Object k, Object v, Arguments... arguments, Object out,
                   const OptionalObject& statistics) {
                 const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v");
                 check_dtypes(tq, {{"k", tk}, {"v", tv}});
                 const Options options = read_options(arguments...);
                 AttentionResult result{read_new_tensor(out, "out"), {}};
                 if (statistics) result.statistics = read_new_tensor(*statistics, "statistics");
                 const ComputeScope compute(threads, tq);
                 if (!statistics)
                   result.statistics = Tensor::empty({tq.size(0), tq.size(2), tq.size(1)},
                                                     get_compute_dtype(tq.dtype()), tq.device());
                 forward(tq, tk, tv, options, result);
               });
  add_function(
      m, backward_name,
      [=](int threads, Object q, Object k, Object v, Arguments... arguments, Object out, Object statistics,
          const OptionalObject& gradient, Object gq, Object gk, Object gv) {
        const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v");
        const Options options = read_options(arguments...);
        const AttentionResult result = read_result(out, statistics);
        const Tensor g = read_tensor(gradient, "gradient");
        Gradients gradients{read_new_tensor(gq, "gq"), read_new_tensor(gk, "gk"), read_new_tensor(gv, "gv")};
        if constexpr (requires { options.bias; })
          if (options.bias.defined()) gradients.push_back({});  // a mask has no gradient
        const ComputeScope compute(threads, tq);
        backward(tq, tk, tv, options, result, g, gradients);
      });
}

SoftmaxAttentionOptions read_softmax_options(const OptionalObject& lengths, bool causal, double scale,
                                             double dropout, uint64_t seed, int64_t block, int64_t before,
                                             int64_t after, const OptionalObject& bias) {
  SoftmaxAttentionOptions options{.causal = causal, .key_lengths = read_tensor(lengths, "lengths")};
  options.bias = read_tensor(bias, "mask");
  options.scale = scale;
  options.dropout = dropout;
  options.dropout_stream = RandomStream(seed, "dropout");
  options.pattern.window = {.block_size = block, .before = before, .after = after};
  return options;
}

LinearAttentionOptions read_linear_options(const OptionalObject& lengths, bool causal, int feature_map,
                                           double eps) {
  return {.causal = causal,
          .key_lengths = read_tensor(lengths, "lengths"),
          .feature_map = static_cast<FeatureMap>(feature_map),
          .eps = eps,
          .normalized = static_cast<FeatureMap>(feature_map) != FeatureMap::identity};
}

// Options of LSH attention that stay the same between calls, so that a call need not convert them.
struct LshSettings {
  LshOptions options;

  LshSettings(const std::string& preset, int64_t rounds, int64_t chunk_length, int64_t buckets) {
    options = make_lsh_preset(preset);
    if (rounds > 0) options.rounds = rounds;
    if (chunk_length > 0) options.chunk_length = chunk_length;
    if (buckets >= 0) options.buckets = buckets;
    options.allow_any_length = true;
  }
  bool has_mean() const { return options.combine == LshOptions::Combine::mean; }
  LshOptions read(const OptionalObject& lengths, bool causal, double dropout, uint64_t seed) const {
    LshOptions result = options;
    result.key_lengths = read_tensor(lengths, "lengths");
    result.causal = causal;
    result.dropout = dropout;
    result.dropout_stream = RandomStream(seed, "dropout");
    return result;
  }
};

void lsh_forward(int threads, const LshSettings& settings, Object q, Object v, const OptionalObject& lengths,
                 bool causal, double dropout, uint64_t seed, Object buckets, Object out, Object statistics) {
  const Tensor tq = read_tensor(q, "q"), tv = read_tensor(v, "v"), ids = read_new_tensor(buckets, "buckets");
  check_dtypes(tq, {{"v", tv}});
  const LshOptions options = settings.read(lengths, causal, dropout, seed);
  const AttentionResult result = read_new_result(out, statistics);
  const ComputeScope compute(threads, tq);
  ids.copy_from(compute_lsh_buckets(tq, options, RandomStream(seed, "hash")));
  lsh_attention_forward_into(tq, tv, ids, options, result);
}

void lsh_backward(int threads, const LshSettings& settings, Object q, Object v, const OptionalObject& lengths,
                  bool causal, double dropout, uint64_t seed, Object buckets, Object out, Object statistics,
                  const OptionalObject& gradient, Object gq, Object gv) {
  const Tensor tq = read_tensor(q, "q"), tv = read_tensor(v, "v"), ids = read_tensor(buckets, "buckets");
  const LshOptions options = settings.read(lengths, causal, dropout, seed);
  const AttentionResult result = read_result(out, statistics);
  const Tensor g = read_tensor(gradient, "gradient");
  const Gradients gradients{read_new_tensor(gq, "gq"), read_new_tensor(gv, "gv")};
  const ComputeScope compute(threads, tq);
  lsh_attention_backward_into(tq, tv, ids, options, result, g, gradients);
}

struct GatedArguments {
  OptionalObject log_decay, erase, beta, initial_state, lengths;
  bool reverse = false;

  GatedLinearAttentionOptions read() const {
    return {.log_decay = read_tensor(log_decay, "log_decay"),
            .erase = read_tensor(erase, "erase"),
            .beta = read_tensor(beta, "beta"),
            .initial_state = read_tensor(initial_state, "initial_state"),
            .lengths = read_tensor(lengths, "lengths"),
            .reverse = reverse};
  }
};

void gated_forward(int threads, Object q, Object k, Object v, const OptionalObject& log_decay,
                   const OptionalObject& erase, const OptionalObject& beta,
                   const OptionalObject& initial_state, const OptionalObject& lengths, bool reverse,
                   Object out, Object final_state, const OptionalObject& written) {
  const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v");
  const GatedLinearAttentionOptions options =
      GatedArguments{log_decay, erase, beta, initial_state, lengths, reverse}.read();
  check_dtypes(
      tq, {{"k", tk}, {"v", tv}, {"erase", options.erase}},
      {{"log_decay", options.log_decay}, {"beta", options.beta}, {"initial_state", options.initial_state}});
  const GatedAttentionResult result{read_new_tensor(out, "out"), read_new_tensor(final_state, "final_state"),
                                    read_tensor(written, "written")};
  const ComputeScope compute(threads, tq);
  gated_linear_attention_forward_into(tq, tk, tv, options, result);
}

void gated_backward(int threads, Object q, Object k, Object v, const OptionalObject& log_decay,
                    const OptionalObject& erase, const OptionalObject& beta,
                    const OptionalObject& initial_state, const OptionalObject& lengths, bool reverse,
                    const OptionalObject& written, const OptionalObject& gradient,
                    const OptionalObject& state_gradient, nb::list targets) {
  const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v");
  const GatedLinearAttentionOptions options =
      GatedArguments{log_decay, erase, beta, initial_state, lengths, reverse}.read();
  const Tensor stored = read_tensor(written, "written"), g = read_tensor(gradient, "gradient"),
               gstate = read_tensor(state_gradient, "state_gradient");
  Gradients gradients;
  for (const Object target : targets) gradients.push_back(read_new_tensor(target, "gradient"));
  const ComputeScope compute(threads, tq);
  gated_linear_attention_backward_into(tq, tk, tv, options, stored, g, gstate, gradients);
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("register_torch", &register_torch);
  bind_passes(m, "softmax_forward", "softmax_backward", read_softmax_options, softmax_attention_forward_into,
              softmax_attention_backward_into);
  bind_passes(m, "linear_forward", "linear_backward", read_linear_options, linear_attention_forward_into,
              linear_attention_backward_into);
  nb::class_<LshSettings>(m, "LshSettings")
      .def(nb::init<const std::string&, int64_t, int64_t, int64_t>())
      .def_prop_ro("has_mean", &LshSettings::has_mean)
      .def_prop_ro("rounds", [](const LshSettings& s) { return s.options.rounds; })
      .def_prop_ro("chunk_length", [](const LshSettings& s) { return s.options.chunk_length; })
      .def_prop_ro("buckets", [](const LshSettings& s) { return s.options.buckets; });
  add_function(m, "lsh_forward", lsh_forward);
  add_function(m, "lsh_backward", lsh_backward);
  add_function(m, "gated_forward", gated_forward);
  add_function(m, "gated_backward", gated_backward);
}

}  // namespace tapeformer::python
