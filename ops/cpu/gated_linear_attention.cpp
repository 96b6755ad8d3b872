#include "ops/kernels/gated_linear_attention.h"

#include <numeric>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "ops/cpu/delta_scan.h"
#include "ops/cpu/feature_map.h"
#include "ops/cpu/head_groups.h"

namespace tapeformer::cpu {
namespace {

// Gated linear attention for several heads of a sequence. The symbols are those of
// ops/kernels/gated_linear_attention.h; p is β e, dx is the gradient of x, and E the gradient of S after a
// token.
//
// Tokens are counted in the order in which they are processed. Loads and stores map this order to positions.
//
// forward() scans the tokens once. backward() needs two scans, because u, which the forward pass has stored,
// makes the recurrence a sum of outer products, S = d ∘ S + k uᵀ with d = exp(g):
// 1. from the last token to the first, E and Eᵀ:  E += q doutᵀ,  du = Eᵀk,  dk = E u,  E -= p duᵀ,  E = d ∘ E
// 2. from the first to the last, Sᵀ:              S = d ∘ S,  dp = -S du,  S += k uᵀ,  dq = S dout
// The gradient of the log decay of token t is the row sum of (S_{t-1} d) ∘ E. With z = q ∘ dq + p ∘ dp - k ∘
// dk it is also the sum of z over the tokens from t to the end of the chunk, plus the row sum of S ∘ E at the
// end of the chunk. The first scan keeps Eᵀ at the end of each chunk for the second.
//
// With β, scan 1 stores du in the gradient of v, and scan 2 replaces it by β du.
//
// The order of scan 1 is E = d' ∘ E, E += …, where d' is the decay of the token that was processed before.
// Each chunk begins with d' = 1 and ends with E = d ∘ E.
template <class S>
class GatedHeadGroup {
  using T = Compute<S>;
  using Inputs = GatedLinearAttentionInputs<S>;
  using Gradients = GatedLinearAttentionGradients<S>;

 public:
  GatedHeadGroup(const GatedLinearAttentionShape& shape, int64_t group, const Inputs& inputs, bool backward)
      : shape_(shape), in_(inputs), group_(group), backward_(backward) {}

  void take_memory(Arena& arena) {
    const auto take = [&](int64_t elements) {
      const int64_t stride = (elements + kPanelWidth<T> - 1) / kPanelWidth<T> * kPanelWidth<T>;
      return PerHead<T>{arena.allocate<T>(group_ * stride), stride};
    };
    for (PerHead<T>* panel : {&q_, &k_, &p_, &decay_, &features_, &erased_})
      *panel = take(compute_panel_size<T>(shape_.dim));
    for (PerHead<T>* row : {&beta_, &dots_}) *row = take(kChunkTokens);
    for (PerHead<T>* panel : {&v_, &u_, &out_}) *panel = take(compute_panel_size<T>(shape_.value_dim));
    state_ = take(shape_.dim * round_up_to_vector<T>(shape_.value_dim));
    const int64_t transposed = shape_.value_dim * round_up_to_vector<T>(shape_.dim);
    transposed_ = take(backward_ ? transposed : 0);
    const int64_t chunks = (shape_.length + kChunkTokens - 1) / kChunkTokens;
    chunk_gradients_ = take(backward_ && in_.log_decay.data ? chunks * transposed : 0);
  }

  // Selects sequence `batch` and at most group_ heads, beginning with `head`.
  void select(int64_t batch, int64_t head) {
    batch_ = batch;
    head_ = head;
    heads_ = std::min(group_, shape_.heads - head);
    valid_ = get_valid_length(shape_.lengths, batch, shape_.length);
  }

  void forward(AttentionRows<S> out, AttentionRows<S> written, T* final_state) {
    load_state(in_.initial_state);
    for_chunks(valid_, [&](Chunk c) {
      const Order order{c.begin, 1};
      load_panels(in_.q, order, c, shape_.dim, q_);
      load_panels(in_.k, order, c, shape_.dim, k_);
      load_beta(order, c);
      load_scaled_panels(in_.v, order, c, shape_.value_dim, v_);
      load_decay(order, c, 0);
      if (in_.erase.data) {
        load_scaled_panels(in_.erase, order, c, shape_.dim, p_);
        multiply_by_decay(p_, c);
      }
      for (int64_t h = 0; h < heads_; ++h) scan_forward(c, h);
      store_panels(out_, order, c, shape_.value_dim, out);
      if (written.data) store_panels(u_, order, c, shape_.value_dim, written);
    });
    clear_padding(out, shape_.value_dim);
    if (written.data) clear_padding(written, shape_.value_dim);
    for (int64_t h = 0; h < heads_; ++h) store_state(h, final_state);
  }

