#include "ops/kernels/linear_attention.h"

#include "core/base/instances.h"
#include "ops/cpu/amx_scan.h"
#include "ops/cpu/feature_map.h"
#include "ops/cpu/head_groups.h"
#include "ops/cpu/packed_operand.h"

namespace tapeformer::cpu {
namespace {

// VectorScan::run() and AmxScan::run() compute the scan of outer_product_scan.h. VectorScan uses vector
// instructions, and AmxScan uses AMX (amx_scan.h). kRoundsOperands is true if run() rounds its operands to
// bfloat16. A ProcessorState object must exist in the thread that calls run().
struct VectorScan {
  static constexpr bool kRoundsOperands = false;
  struct ProcessorState {};
  template <ScanMode kMode, int kStep, class T>
  static void run(T* state, int64_t rows, int64_t columns, const ScanOperands<T>& o, int64_t count) {
    scan_outer_products<kMode, kStep>(state, rows, columns, o, count);
  }
};

struct AmxScan {
  [[maybe_unused]] static constexpr bool kRoundsOperands = true;
  using ProcessorState = amx::TileRegisters;
  template <ScanMode kMode, int kStep>
  static void run(float* state, int64_t rows, int64_t columns, const ScanOperands<float>& o, int64_t count) {
    amx::scan_outer_products<kMode, kStep>(state, rows, columns, o, count);
  }
};

// Linear attention for several heads of a sequence.
//
// Symbols, with the shape for one head:
//   phi: the feature map
//   g (length, value_dim): gradient of out
//   z (dim,): sum of phi(k) over the keys
//   d (length,): phi(q) . z + eps, the denominator of out, or 1 if `normalized` is false
//   n (length, value_dim): the numerator of out
//   dn (length, value_dim): g / d, the gradient of n
//   dd (length,): -(g . out) / d, the gradient of d, or 0 if `normalized` is false
//
// Each state is a sum over tokens. The states, and the results that are computed from each state:
//   key_value (dim, value_dim): sum of phi(k) v^T for out, or sum of phi(q) dn^T for the gradient of v
//   value_key (value_dim, dim): sum of v phi(k)^T for the gradient of q
//   dn_query (value_dim, dim): sum of dn phi(q)^T for the gradient of k
//   key_sum (dim,): z, for out and the gradient of q
//   query_sum (dim,): sum of dd phi(q) for the gradient of k
//
// S is the type of the tensors. The states have the compute type T. Scan is VectorScan or AmxScan.
//
// If a vector c is subtracted from all values v, and dn . c is added to dd, the gradients of q and k stay the
// same. If v has a large mean and the scan rounds its operands, the subtraction of the mean reduces the
// errors of these gradients. backward() subtracts center_, an estimate of the mean of v, if the scan rounds
// its operands, `normalized` is true and the gradient of q is computed.
template <class S, class Scan>
class HeadGroup {
  using T = Compute<S>;
  static constexpr bool kRounds = !std::is_same_v<S, T>;  // whether results are rounded to S

 public:
  HeadGroup(const LinearAttentionShape& shape, int64_t group, AttentionRows<const S> q,
            AttentionRows<const S> k, AttentionRows<const S> v)
      : shape_(shape), q_(q), k_(k), v_(v), group_(group) {}

  void take_memory(Arena& arena) {
    const auto take = [&](int64_t elements) {
      const int64_t stride = (elements + kPanelWidth<T> - 1) / kPanelWidth<T> * kPanelWidth<T>;
      return PerHead<T>{arena.allocate<T>(group_ * stride), stride};
    };
    for (PerHead<T>* panel : {&queries_, &keys_, &features_gradient_})
      *panel = take(compute_panel_size<T>(shape_.dim));
    for (PerHead<T>* panel : {&values_, &dn_, &result_})
      *panel = take(compute_panel_size<T>(shape_.value_dim));
    for (PerHead<T>* row : {&inverse_, &ones_}) *row = take(kChunkTokens);
    dd_ = take(shape_.query_length);
    partial_dots_ = take(kChunkTokens * kLanes<T>);
    if (Scan::kRoundsOperands) center_ = take(round_up_to_vector<T>(shape_.value_dim));
    states_ = take(0);
    for (PerHead<T>* sum : {&key_sum_, &query_sum_}) *sum = take(round_up_to_vector<T>(shape_.dim));
    for (PerHead<T>* state : {&value_key_, &dn_query_})
      *state = take(shape_.value_dim * round_up_to_vector<T>(shape_.dim));
    key_value_ = take(shape_.dim * round_up_to_vector<T>(shape_.value_dim));
    state_elements_ = take(0).data - states_.data;
  }

