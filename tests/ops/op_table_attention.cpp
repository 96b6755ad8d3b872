#include <limits>

#include "ops/elementwise.h"
#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/random_features.h"
#include "ops/relative_attention.h"
#include "ops/rotary.h"
#include "ops/softmax_attention.h"
#include "ops/sum.h"
#include "ops/view.h"
#include "tests/ops/attention_inputs.h"
#include "tests/ops/gated_inputs.h"
#include "tests/ops/pattern_cases.h"
#include "tests/support/op_table.h"

namespace tapeformer::test {
namespace {

using Inputs = std::vector<Tensor>;

// Returns whether the sizes are too large for the gradient check, which evaluates the op for each input
// element.
bool is_large(const AttentionSizes& s) {
  return s.batch * (s.query_length + s.key_length) * s.heads * (s.dim + s.value_dim) > 1000;
}

// Sizes near the tile sizes of the CUDA kernels. A tile has 64 tokens and 32 or 64 features, and sums are
// computed in slices of 32 terms.
const AttentionSizes kCausalTableSizes[] = {
    {2, 5, 5, 2, 3, 2},    {1, 0, 0, 2, 3, 3},     {2, 1, 1, 1, 1, 1},      {1, 97, 97, 1, 2, 1},
    {2, 64, 64, 2, 8, 64}, {1, 65, 65, 3, 64, 32}, {2, 193, 193, 1, 33, 5}, {1, 70, 70, 1, 65, 130}};
const AttentionSizes kFullTableSizes[] = {
    {2, 3, 7, 2, 3, 2},      {1, 0, 5, 1, 2, 3},      {2, 5, 0, 1, 2, 3},     {1, 70, 5, 1, 2, 1},
    {2, 63, 129, 1, 32, 33}, {1, 200, 66, 2, 64, 17}, {1, 66, 67, 1, 129, 70}};

void add_gated_linear_attention(std::vector<OpCase>& table) {
  for (GatedCase c : {GatedCase{{2, 5, 5, 2, 3, 2}, TestDecay::head, true, true, false, true},
                      {{2, 5, 5, 2, 3, 2}, TestDecay::channel, true, true, true, true},
                      {{1, 7, 7, 2, 2, 3}, TestDecay::fixed, false, true},
                      {{1, 6, 6, 1, 3, 3}, TestDecay::none},
                      {{1, 1, 1, 1, 1, 1}, TestDecay::channel, false, false, true},
                      {{2, 70, 70, 3, 33, 34}, TestDecay::head, true, false, false, true},
                      {{1, 130, 130, 2, 64, 32}, TestDecay::channel, true, true},
                      {{1, 100, 100, 1, 20, 65}, TestDecay::channel, false, true, true},
                      {{2, 6, 6, 2, 4, 3}, TestDecay::head, true, false, false, true, true, true},
                      {{1, 5, 5, 2, 3, 3}, TestDecay::none, false, false, false, false, false, true}}) {
    c.strength = 0.5;
    const GatedTestInputs inputs = make_gated_inputs(c);
    table.push_back({"attention, gated linear, " + describe(c),
                     [inputs](const Inputs& tensors) {
                       GatedTestInputs in = inputs.replace(tensors);
                       for (Tensor* x : {&in.options.log_decay, &in.options.beta, &in.options.initial_state})
                         if (x->defined()) *x = cast(*x, get_compute_dtype(x->dtype()));
                       const auto [out, state] = gated_linear_attention(in.q, in.k, in.v, in.options);
                       return concat(
                           {reshape(out, {out.numel()}), reshape(cast(state, out.dtype()), {state.numel()})},
                           0);
                     },
                     inputs.list(), is_large(c.size)});
    for (size_t i = 3; i < table.back().inputs.size(); ++i) table.back().optional_inputs.push_back(i);
  }
}

void add_linear_attention(std::vector<OpCase>& table) {
  auto add = [&](const AttentionSizes& size, bool causal, FeatureMap map = FeatureMap::elu_plus_one) {
    const std::string name =
        concat_text("attention, linear, ", causal ? "causal, " : "", "map ", static_cast<int>(map), ", ");
    table.push_back({name + describe(size),
                     [causal, map](const Inputs& in) {
                       return linear_attention(in[0], in[1], in[2], {.causal = causal, .feature_map = map});
                     },
                     attention_inputs(size).list(), is_large(size)});
  };
  for (const AttentionSizes& size : kCausalTableSizes) add(size, true);
  for (const AttentionSizes& size : kFullTableSizes) add(size, false);
  // A CUDA kernel splits sequences of this length into segments of several chunks.
  add({1, 1050, 1050, 1, 3, 2}, true);
  add({1, 1050, 1050, 1, 3, 2}, false);
  for (const FeatureMap map : {FeatureMap::relu, FeatureMap::squared_relu, FeatureMap::exponential}) {
    add({1, 9, 9, 2, 5, 3}, true, map);
    add({1, 4, 9, 2, 5, 3}, false, map);
  }
  for (const bool causal : {false, true})
    table.push_back({concat_text("attention, linear, without denominators, ", causal ? "causal" : "full"),
                     [causal](const Inputs& in) {
                       return linear_attention(
                           in[0], in[1], in[2],
                           {.causal = causal, .feature_map = FeatureMap::identity, .normalized = false});
                     },
                     attention_inputs({2, 70, 70, 2, 8, 8}).list()});
  for (const bool causal : {false, true})
    for (const int64_t length : {5, 130}) {
      Inputs inputs = attention_inputs({3, length, length, 2, 3, 4}).list();
      inputs.push_back(Tensor::from_vector<int64_t>({length - 2, 0, length / 2}, {3}));
      table.push_back({concat_text("attention, linear, lengths, ", causal ? "causal, " : "", length),
                       [causal](const Inputs& in) {
                         return linear_attention(in[0], in[1], in[2],
                                                 {.causal = causal, .key_lengths = in[3]});
                       },
                       inputs, length > 100});
      table.back().optional_inputs = {3};
    }
  // In this case, heads come before tokens in the memory of q and k, and the features of v are not
  // contiguous.
  table.push_back({"attention, linear, strides",
                   [](const Inputs& in) {
                     return linear_attention(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 1, 3}),
                                             transpose(in[2], -1, -2), {.causal = true});
                   },
                   {normal({2, 3, 7, 4}, 1), normal({2, 3, 7, 4}, 2), normal({2, 7, 5, 3}, 3)}});
}