  void backward(AttentionRows<const S> u, AttentionRows<const S> g, const T* gfinal_state,
                const Gradients& gradients) {
    load_state(gfinal_state);
    for (int64_t h = 0; h < heads_; ++h) transpose_state(h);
    for_chunks_backwards(valid_, [&](Chunk c) { scan_state_gradient(c, u, g, gradients); });
    if (gradients.ginitial_state)
      for (int64_t h = 0; h < heads_; ++h) store_state(h, gradients.ginitial_state);
    load_state(in_.initial_state);
    for (int64_t h = 0; h < heads_; ++h) transpose_state(h);
    if (gradients.gq.data || gradients.gerase.data || gradients.glog_decay.data || in_.beta.data)
      for_chunks(valid_, [&](Chunk c) { scan_state(c, u, g, gradients); });
    for (const auto& [rows, dim] : {std::pair(gradients.gq, shape_.dim),
                                    {gradients.gk, shape_.dim},
                                    {gradients.gv, shape_.value_dim},
                                    {gradients.gerase, shape_.dim}})
      if (rows.data) clear_padding(rows, dim);
    if (gradients.glog_decay.data) clear_padding(gradients.glog_decay, shape_.decay_dim);
    if (gradients.gbeta.data) clear_padding(gradients.gbeta, 1);
  }

 private:
  // The tokens first, first + step, first + 2 step, …
  struct Order {
    int64_t first, step;
  };
  static Order ascending(Chunk c) { return {c.begin, 1}; }
  static Order descending(Chunk c) { return {c.begin + c.count - 1, -1}; }

  template <class U>
  TokenRows<U> rows(AttentionRows<U> tensor, Order order, int64_t dim) const {
    const int64_t position = shape_.reverse ? valid_ - 1 - order.first : order.first;
    const int64_t direction = shape_.reverse ? -order.step : order.step;
    return {tensor.row(batch_, position, head_), direction * tensor.length_stride, tensor.head_stride, heads_,
            dim};
  }
  int64_t stride() const { return round_up_to_vector<T>(shape_.value_dim); }
  int64_t transposed_stride() const { return round_up_to_vector<T>(shape_.dim); }

  template <class U>
  void load_panels(AttentionRows<const U> tensor, Order order, Chunk c, int64_t dim, PerHead<T> panels) {
    cpu::load_panels(rows(tensor, order, dim), c.count, panels);
  }
  // Like load_panels(), and multiplies each token by its β, which load_beta() has loaded.
  void load_scaled_panels(AttentionRows<const S> tensor, Order order, Chunk c, int64_t dim,
                          PerHead<T> panels) {
    if (!in_.beta.data) return load_panels(tensor, order, c, dim, panels);
    for_each_vector(
        rows(tensor, order, dim), c.count,
        [ panels, beta = beta_ ](const S* row, int64_t head, int64_t t, int64_t at, int64_t left)
            __attribute__((always_inline)) {
              store(panels[head] + at, beta[head][t] * load_first(row, left));
            });
  }
  void load_beta(Order order, Chunk c) {
    if (!in_.beta.data) return;
    const TokenRows<const T> source = rows(in_.beta, order, 1);
    for (int64_t t = 0; t < c.count; ++t)
      for (int64_t h = 0; h < heads_; ++h) beta_[h][t] = *source.row(t, h);
  }
  template <class U>
  void store_panels(PerHead<T> panels, Order order, Chunk c, int64_t dim, AttentionRows<U> tensor) {
    cpu::store_panels(panels, c.count, rows(tensor, order, dim));
  }
  template <class U>
  void clear_padding(AttentionRows<U> tensor, int64_t dim) {
    for (int64_t t = valid_; t < shape_.length; ++t)
      for (int64_t h = 0; h < heads_; ++h) std::fill_n(tensor.row(batch_, t, head_ + h), dim, U{});
  }