  // Selects sequence `batch` and at most group_ heads, beginning with `head`. Sets the states to 0.
  void select(int64_t batch, int64_t head) {
    batch_ = batch;
    head_ = head;
    heads_ = std::min(group_, shape_.heads - head);
    valid_keys_ = get_valid_length(shape_.key_lengths, batch, shape_.key_length);
    std::fill_n(ones_.data, group_ * ones_.stride, T{1});
    if (Scan::kRoundsOperands) std::fill_n(center_.data, group_ * center_.stride, T{0});
    std::fill_n(states_.data, state_elements_, T{0});
  }

  // Computes the rows of `out` for the selected heads. If `inverse_denominators` (batch, heads, query_length)
  // is not null, also stores the inverse of the denominator d of each row.
  void forward(AttentionRows<S> out, T* inverse_denominators) {
    if (!shape_.causal)
      for_chunks(valid_keys_, [&](Chunk c) {
        load_keys_and_values(c);
        for (int64_t h = 0; h < heads_; ++h) attend<ScanMode::update>(c, h);
      });
    for_chunks(shape_.query_length, [&](Chunk c) {
      if (shape_.causal) load_keys_and_values(c);
      apply_feature_map(shape_.feature_map, rows(q_, c, shape_.dim), c.count, queries_.data);
      for (int64_t h = 0; h < heads_; ++h) {
        if (shape_.causal)
          attend<ScanMode::update_then_read>(c, h);
        else
          attend<ScanMode::read>(c, h);
        if (inverse_denominators)
          std::copy_n(
              inverse_[h], c.count,
              inverse_denominators + (batch_ * shape_.heads + head_ + h) * shape_.query_length + c.begin);
      }
      for_each_vector(
          rows(out, c, shape_.value_dim), c.count,
          [ inverse = inverse_, result = result_ ](S * row, int64_t head, int64_t t, int64_t at, int64_t left)
              __attribute__((always_inline)) {
                store_first<S>(row, inverse[head][t] * load(result[head] + at), left);
              });
    });
  }

  void backward(AttentionRows<const S> out, const T* inverse_denominators, AttentionRows<const S> g,
                AttentionRows<S> gq, AttentionRows<S> gk, AttentionRows<S> gv) {
    // True if set_exact_dd() computes dd.
    const bool has_exact_dd = kRounds && shape_.normalized && gq.data;
    auto load_queries_and_gradients = [&](Chunk c, bool sets_dd) {
      apply_feature_map(shape_.feature_map, rows(q_, c, shape_.dim), c.count, queries_.data);
      load_gradients(c, rows(out, c, shape_.value_dim), inverse_denominators, rows(g, c, shape_.value_dim),
                     sets_dd);
    };
    const bool keys_or_values = gk.data || gv.data;
    if (Scan::kRoundsOperands && has_exact_dd) set_center();
    if (shape_.causal) {
      if (gq.data)
        for_chunks(shape_.query_length, [&](Chunk c) {
          load_keys_and_values(c);
          load_queries_and_gradients(c, !has_exact_dd);
          query_gradient<ScanMode::update_then_read>(c, gq);
        });
      if (keys_or_values)
        for_chunks_backwards(shape_.key_length, [&](Chunk c) {
          load_keys_and_values(c);
          load_queries_and_gradients(c, !gq.data);
          key_gradient<ScanMode::update_then_read>(c, gk);
          value_gradient<ScanMode::update_then_read>(c, gv);
        });
      return;
    }
    if (gq.data)
      for_chunks(valid_keys_, [&](Chunk c) {
        load_keys_and_values(c);
        query_gradient<ScanMode::update>(c, gq);
      });
    for_chunks(shape_.query_length, [&](Chunk c) {
      load_queries_and_gradients(c, !has_exact_dd);
      query_gradient<ScanMode::read>(c, gq);
      key_gradient<ScanMode::update>(c, gk);
      value_gradient<ScanMode::update>(c, gv);
    });
    if (keys_or_values)
      for_chunks(shape_.key_length, [&](Chunk c) {
        load_keys_and_values(c);
        key_gradient<ScanMode::read>(c, gk);
        value_gradient<ScanMode::read>(c, gv);
      });
  }