void add_grouped_heads(std::vector<OpCase>& table) {
  for (const int64_t key_heads : {1, 2})
    for (const int64_t length : {7, 130})
      for (const bool is_local : {false, true}) {
        SoftmaxAttentionOptions options{
            .causal = true, .dropout = 0.2, .dropout_stream = RandomStream(5, "weights")};
        if (is_local) options.pattern.window = {.block_size = 4, .before = 3, .after = 0};
        table.push_back(
            {concat_text("attention, softmax, ", key_heads, " heads of keys, ", length,
                         is_local ? ", local" : ""),
             [options](const Inputs& in) { return softmax_attention(in[0], in[1], in[2], options); },
             {normal({2, length, 6, 3}, 1), normal({2, length, key_heads, 3}, 2),
              normal({2, length, key_heads, 4}, 3)},
             length > 100});
      }
}

// Adds cases of softmax attention with windows. Lengths and windows are near the tile sizes of the kernels.
void add_windows(std::vector<OpCase>& table) {
  const KeyWindow windows[] = {{.block_size = 1, .before = 0, .after = 0},
                               {.block_size = 1, .before = 3, .after = 2},
                               {.block_size = 1, .before = 63, .after = 63},
                               {.block_size = 4, .before = 4, .after = 0},
                               {.block_size = 5, .before = 10, .after = 5},
                               {.block_size = 33, .before = 33, .after = 33},
                               {.block_size = 1, .before = KeyWindow::kUnlimited, .after = 2}};
  const AttentionSizes sizes[] = {{2, 7, 7, 2, 3, 2}, {2, 193, 193, 1, 9, 5}};
  for (const KeyWindow& window : windows)
    for (const AttentionSizes& size : sizes)
      for (const bool causal : {false, true})
        for (const bool has_lengths : {false, true}) {
          if (size.key_length > 100 && causal == has_lengths) continue;
          Inputs inputs = attention_inputs(size).list();
          if (has_lengths)
            inputs.push_back(Tensor::from_vector<int64_t>({size.key_length - 3, size.key_length / 2}, {2}));
          const double dropout = has_lengths ? 0.2 : 0;
          table.push_back({concat_text("attention, softmax, window ", window.before, ", ", window.block_size,
                                       ", ", window.after, causal ? ", causal, " : ", ",
                                       has_lengths ? "lengths, " : "", describe(size)),
                           [=](const Inputs& in) {
                             return softmax_attention(in[0], in[1], in[2],
                                                      {.causal = causal,
                                                       .key_lengths = in.size() > 3 ? in[3] : Tensor{},
                                                       .pattern = {.window = window},
                                                       .dropout = dropout,
                                                       .dropout_stream = RandomStream(5, "weights")});
                           },
                           inputs, is_large(size)});
          if (has_lengths) table.back().optional_inputs = {3};
        }
}