  // Replaces each vector of panels with `dim` elements per token by f(vector, index, head, token).
  template <class F>
  void map_panels(PerHead<T> panels, int64_t dim, Chunk c, F f) {
    for (int64_t h = 0; h < heads_; ++h)
      for (int64_t i = 0; i < dim; i += kLanes<T>)
        for (int64_t t = 0; t < c.count; ++t) {
          const int64_t at = compute_panel_index<T>(t, i);
          store(panels[h] + at, f(load(panels[h] + at), at, h, t));
        }
  }
  void multiply_by_decay(PerHead<T> panels, Chunk c) {
    map_panels(panels, shape_.dim, c,
               [this](Vector<T> x, int64_t at, int64_t h, int64_t) { return x * load(decay_[h] + at); });
  }
  void multiply_by_beta(PerHead<T> panels, int64_t dim, Chunk c) {
    map_panels(panels, dim, c,
               [this](Vector<T> x, int64_t, int64_t h, int64_t t) { return x * beta_[h][t]; });
  }
  void negate(PerHead<T> panels, Chunk c) {
    map_panels(panels, shape_.dim, c, [](Vector<T> x, int64_t, int64_t, int64_t) { return -x; });
  }
  // Loads u, which the forward pass has stored if tokens erase. Otherwise u is β v.
  void load_written(AttentionRows<const S> written, Order order, Chunk c) {
    if (in_.erase.data)
      load_panels(written, order, c, shape_.value_dim, u_);
    else
      load_scaled_panels(in_.v, order, c, shape_.value_dim, u_);
  }

  // Loads the decays d of a chunk. If `shift` is 1, token t receives the decay of token t - 1, and the first
  // token receives 1.
  void load_decay(Order order, Chunk c, int64_t shift) {
    const auto set = [&](int64_t h, int64_t t, auto value) {
      for (int64_t i = 0; i < shape_.dim; i += kLanes<T>)
        store(decay_[h] + compute_panel_index<T>(t, i), value(i));
    };
    const Vector<T> one = Vector<T>{} + T{1};
    const bool decays = in_.log_decay.data != nullptr;
    const TokenRows<const T> g = decays ? rows(in_.log_decay, order, shape_.decay_dim) : TokenRows<const T>{};
    for (int64_t t = 0; t < c.count; ++t)
      for (int64_t h = 0; h < heads_; ++h) {
        if (!decays || t < shift) {
          set(h, t, [&](int64_t) { return one; });
        } else if (shape_.decay_dim == 1 && shape_.dim > 1) {
          const Vector<T> d = one * vmath::exp(g.row(t - shift, h)[0]);
          set(h, t, [&](int64_t) { return d; });
        } else {
          const T* const row = g.row(t - shift, h);
          set(h, t, [&](int64_t i) { return vmath::exp(load_first(row + i, shape_.dim - i)); });
        }
      }
  }

  // Loads a state (batch, heads, dim, value_dim) of the selected heads. A null pointer means 0.
  void load_state(const T* states) {
    std::fill_n(state_.data, group_ * state_.stride, T{0});
    for (int64_t h = 0; h < heads_ && states; ++h)
      for (int64_t r = 0; r < shape_.dim; ++r)
        std::copy_n(state_row(states, h, r), shape_.value_dim, state_[h] + r * stride());
  }
  void store_state(int64_t h, T* states) const {
    for (int64_t r = 0; r < shape_.dim; ++r)
      std::copy_n(state_[h] + r * stride(), shape_.value_dim, state_row(states, h, r));
  }
  template <class U>
  U* state_row(U* states, int64_t h, int64_t row) const {
    return states + ((batch_ * shape_.heads + head_ + h) * shape_.dim + row) * shape_.value_dim;
  }
  void transpose_state(int64_t h) {
    std::fill_n(transposed_[h], shape_.value_dim * transposed_stride(), T{0});
    for (int64_t r = 0; r < shape_.dim; ++r)
      for (int64_t m = 0; m < shape_.value_dim; ++m)
        transposed_[h][m * transposed_stride() + r] = state_[h][r * stride() + m];
  }

  void scan_forward(Chunk c, int64_t h) {
    if (in_.erase.data)
      return scan_delta<true>(state_[h], shape_.dim, shape_.value_dim,
                              {.decay = decay_[h],
                               .probe = p_[h],
                               .update = k_[h],
                               .read = q_[h],
                               .value = v_[h],
                               .u = u_[h],
                               .out = out_[h]},
                              c.count);
    constexpr ScanMode kMode{.decay = ScanDecay::rows, .updates = true, .reads = true};
    scan_outer_products<kMode>(
        state_[h], shape_.dim, shape_.value_dim,
        ScanOperands<T>{.a = k_[h], .b = v_[h], .c = q_[h], .out = out_[h], .decay = decay_[h]}, c.count);
  }