 private:
  template <class U>
  TokenRows<U> rows(AttentionRows<U> tensor, Chunk c, int64_t dim) const {
    return {tensor.row(batch_, c.begin, head_), tensor.length_stride, tensor.head_stride, heads_, dim};
  }

  int64_t valid(Chunk c) const { return std::clamp<int64_t>(valid_keys_ - c.begin, 0, c.count); }

  void load_keys_and_values(Chunk c) {
    const int64_t count = valid(c);
    if (count < c.count) {
      std::fill_n(keys_.data, heads_ * keys_.stride, T{0});
      std::fill_n(values_.data, heads_ * values_.stride, T{0});
    }
    apply_feature_map(shape_.feature_map, rows(k_, c, shape_.dim), count, keys_.data);
    for_each_vector(
        rows(v_, c, shape_.value_dim), count,
        [ values = values_, center = center_ ](const S* row, int64_t head, int64_t, int64_t at, int64_t left)
            __attribute__((always_inline)) {
              Vector<T> v = load_first(row, left);
              if (Scan::kRoundsOperands) v -= load(center[head] + get_panel_element<T>(at));
              store(values[head] + at, v);
            });
  }

  // Sets center_ to the mean of v over the valid keys of the first chunk. Requires that center_ is 0.
  void set_center() {
    const Chunk c{0, std::min(kChunkTokens, valid_keys_)};
    const T factor = 1 / static_cast<T>(std::max<int64_t>(c.count, 1));
    for_each_vector(
        rows(v_, c, shape_.value_dim), c.count,
        [ center = center_, factor ](const S* row, int64_t head, int64_t, int64_t at, int64_t left)
            __attribute__((always_inline)) {
              T* const sum = center[head] + get_panel_element<T>(at);
              store(sum, load(sum) + factor * load_first(row, left));
            });
  }

  // Computes dn_, the gradient of the numerators of `out`, for a chunk. If `sets_dd` is true, also computes
  // dd_, the gradient of the denominators of `out`.
  void load_gradients(Chunk c, TokenRows<const S> out, const T* inverse_denominators, TokenRows<const S> g,
                      bool sets_dd) {
    const PerHead<const T> inverse{
        inverse_denominators + (batch_ * shape_.heads + head_) * shape_.query_length + c.begin,
        shape_.query_length};
    for_each_vector(
        g, c.count,
        [ inverse, dn = dn_ ](const S* row, int64_t head, int64_t t, int64_t at, int64_t left) __attribute__((
            always_inline)) { store(dn[head] + at, inverse[head][t] * load_first(row, left)); });
    if constexpr (kRounds)
      for (int64_t h = 0; h < heads_; ++h) std::copy_n(inverse[h], c.count, inverse_[h]);
    if (!sets_dd) return;
    for (int64_t t = 0; t < c.count; ++t)
      for (int64_t h = 0; h < heads_; ++h)
        dd_[h][c.begin + t] =
            shape_.normalized ? -dot(g.row(t, h), out.row(t, h), g.dim) * inverse[h][t] : T{0};
  }