void add_patterns(std::vector<OpCase>& table) {
  for (const AttentionSizes& size : {AttentionSizes{2, 9, 9, 2, 3, 2}, {1, 193, 193, 2, 9, 5}})
    for (const bool causal : {false, true})
      for (const PatternCase& c : pattern_cases(size.key_length, 2, size.key_length > 100 ? 20 : 2)) {
        Inputs inputs = attention_inputs(size).list();
        if (c.key_blocks.defined()) inputs.push_back(c.key_blocks);
        table.push_back(
            {concat_text("attention, softmax, pattern ", c.name, causal ? ", causal, " : ", ",
                         describe(size)),
             [=](const Inputs& in) {
               return softmax_attention(
                   in[0], in[1], in[2],
                   {.causal = causal, .pattern = c.pattern, .key_blocks = in.size() > 3 ? in[3] : Tensor{}});
             },
             inputs, is_large(size)});
        if (c.key_blocks.defined()) table.back().optional_inputs = {3};
      }
}

// Adds cases of softmax attention with a bias, which is computed for each pair or broadcast over the queries.
// The bias masks some of the pairs, and all keys of query 1.
void add_biases(std::vector<OpCase>& table) {
  const auto add_case = [&](const AttentionSizes& size, bool causal, bool is_broadcast) {
    const Shape shape{size.batch, size.heads, size.query_length, size.key_length};
    const Tensor mask = Tensor::zeros({size.query_length, size.key_length}, DType::float64);
    for (int64_t i = 0; i < size.query_length; ++i)
      for (int64_t j = 0; j < size.key_length; ++j)
        if ((i + j) % 3 == 2 || i == 1)
          mask.data<double>()[i * size.key_length + j] = -std::numeric_limits<double>::infinity();
    Inputs inputs = attention_inputs(size).list();
    inputs.push_back(
        normal({size.batch, size.heads, is_broadcast ? 1 : size.query_length, size.key_length}, 7));
    SoftmaxAttentionOptions options{.causal = causal, .scale = is_broadcast ? 0.4 : -0.4};
    if (is_broadcast) {
      options.dropout = 0.2;
      options.dropout_stream = RandomStream(5, "weights");
    } else if (size.query_length == size.key_length) {
      options.pattern.window = {.block_size = 1, .before = 40, .after = 40};
    }
    table.push_back({concat_text("attention, softmax, bias, ", causal ? "causal, " : "",
                                 is_broadcast ? "broadcast, " : "", describe(size)),
                     [=](const Inputs& in) {
                       const Tensor bias =
                           cast(in[3], in[0].defined() ? get_compute_dtype(in[0].dtype()) : DType::float64);
                       SoftmaxAttentionOptions with_bias = options;
                       with_bias.bias =
                           broadcast_to(add(bias, mask.to(bias.dtype()).to(bias.device())), shape);
                       return softmax_attention(in[0], in[1], in[2], with_bias);
                     },
                     inputs, is_large(size)});
  };
  for (const AttentionSizes& size : {AttentionSizes{2, 5, 7, 2, 3, 2},
                                     {2, 5, 5, 1, 2, 3},
                                     {1, 0, 5, 1, 2, 3},
                                     {2, 70, 130, 2, 9, 5},
                                     {1, 193, 193, 2, 33, 8},
                                     {1, 66, 66, 1, 65, 130}})
    for (const bool causal : {false, true})
      for (const bool is_broadcast : {false, true}) add_case(size, causal, is_broadcast);
}