  // Scan 1 of the backward pass for a chunk. v_ holds the gradient of out, and out_ receives du.
  void scan_state_gradient(Chunk c, AttentionRows<const S> u, AttentionRows<const S> g,
                           const Gradients& gradients) {
    const Order order = descending(c);
    const int64_t size = shape_.value_dim * transposed_stride();
    for (int64_t h = 0; h < heads_ && in_.log_decay.data; ++h)
      std::copy_n(transposed_[h], size, chunk_gradients_[h] + c.begin / kChunkTokens * size);
    load_panels(in_.q, order, c, shape_.dim, q_);
    load_panels(in_.k, order, c, shape_.dim, k_);
    load_panels(g, order, c, shape_.value_dim, v_);
    load_beta(order, c);
    load_written(u, order, c);
    load_decay(order, c, 1);
    if (in_.erase.data) {
      load_scaled_panels(in_.erase, order, c, shape_.dim, p_);
      negate(p_, c);
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t t = 0; t < c.count; ++t) dots_[h][t] = dot_of_token(q_[h], k_[h], shape_.dim, t);
      multiply_by_decay(k_, c);
    }
    for (int64_t h = 0; h < heads_; ++h) scan_state_gradient(c, h);
    if (gradients.gv.data) store_panels(out_, order, c, shape_.value_dim, gradients.gv);
    if (gradients.gk.data) store_panels(features_, order, c, shape_.dim, gradients.gk);
    if (gradients.glog_decay.data) {
      load_panels(in_.k, order, c, shape_.dim, k_);
      add_products(order, c, k_, features_, T{-1}, false, gradients.glog_decay);
    }
    decay_states(c);
  }

  void scan_state_gradient(Chunk c, int64_t h) {
    if (in_.erase.data) {
      scan_delta<false>(state_[h], shape_.dim, shape_.value_dim,
                        {.decay = decay_[h],
                         .probe = k_[h],
                         .update = q_[h],
                         .erase = p_[h],
                         .dot = dots_[h],
                         .value = v_[h],
                         .u = out_[h]},
                        c.count);
      constexpr ScanMode kMode{
          .decay = ScanDecay::columns, .updates = true, .reads = true, .updates_last = true};
      scan_outer_products<kMode>(transposed_[h], shape_.value_dim, shape_.dim,
                                 ScanOperands<T>{.a = v_[h],
                                                 .b = q_[h],
                                                 .c = u_[h],
                                                 .out = features_[h],
                                                 .decay = decay_[h],
                                                 .last_a = out_[h],
                                                 .last_b = p_[h]},
                                 c.count);
      return;
    }
    constexpr ScanMode kRows{.decay = ScanDecay::rows, .updates = true, .reads = true},
        kColumns{.decay = ScanDecay::columns, .updates = true, .reads = true};
    scan_outer_products<kRows>(
        state_[h], shape_.dim, shape_.value_dim,
        ScanOperands<T>{.a = q_[h], .b = v_[h], .c = k_[h], .out = out_[h], .decay = decay_[h]}, c.count);
    scan_outer_products<kColumns>(
        transposed_[h], shape_.value_dim, shape_.dim,
        ScanOperands<T>{.a = v_[h], .b = q_[h], .c = u_[h], .out = features_[h], .decay = decay_[h]},
        c.count);
  }

  // Multiplies E and Eᵀ by the decay of the first token of the chunk.
  void decay_states(Chunk c) {
    load_decay(ascending(c), {c.begin, 1}, 0);
    for (int64_t h = 0; h < heads_; ++h) {
      const T* const d = decay_[h];
      for (int64_t r = 0; r < shape_.dim; ++r)
        for (int64_t m = 0; m < stride(); ++m) state_[h][r * stride() + m] *= d[compute_panel_index<T>(0, r)];
      for (int64_t m = 0; m < shape_.value_dim; ++m)
        for (int64_t r = 0; r < shape_.dim; ++r)
          transposed_[h][m * transposed_stride() + r] *= d[compute_panel_index<T>(0, r)];
    }
  }