  // Adds a chunk to the states, or computes the outputs of the chunk from the states, or both, as selected by
  // kMode. Writes the numerators of the outputs to result_, and the inverse denominators to inverse_.
  template <ScanMode kMode>
  void attend(Chunk c, int64_t h) {
    constexpr bool kUpdate = kMode != ScanMode::read, kRead = kMode != ScanMode::update;
    Scan::template run<kMode, 1>(key_value_[h], shape_.dim, shape_.value_dim,
                                 {keys_[h], values_[h], queries_[h], result_[h]}, c.count);
    T* const dots = partial_dots_[h];
    if (kRead) std::fill_n(dots, c.count * kLanes<T>, T{0});
    for (int64_t i = 0; i < shape_.dim; i += kLanes<T>) {
      Vector<T> z = load(key_sum_[h] + i);
      for (int64_t t = 0; t < c.count; ++t) {
        const int64_t at = compute_panel_index<T>(t, i);
        if constexpr (kUpdate) z += load(keys_[h] + at);
        if constexpr (kRead)
          store(dots + t * kLanes<T>, load(dots + t * kLanes<T>) + load(queries_[h] + at) * z);
      }
      store(key_sum_[h] + i, z);
    }
    if constexpr (kRead)
      for (int64_t t = 0; t < c.count; ++t)
        inverse_[h][t] =
            shape_.normalized ? 1 / (sum(load(dots + t * kLanes<T>)) + static_cast<T>(shape_.eps)) : T{1};
  }

  // Computes dd + dn . c for a chunk, where c is center_. If c is 0, the result is dd. The function does not
  // read the stored outputs, because they are rounded. If the values v are nearly equal, the gradient of q is
  // a small difference of large numbers, and the rounding error would dominate the gradient.
  //
  // features_gradient_ contains, for each query, the sum of (dn . (v - c)) phi(k) over the keys. The dot
  // product of this sum and phi(q) is dn . (n - (d - eps) c). dd is -(dn . n) / d.
  void set_exact_dd(Chunk c, int64_t h) {
    for (int64_t t = 0; t < c.count; ++t) {
      Vector<T> products{}, common{};
      for (int64_t i = 0; i < shape_.dim; i += kLanes<T>) {
        const int64_t at = compute_panel_index<T>(t, i);
        products += load(queries_[h] + at) * load(features_gradient_[h] + at);
      }
      for (int64_t i = 0; Scan::kRoundsOperands && i < shape_.value_dim; i += kLanes<T>)
        common += load(dn_[h] + compute_panel_index<T>(t, i)) * load(center_[h] + i);
      dd_[h][c.begin + t] = inverse_[h][t] * (static_cast<T>(shape_.eps) * sum(common) - sum(products));
    }
  }

  // query_gradient(), key_gradient() and value_gradient() each compute one gradient of a chunk. kMode selects
  // whether a function adds the chunk to the states, computes the gradient from the states, or both.
  template <ScanMode kMode>
  void query_gradient(Chunk c, AttentionRows<S> gq) {
    if (!gq.data) return;
    for (int64_t h = 0; h < heads_; ++h) {
      T* const result = features_gradient_[h];
      Scan::template run<kMode, 1>(value_key_[h], shape_.value_dim, shape_.dim,
                                   {values_[h], keys_[h], dn_[h], result}, c.count);
      if constexpr (kRounds && kMode != ScanMode::update)
        if (shape_.normalized) set_exact_dd(c, h);
      scan_row<kMode>(key_sum_[h], shape_.dim, {ones_[h], keys_[h], dd_[h] + c.begin, result}, c.count);
    }
    if constexpr (kMode != ScanMode::update)
      compute_feature_gradients(shape_.feature_map, queries_.data, features_gradient_.data, c.count,
                                rows(gq, c, shape_.dim));
  }

  template <ScanMode kMode>
  void key_gradient(Chunk c, AttentionRows<S> gk) {
    if (!gk.data) return;
    for (int64_t h = 0; h < heads_; ++h) {
      T* const result = features_gradient_[h];
      Scan::template run<kMode, -1>(dn_query_[h], shape_.value_dim, shape_.dim,
                                    {dn_[h], queries_[h], values_[h], result}, c.count);
      scan_row<kMode, -1>(query_sum_[h], shape_.dim, {dd_[h] + c.begin, queries_[h], ones_[h], result},
                          c.count);
    }
    if constexpr (kMode == ScanMode::update) return;
    const TokenRows<S> target = rows(gk, c, shape_.dim);
    const int64_t count = valid(c);
    compute_feature_gradients(shape_.feature_map, keys_.data, features_gradient_.data, count, target);
    for (int64_t t = count; t < c.count; ++t)
      for (int64_t h = 0; h < heads_; ++h) std::fill_n(target.row(t, h), shape_.dim, S{});
  }