void add_softmax_attention(std::vector<OpCase>& table) {
  auto add = [&](const AttentionSizes& size, bool causal, double dropout = 0) {
    table.push_back(
        {concat_text("attention, softmax, ", causal ? "causal, " : "", "dropout ", dropout, ", ",
                     describe(size)),
         [causal, dropout](const Inputs& in) {
           return softmax_attention(
               in[0], in[1], in[2],
               {.causal = causal, .dropout = dropout, .dropout_stream = RandomStream(5, "weights")});
         },
         attention_inputs(size).list(), is_large(size)});
  };
  for (const AttentionSizes& size : kCausalTableSizes) add(size, true);
  for (const AttentionSizes& size : kFullTableSizes)
    for (const bool causal : {false, true}) add(size, causal);
  for (const bool causal : {false, true}) {
    add({2, 3, 7, 2, 3, 2}, causal, 0.3);
    add({2, 70, 130, 2, 3, 2}, causal, 0.3);
  }
  for (const bool causal : {false, true})
    for (const int64_t length : {5, 130}) {
      Inputs inputs = attention_inputs({3, length, length, 2, 3, 4}).list();
      inputs.push_back(Tensor::from_vector<int64_t>({length - 2, 0, length / 2}, {3}));
      table.push_back({concat_text("attention, softmax, lengths, ", causal ? "causal, " : "", length),
                       [causal](const Inputs& in) {
                         return softmax_attention(in[0], in[1], in[2],
                                                  {.causal = causal, .key_lengths = in[3], .scale = 0.7});
                       },
                       inputs, length > 100});
      table.back().optional_inputs = {3};
    }
  add_grouped_heads(table);
  add_windows(table);
  add_patterns(table);
  add_biases(table);
  table.push_back({"attention, softmax, strides",
                   [](const Inputs& in) {
                     return softmax_attention(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 1, 3}),
                                              transpose(in[2], -1, -2), {.causal = true});
                   },
                   {normal({2, 3, 7, 4}, 1), normal({2, 3, 7, 4}, 2), normal({2, 7, 5, 3}, 3)}});
}

void add_rotary(std::vector<OpCase>& table) {
  for (const int64_t length : {0, 1, 5, 66})
    table.push_back(
        {concat_text("rotary, ", length),
         [](const Inputs& in) { return rotary_embedding(in[0], {.base = 100, .first_position = 3}); },
         {normal({2, length, 2, 6})},
         length > 5});
  for (const int64_t features : {2, 4})
    table.push_back({concat_text("rotary, ", features, " of 7 features"),
                     [features](const Inputs& in) {
                       return rotary_embedding(in[0], {.base = 100, .features = features});
                     },
                     {normal({2, 5, 2, 7})}});
  using enum RotaryScalingKind;
  for (const auto& [name, kind] : {std::pair("linear", linear), {"llama3", llama3}, {"yarn", yarn}})
    table.push_back({concat_text("rotary, scaling ", name),
                     [scaling = RotaryScaling{.kind = kind, .factor = 3, .length = 20}](const Inputs& in) {
                       return rotary_embedding(in[0], {.base = 100, .scaling = scaling});
                     },
                     {normal({2, 5, 2, 12})}});
  table.push_back({"rotary, strides",
                   [](const Inputs& in) {
                     return rotary_embedding(permute(in[0], {0, 2, 1, 3}));
                   },
                   {normal({2, 3, 7, 4})}});
}