  // Scan 2 of the backward pass for a chunk. v_ holds the gradient of out, and out_ holds du.
  void scan_state(Chunk c, AttentionRows<const S> u, AttentionRows<const S> g, const Gradients& gradients) {
    const Order order = ascending(c);
    load_panels(in_.k, order, c, shape_.dim, k_);
    load_beta(order, c);
    load_written(u, order, c);
    load_panels(g, order, c, shape_.value_dim, v_);
    load_decay(order, c, 0);
    const bool erases = in_.erase.data != nullptr;
    if (erases || in_.beta.data)
      load_panels(AttentionRows<const S>{gradients.gv.data, gradients.gv.batch_stride,
                                         gradients.gv.length_stride, gradients.gv.head_stride},
                  order, c, shape_.value_dim, out_);
    for (int64_t h = 0; h < heads_; ++h) {
      const ScanOperands<T> operands{.a = u_[h],
                                     .b = k_[h],
                                     .c = v_[h],
                                     .out = features_[h],
                                     .decay = decay_[h],
                                     .first_c = out_[h],
                                     .first_out = erased_[h]};
      constexpr ScanMode kDelta{
          .decay = ScanDecay::columns, .read_first = true, .updates = true, .reads = true},
          kSum{.decay = ScanDecay::columns, .updates = true, .reads = true};
      if (erases)
        scan_outer_products<kDelta>(transposed_[h], shape_.value_dim, shape_.dim, operands, c.count);
      else
        scan_outer_products<kSum>(transposed_[h], shape_.value_dim, shape_.dim, operands, c.count);
    }
    if (erases) negate(erased_, c);
    if (in_.beta.data) finish_beta_gradient(c, gradients);
    if (gradients.gq.data) store_panels(features_, order, c, shape_.dim, gradients.gq);
    if (gradients.gerase.data) store_panels(erased_, order, c, shape_.dim, gradients.gerase);
    if (gradients.glog_decay.data) finish_decay_gradient(c, gradients.glog_decay);
  }

  // Computes the gradient of β, and multiplies the gradients of u and p by β.
  void finish_beta_gradient(Chunk c, const Gradients& gradients) {
    const Order order = ascending(c);
    const bool erases = in_.erase.data != nullptr;
    if (gradients.gbeta.data) {
      load_panels(in_.v, order, c, shape_.value_dim, v_);
      if (erases) load_panels(in_.erase, order, c, shape_.dim, p_);
      const TokenRows<T> target = rows(gradients.gbeta, order, 1);
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t t = 0; t < c.count; ++t)
          *target.row(t, h) = dot_of_token(v_[h], out_[h], shape_.value_dim, t) +
                              (erases ? dot_of_token(p_[h], erased_[h], shape_.dim, t) : T{0});
    }
    multiply_by_beta(out_, shape_.value_dim, c);
    store_panels(out_, order, c, shape_.value_dim, gradients.gv);
    if (erases) multiply_by_beta(erased_, shape_.dim, c);
  }

  // Adds factor * (x ∘ y) of each token to the gradients of the log decays, or overwrites them.
  void add_products(Order order, Chunk c, PerHead<T> x, PerHead<T> y, T factor, bool adds,
                    AttentionRows<T> gradient) {
    const TokenRows<T> target = rows(gradient, order, shape_.decay_dim);
    for (int64_t t = 0; t < c.count; ++t)
      for (int64_t h = 0; h < heads_; ++h) {
        T* const row = target.row(t, h);
        Vector<T> total{};
        for (int64_t i = 0; i < shape_.dim; i += kLanes<T>) {
          const int64_t at = compute_panel_index<T>(t, i), left = shape_.dim - i;
          const Vector<T> product = keep_first<T>(factor * load(x[h] + at) * load(y[h] + at), left);
          if (shape_.decay_dim == 1)
            total += product;
          else
            store_first(row + i, adds ? load_first(row + i, left) + product : product, left);
        }
        if (shape_.decay_dim == 1) row[0] = (adds ? row[0] : T{0}) + sum(total);
      }
  }