  template <ScanMode kMode>
  void value_gradient(Chunk c, AttentionRows<S> gv) {
    if (!gv.data) return;
    for (int64_t h = 0; h < heads_; ++h) {
      Scan::template run<kMode, -1>(key_value_[h], shape_.dim, shape_.value_dim,
                                    {queries_[h], dn_[h], keys_[h], result_[h]}, c.count);
    }
    if constexpr (kMode != ScanMode::update) store_panels(result_, c.count, rows(gv, c, shape_.value_dim));
  }

  const LinearAttentionShape& shape_;
  const AttentionRows<const S> q_, k_, v_;
  const int64_t group_;  // number of heads that share the working memory
  int64_t batch_ = 0, head_ = 0, heads_ = 0, valid_keys_ = 0;
  PerHead<T> queries_, keys_, features_gradient_;  // panels of rows of `dim` elements
  PerHead<T> values_, dn_, result_;  // panels of rows of `value_dim` elements; v - center_ in values_
  PerHead<T> center_;                // (value_dim,)
  PerHead<T> dd_;                    // one number per token of the sequence
  PerHead<T> inverse_, ones_;        // one number per token of the chunk
  PerHead<T> partial_dots_;          // one vector per token of the chunk
  PerHead<T> states_;                // start of the memory of the states below
  PerHead<T> key_sum_, query_sum_;   // (dim,)
  PerHead<T> value_key_, dn_query_, key_value_;  // (value_dim, dim), (value_dim, dim), (dim, value_dim)
  int64_t state_elements_ = 0;
};

// Calls f(group) for all groups of heads of all sequences, in parallel. `group` is a HeadGroup<S, Scan>&.
// Uses AMX for BFloat16 tensors if amx::kHasScan and uses_amx() are true.
template <class S, class F>
void for_groups(const LinearAttentionShape& s, AttentionRows<const S> q, AttentionRows<const S> k,
                AttentionRows<const S> v, const F& f) {
  const auto run = [&]<class Scan>() {
    for_head_groups<typename Scan::ProcessorState>(
        s.batch, s.heads, (s.query_length + s.key_length) * s.dim * s.value_dim,
        [&](int64_t heads) { return HeadGroup<S, Scan>(s, heads, q, k, v); }, f);
  };
  if constexpr (std::is_same_v<S, BFloat16> && amx::kHasScan)
    if (uses_amx()) return run.template operator()<AmxScan>();
  run.template operator()<VectorScan>();
}

}  // namespace

template <class T>
void linear_attention_forward(Backend, const LinearAttentionShape& s, AttentionRows<const T> q,
                              AttentionRows<const T> k, AttentionRows<const T> v, T* out,
                              Compute<T>* inverse_denominators) {
  const AttentionRows<T> target = make_contiguous_rows(out, s.query_length, s.heads, s.value_dim);
  for_groups(s, q, k, v, [&](auto& group) { group.forward(target, inverse_denominators); });
}

template <class T>
void linear_attention_backward(Backend, const LinearAttentionShape& s, AttentionRows<const T> q,
                               AttentionRows<const T> k, AttentionRows<const T> v, const T* out,
                               const Compute<T>* inverse_denominators, AttentionRows<const T> g,
                               AttentionGradients<T> gradients) {
  const AttentionRows<const T> result = make_contiguous_rows(out, s.query_length, s.heads, s.value_dim);
  for_groups(s, q, k, v, [&](auto& group) {
    group.backward(result, inverse_denominators, g, gradients.gq, gradients.gk, gradients.gv);
  });
}

template <class T>
struct LinearAttentionKernels {
  inline static const FunctionInstances all{&linear_attention_forward<T>, &linear_attention_backward<T>};
};
template struct LinearAttentionKernels<float>;
template struct LinearAttentionKernels<double>;
template struct LinearAttentionKernels<BFloat16>;

}  // namespace tapeformer::cpu