void add_relative_shift(std::vector<OpCase>& table) {
  struct Sizes {
    int64_t queries, keys, distances;
  };
  for (const Sizes& s : {Sizes{1, 1, 1}, {5, 5, 5}, {5, 5, 9}, {4, 11, 11}, {4, 11, 13}, {33, 70, 70}})
    table.push_back({concat_text("relative_shift, ", s.queries, ", ", s.keys, ", ", s.distances),
                     [keys = s.keys](const Inputs& in) { return square(relative_shift(in[0], keys)); },
                     {normal({2, 2, s.queries, s.distances})},
                     s.queries > 5});
}

void add_lsh_case(std::vector<OpCase>& table, const char* name, const AttentionSizes& size,
                  LshOptions options, bool with_lengths = false) {
  const Tensor q = normal({size.batch, size.query_length, size.heads, size.dim}, 1);
  const Tensor v = normal({size.batch, size.key_length, size.heads, size.value_dim}, 2);
  Inputs inputs{q, v};
  if (with_lengths) {
    inputs.push_back(
        Tensor::from_vector<int64_t>({size.key_length - 2, 0, size.key_length / 2 + 1}, {size.batch}));
    options.key_lengths = inputs[2];
  }
  inputs.push_back(compute_lsh_buckets(q, options, RandomStream(7, "rotations")));
  options.key_lengths = {};
  table.push_back({concat_text("attention, LSH, ", name, ", ", describe(size)),
                   [options, with_lengths](const Inputs& in) {
                     LshOptions case_options = options;
                     if (with_lengths) case_options.key_lengths = in[2];
                     return lsh_attention(in[0], in[1], in.back(), case_options);
                   },
                   inputs, is_large(size)});
  if (with_lengths) table.back().optional_inputs = {2};
}

void add_lsh_dropout(std::vector<OpCase>& table) {
  const AttentionSizes size{2, 13, 13, 2, 3, 2};
  for (const bool causal : {false, true}) {
    LshOptions options{.rounds = 3, .chunk_length = 4, .buckets = 4, .dropout = 0.3};
    options.dropout_stream = RandomStream(5, "weights");
    options.causal = causal;
    add_lsh_case(table, causal ? "causal, dropout" : "dropout", size, options);
    options.wrap = LshOptions::Wrap::global;
    options.across_buckets = true;
    options.combine = LshOptions::Combine::mean;
    options.duplicates = LshOptions::Duplicates::none;
    add_lsh_case(table, causal ? "causal, mean, dropout" : "mean, dropout", size, options);
  }
}

// Returns the random projection for x with the dtype and device of x, or an undefined tensor if x is
// undefined.
Tensor projection_for(const Tensor& x, int64_t features) {
  if (!x.defined()) return {};
  return make_random_projection(x.size(-1), {.features = features}, RandomStream(7, "projection"))
      .to(x.dtype())
      .to(x.device());
}