  // Turns the terms -k ∘ dk, which scan 1 has stored, into the gradients of the log decays.
  void finish_decay_gradient(Chunk c, AttentionRows<T> gradient) {
    const Order order = ascending(c);
    load_panels(in_.q, order, c, shape_.dim, q_);
    add_products(order, c, q_, features_, T{1}, true, gradient);
    if (in_.erase.data) {
      load_panels(in_.erase, order, c, shape_.dim, p_);
      add_products(order, c, p_, erased_, T{1}, true, gradient);
    }
    const TokenRows<T> target = rows(gradient, order, shape_.decay_dim);
    const int64_t size = shape_.value_dim * transposed_stride();
    for (int64_t h = 0; h < heads_; ++h) {
      const T* const chunk_gradient = chunk_gradients_[h] + c.begin / kChunkTokens * size;
      T* const suffix = q_[h];  // row sums of S ∘ E at the end of the chunk, then sums over later tokens
      std::fill_n(suffix, transposed_stride(), T{0});
      for (int64_t m = 0; m < shape_.value_dim; ++m)
        for (int64_t i = 0; i < shape_.dim; i += kLanes<T>) {
          const int64_t at = m * transposed_stride() + i;
          store(suffix + i, load(suffix + i) + load(transposed_[h] + at) * load(chunk_gradient + at));
        }
      if (shape_.decay_dim == 1) suffix[0] = std::accumulate(suffix, suffix + shape_.dim, T{0});
      for (int64_t t = c.count - 1; t >= 0; --t)
        for (int64_t i = 0; i < shape_.decay_dim; ++i) {
          // After a reset, nothing depends on the decays of earlier tokens.
          const bool is_reset = decay_[h][compute_panel_index<T>(t, i)] == 0;
          suffix[i] = is_reset ? T{0} : suffix[i] + target.row(t, h)[i];
          target.row(t, h)[i] = suffix[i];
        }
    }
  }

  const GatedLinearAttentionShape& shape_;
  const Inputs& in_;
  const int64_t group_;  // number of heads that share the working memory
  const bool backward_;
  int64_t batch_ = 0, head_ = 0, heads_ = 0, valid_ = 0;
  // Panels of rows of `dim` elements. features_ receives dk and then dq, and erased_ receives dp.
  PerHead<T> q_, k_, p_, decay_, features_, erased_;
  PerHead<T> v_, u_, out_;      // panels of rows of `value_dim` elements
  PerHead<T> beta_, dots_;      // one element per token of a chunk
  PerHead<T> state_;            // (dim, value_dim): S or E
  PerHead<T> transposed_;       // (value_dim, dim): Sᵀ or Eᵀ
  PerHead<T> chunk_gradients_;  // (chunks, value_dim, dim): Eᵀ at the end of each chunk
};

// Calls f(group) for all groups of heads of all sequences, in parallel. `group` is a GatedHeadGroup<S>&.
template <class S, class F>
void for_gated_groups(const GatedLinearAttentionShape& s, const GatedLinearAttentionInputs<S>& inputs,
                      bool backward, const F& f) {
  struct NoProcessorState {};
  for_head_groups<NoProcessorState>(
      s.batch, s.heads, 4 * s.length * s.dim * s.value_dim,
      [&](int64_t heads) { return GatedHeadGroup<S>(s, heads, inputs, backward); }, f);
}

}  // namespace

template <class T>
void gated_linear_attention_forward(Backend, const GatedLinearAttentionShape& s,
                                    const GatedLinearAttentionInputs<T>& inputs, T* out, T* written,
                                    Compute<T>* final_state) {
  const auto rows = [&](T* data) {
    return data ? make_contiguous_rows(data, s.length, s.heads, s.value_dim) : AttentionRows<T>{};
  };
  for_gated_groups(s, inputs, false,
                   [&](auto& group) { group.forward(rows(out), rows(written), final_state); });
}

template <class T>
void gated_linear_attention_backward(Backend, const GatedLinearAttentionShape& s,
                                     const GatedLinearAttentionInputs<T>& inputs, const T* written,
                                     AttentionRows<const T> g, const Compute<T>* gfinal_state,
                                     const GatedLinearAttentionGradients<T>& gradients) {
  const AttentionRows<const T> u =
      inputs.erase.data ? make_contiguous_rows(written, s.length, s.heads, s.value_dim) : inputs.v;
  for_gated_groups(s, inputs, true, [&](auto& group) { group.backward(u, g, gfinal_state, gradients); });
}

template <class T>
struct GatedLinearAttentionKernels {
  inline static const FunctionInstances all{&gated_linear_attention_forward<T>,
                                            &gated_linear_attention_backward<T>};
};
template struct GatedLinearAttentionKernels<float>;
template struct GatedLinearAttentionKernels<double>;
template struct GatedLinearAttentionKernels<BFloat16>;

}  // namespace tapeformer::cpu