void add_lsh_attention(std::vector<OpCase>& table) {
  using Wrap = LshOptions::Wrap;
  using Duplicates = LshOptions::Duplicates;
  using Combine = LshOptions::Combine;
  const auto add = [&](const char* name, const AttentionSizes& size, const LshOptions& options,
                       bool with_lengths = false) { add_lsh_case(table, name, size, options, with_lengths); };
  LshOptions options{.rounds = 3, .chunk_length = 4, .buckets = 4};
  const AttentionSizes small{2, 13, 13, 2, 3, 2};
  add("one chunk", {2, 5, 5, 2, 3, 2}, {.rounds = 2});
  add("no length", {2, 0, 0, 2, 3, 2}, {.rounds = 2});
  add("two rows", {1, 2, 2, 1, 3, 2}, {.rounds = 2, .chunk_length = 1, .buckets = 2});
  for (const bool causal : {false, true}) {
    options = {.rounds = 3, .chunk_length = 4, .buckets = 4};
    options.causal = causal;
    add(causal ? "causal" : "paper", small, options);
    add(causal ? "causal, lengths" : "lengths", {3, 13, 13, 1, 3, 2}, options, true);
    options.wrap = Wrap::round;
    options.scale = LshOptions::Scale::rsqrt_dim;
    add(causal ? "causal, wrap in the round" : "wrap in the round", small, options);
    options.across_buckets = true;
    add(causal ? "causal, wrap in the round across" : "wrap in the round across", small, options);
    options.wrap = Wrap::global;
    add(causal ? "causal, wrap over rounds" : "wrap over rounds", small, options);
    options.duplicates = Duplicates::none;
    add(causal ? "causal, duplicates" : "duplicates", small, options);
    options.combine = Combine::mean;
    add(causal ? "causal, mean" : "mean", small, options);
    add(causal ? "causal, mean, lengths" : "mean, lengths", {3, 13, 13, 1, 3, 2}, options, true);
    options.across_buckets = false;
    add(causal ? "causal, mean in buckets" : "mean in buckets", small, options);
    options = {.rounds = 2, .chunk_length = 40, .buckets = 6};
    options.causal = causal;
    options.wrap = causal ? Wrap::none : Wrap::global;
    options.across_buckets = !causal;
    add(causal ? "causal, many" : "many", {1, 190, 190, 2, 33, 17}, options);
    options.chunk_length = 70;
    add(causal ? "causal, long chunks" : "long chunks", {1, 190, 190, 1, 65, 130}, options);
  }
}

}  // namespace

void add_attention_cases(std::vector<OpCase>& table) {
  add_linear_attention(table);
  add_gated_linear_attention(table);
  add_softmax_attention(table);
  add_rotary(table);
  add_lsh_attention(table);
  add_lsh_dropout(table);
}

void add_float_attention_cases(std::vector<OpCase>& table) {
  add_relative_shift(table);
  for (const int64_t features : {1, 7, 33, 300})
    for (const RandomFeatureMap map : {RandomFeatureMap::softmax_key, RandomFeatureMap::relu})
      table.push_back({concat_text("random features, map ", static_cast<int>(map), ", ", features),
                       [map, features](const Inputs& in) {
                         return random_features(in[0], projection_for(in[0], features), map, 1e-3);
                       },
                       {normal({2, 3, 2, 5})},
                       features > 33});
  // backward() treats the maximum in RandomFeatureMap::softmax_query as a constant, so these features alone
  // do not pass a gradient check. The result of attention does not depend on the maximum, so attention with
  // these features passes the check.
  for (const bool causal : {false, true})
    for (const int64_t length : {0, 5, 130})
      table.push_back({concat_text("attention, random features, ", causal ? "causal, " : "", length),
                       [causal](const Inputs& in) {
                         const Tensor w = projection_for(in[0], 12);
                         return linear_attention(
                             random_features(in[0], w, RandomFeatureMap::softmax_query),
                             random_features(in[1], w, RandomFeatureMap::softmax_key), in[2],
                             {.causal = causal, .feature_map = FeatureMap::relu, .eps = 1e-30});
                       },
                       attention_inputs({2, length, length, 2, 6, 3}).list(), length > 5});
  table.push_back({"random features, strides",
                   [](const Inputs& in) {
                     return random_features(permute(in[0], {0, 2, 1, 3}), projection_for(in[0], 9),
                                            RandomFeatureMap::softmax_key);
                   },
                   {normal({2, 3, 7, 4})}});
}

}  // namespace tapeformer::test
