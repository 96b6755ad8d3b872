#include "ops/kernels/softmax_attention.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/cpu/arena.h"
#include "ops/cpu/attention_products.h"
#include "ops/cpu/key_spans.h"
#include "ops/cpu/packed_operand.h"
#include "ops/cpu/query_attention.h"
#include "ops/kernels/online_softmax.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kQueries = kAttentionQueries;

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

// Softmax attention of one head at a time. S is the type of the tensors, Products is a class of
// attention_products.h, O is the type of the operands of its products, and T is the type of scores and sums.
// O is T or S. Tiles of scores in which no query attends to a key are skipped.
//
// If O is BFloat16, attention weights and gradients of scores are rounded to BFloat16 before they are used as
// operands. If O is BFloat16, the scale is applied to scores and sums, because scaled operands would be
// rounded again. For other types, the packed operands include the scale.
template <class S, class Products>
class SoftmaxAttentionHead {
  using T = Compute<S>;
  using O = typename Products::Operand;
  // Whether operands store two elements that are adjacent along the depth as a pair (tile_product.h).
  static constexpr bool kPairs = std::is_same_v<O, BFloat16>;

 public:
  SoftmaxAttentionHead(const SoftmaxAttentionShape& shape, AttentionRows<const S> q, AttentionRows<const S> k,
                       AttentionRows<const S> v, bool backward)
      : shape_(shape), q_(q), k_(k), v_(v), backward_(backward) {}

  void take_memory(Arena& arena) {
    const auto take = [&]<class U>(U*& target, int64_t elements) { target = arena.allocate<U>(elements); };
    const int64_t keys = round_up_to_tile_columns<T>(shape_.key_length);
    take(query_rows_, kQueries * depth());
    take(key_panels_, keys * depth());
    take(scores_, std::max({kQueries * kScoreStride, padded_dim(), padded_value_dim()}));
    take(multipliers_, kScoreStride);
    for (T** per_row : {&maximum_, &sum_}) take(*per_row, kQueries);
    take_operands(arena);
    if (!backward_) {
      take(value_columns_, keys * padded_value_dim());
      take(result_, kQueries * padded_value_dim());
      return;
    }
    take(value_panels_, keys * value_depth());
    take(key_columns_, keys * padded_dim());
    take(query_columns_, kQueries * padded_dim());
    take(g_rows_, kQueries * value_depth());
    take(g_columns_, kQueries * padded_value_dim());
    take(gq_, kQueries * padded_dim());
    take(gk_, sum_rows() * padded_dim());
    take(gv_, sum_rows() * padded_value_dim());
  }

  void select(int64_t batch, int64_t head) {
    batch_ = batch;
    head_ = head;
    valid_keys_ = get_valid_length(shape_.key_lengths, batch, shape_.key_length);
    attended_ = {shape_.pattern.get_head_pattern(head), shape_.query_length, shape_.key_length, valid_keys_,
                 shape_.causal};
  }

  void forward(AttentionRows<const T> bias, AttentionRows<S> out, T* log_sums) {
    pack_panels(k_row(0), k_.length_stride, valid_keys_, shape_.dim, depth(), key_panels_);
    Products::pack_key_columns(v_row(0), v_.length_stride, valid_keys_, shape_.value_dim, T{1},
                               key_capacity(), value_columns_);
    for_query_blocks([&] {
      std::fill_n(result_, padded_queries() * padded_value_dim(), T{0});
      std::fill_n(maximum_, kQueries, kMinusInfinity<T>);
      std::fill_n(sum_, kQueries, T{0});
      for_key_blocks([&] {
        score_tiles(query_rows_, depth(), key_panels_, scores_);
        if (bias.data) add_bias(bias);
        for (int64_t i = 0; i < queries_; ++i) update_probabilities(i);
        add_for_queries(value_columns_, padded_value_dim(), result_);
      });
      for (int64_t i = 0; i < queries_; ++i) {
        // The sum of a query that attends to a key is at least 1, the term of the largest score. If the bias
        // masks all keys, the sum can be slightly more than 0, because exp_nonpositive(-inf) is not always 0.
        const bool is_masked = sum_[i] < T{0.5};
        const T inverse = is_masked ? T{0} : 1 / sum_[i];
        T* const row = result_ + i * padded_value_dim();
        for (int64_t m = 0; m < shape_.value_dim; ++m) row[m] *= inverse;
        convert_elements(row, shape_.value_dim, out.row(batch_, query_ + i, head_));
        log_sums[(batch_ * shape_.heads + head_) * shape_.query_length + query_ + i] =
            is_masked ? kMinusInfinity<T> : maximum_[i] + std::log(sum_[i]);
      }
    });
  }

  // The three steps of the backward pass of the heads that read one head of keys. The second is for each
  // head.
  void start_backward() {
    pack_panels(k_row(0), k_.length_stride, valid_keys_, shape_.dim, depth(), key_panels_);
    Products::pack_key_columns(k_row(0), k_.length_stride, valid_keys_, shape_.dim, scale(), key_capacity(),
                               key_columns_);
    pack_panels(v_row(0), v_.length_stride, valid_keys_, shape_.value_dim, value_depth(), value_panels_);
    std::fill_n(gk_, sum_rows() * padded_dim(), T{0});
    std::fill_n(gv_, sum_rows() * padded_value_dim(), T{0});
  }

  void add_gradients(AttentionRows<const T> bias, AttentionRows<const S> out, const T* log_sums,
                     AttentionRows<const S> g, const AttentionGradients<S>& gradients,
                     AttentionRows<T> gbias) {
    for_query_blocks([&] {
      load_gradients(out, log_sums, g);
      for_key_blocks([&] {
        score_tiles(query_rows_, depth(), key_panels_, scores_);
        score_tiles(g_rows_, value_depth(), value_panels_, score_gradients_);
        if (bias.data) add_bias(bias);
        for (int64_t i = 0; i < queries_; ++i) row_gradient(i);
        if (gbias.data) store_bias_gradient(gbias);
        if (gradients.gv.data) add_for_keys(weight_pairs_, g_columns_, padded_value_dim(), gv_);
        if (gradients.gk.data) add_for_keys(gradient_pairs_, query_columns_, padded_dim(), gk_);
        if (gradients.gq.data) add_for_queries(key_columns_, padded_dim(), gq_);
      });
      if (gradients.gq.data)
        for (int64_t i = 0; i < queries_; ++i)
          write_scaled(gq_ + i * padded_dim(), shape_.dim, gradients.gq.row(batch_, query_ + i, head_));
    });
  }

  void store_key_gradients(const AttentionGradients<S>& gradients) {
    const int64_t head = shape_.key_head(head_);
    for (int64_t j = 0; j < shape_.key_length; ++j) {
      T* const row = scores_;  // the scores are not needed after the loop over queries
      if (gradients.gk.data) {
        Products::read_key_sums(gk_, j, padded_dim(), shape_.dim, row);
        write_scaled(row, shape_.dim, gradients.gk.row(batch_, j, head));
      }
      if (gradients.gv.data) {
        Products::read_key_sums(gv_, j, padded_value_dim(), shape_.value_dim, row);
        convert_elements(row, shape_.value_dim, gradients.gv.row(batch_, j, head));
      }
    }
  }

 private:
  T scale() const { return static_cast<T>(shape_.scale); }
  int64_t padded_dim() const { return round_up_to_tile_columns<T>(shape_.dim); }
  int64_t padded_value_dim() const { return round_up_to_tile_columns<T>(shape_.value_dim); }
  int64_t depth() const { return Products::pad_depth(shape_.dim); }
  int64_t value_depth() const { return Products::pad_depth(shape_.value_dim); }
  int64_t key_capacity() const { return Products::pad_depth(valid_keys_); }
  int64_t padded_queries() const { return Products::pad_queries(queries_); }
  const S* k_row(int64_t j) const { return k_.row(batch_, j, shape_.key_head(head_)); }
  const S* v_row(int64_t j) const { return v_.row(batch_, j, shape_.key_head(head_)); }

  // Returns the number of keys for which gk_ and gv_ have memory. The last tile of keys can be incomplete.
  int64_t sum_rows() const { return shape_.key_length + Products::kRows; }

  // Allocates the operands that contain attention weights or gradients of scores. For types other than
  // BFloat16, the operands are scores_ and score_gradients_.
  void take_operands(Arena& arena) {
    constexpr int64_t kSize = kQueries * kScoreStride;
    score_gradients_ = arena.allocate<T>(backward_ ? kSize : 0);
    if constexpr (kPairs) {
      weight_rows_ = arena.allocate<O>(kSize);
      for (O** pairs : {&weight_pairs_, &gradient_pairs_}) *pairs = arena.allocate<O>(backward_ ? kSize : 0);
    } else {
      weight_rows_ = backward_ ? score_gradients_ : scores_;
      weight_pairs_ = scores_;
      gradient_pairs_ = score_gradients_;
    }
  }

  // Packs x (count, dim) in the layout `panels` of attention_products.h. `depth` is Products::pad_depth(dim).
  static void pack_panels(const S* x, int64_t stride, int64_t count, int64_t dim, int64_t depth, O* panels) {
    if constexpr (kPairs)
      pack_rows(x, stride, count, dim, depth, panels);
    else
      pack_rows(x, stride, count, dim, panels);
  }
  // Returns x multiplied by scale() if the packed operands do not include the scale, otherwise x.
  Vector<T> scaled(Vector<T> x) const {
    if constexpr (kPairs) return scale() * x;
    return x;
  }
  void write_scaled(T* row, int64_t count, S* target) const {
    if constexpr (kPairs)
      for (int64_t d = 0; d < count; ++d) row[d] *= scale();
    convert_elements(row, count, target);
  }

  // Calls f() for each block of queries. Before each call of f(), query_, queries_ and query_rows_ are set
  // for the block.
  template <class F>
  void for_query_blocks(F&& f) {
    for (query_ = 0; query_ < shape_.query_length; query_ += kQueries) {
      queries_ = std::min(kQueries, shape_.query_length - query_);
      std::fill_n(query_rows_, padded_queries() * depth(), O{});
      for (int64_t i = 0; i < queries_; ++i) {
        O* const row = query_rows_ + i * depth();
        convert_elements(q_.row(batch_, query_ + i, head_), shape_.dim, row);
        if constexpr (!kPairs)
          for (int64_t d = 0; d < shape_.dim; ++d) row[d] *= scale();
      }
      f();
    }
  }
  // Calls f() for each block of keys that the queries attend to. Before each call of f(), key_blocks_ is
  // moved to the block.
  template <class F>
  void for_key_blocks(F&& f) {
    for (key_blocks_.set_queries(attended_, query_, queries_); key_blocks_.find_next_block();) f();
  }

  // Computes scores = left * rightᵀ for the tiles of key_blocks_. `panels` contains `right`, packed by
  // pack_panels().
  void score_tiles(const O* left, int64_t depth, const O* panels, T* scores) {
    key_blocks_.for_each_score_tile([&](int64_t i, int64_t key, int64_t column) {
      Products::compute_scores(left + i * depth, panels + key * depth, depth,
                               scores + i * kScoreStride + column);
    });
  }

  // Calls f(scores of row i, first column, row of `bias` from the key of this column on, number of keys) for
  // each range of columns of each query of the block.
  template <class B, class F>
  void for_each_bias_range(const AttentionRows<B>& bias, F&& f) const {
    for (int64_t i = 0; i < queries_; ++i)
      key_blocks_.for_each_span(i, [&](const KeySpan& span, const ScoreColumns& columns) {
        const int64_t key = span.first_key + columns.begin - span.first_column;
        f(i * kScoreStride + columns.begin, bias.row(batch_, query_ + i, head_) + key,
          std::min(columns.padded_end - columns.begin, shape_.key_length - key));
      });
  }
  // Adds the bias to scores_, which are not yet multiplied by the scale if O is BFloat16.
  void add_bias(const AttentionRows<const T>& bias) {
    const T factor = kPairs ? 1 / scale() : T{1};
    for_each_bias_range(bias, [&](int64_t first, const T* row, int64_t count) {
      T* const scores = scores_ + first;
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) scores[j] += factor * row[j];
    });
  }
  void store_bias_gradient(const AttentionRows<T>& gbias) const {
    for_each_bias_range(gbias, [&](int64_t first, T* row, int64_t count) {
      std::copy_n(score_gradients_ + first, count, row);
    });
  }

  // Writes `value` to the columns of keys to which row i does not attend. Returns the number of keys to which
  // row i attends.
  template <class U>
  int64_t mask(U* row, int64_t i, const KeySpan& span, const ScoreColumns& columns, U value) const {
    int64_t attended = columns.padded_end - columns.begin;
    key_blocks_.for_each_masked_range(i, span, columns, [&](int64_t begin, int64_t end) {
      std::fill(row + begin, row + end, value);
      attended -= end - begin;
    });
    return attended;
  }
  static void store_weight(O* target, Vector<T> weight) {
    if constexpr (kPairs)
      store_dot_product_operand(target, weight);
    else
      store(target, weight);
  }

  // Updates the online softmax of query i for the current block of keys. Writes m * exp(score - maximum) to
  // weight_rows_, where m is the dropout multiplier. Rescales sum_ and result_ to the new maximum.
  void update_probabilities(int64_t i) {
    T* const row = scores_ + i * kScoreStride;
    O* const weights = weight_rows_ + i * kScoreStride;
    const T masked = kPairs ? kMinusInfinity<T> / scale() : kMinusInfinity<T>;
    Vector<T> largest = Vector<T>{} + kMinusInfinity<T>;
    int64_t attended = 0;
    key_blocks_.for_each_span(i, [&](const KeySpan& span, const ScoreColumns& columns) {
      attended += mask(row, i, span, columns, masked);
      for (int64_t j = columns.begin; j < columns.padded_end; j += kLanes<T>) {
        const Vector<T> x = scaled(load(row + j));
        largest = x > largest ? x : largest;
      }
    });
    if (attended == 0) {
      key_blocks_.for_each_span(i, [&](const KeySpan&, const ScoreColumns& columns) {
        std::fill(weights + columns.begin, weights + columns.padded_end, O{});
      });
      return;
    }
    const auto [maximum, shift, rescale] = update_online_softmax(maximum_[i], reduce_max(largest));
    Vector<T> total{};
    key_blocks_.for_each_span(i, [&, offset = shift](const KeySpan& span, const ScoreColumns& columns) {
      const bool drops = draw_multipliers(i, span, columns);
      for (int64_t j = columns.begin; j < columns.padded_end; j += kLanes<T>) {
        const Vector<T> p = vmath::exp_nonpositive(scaled(load(row + j)) - offset);
        store_weight(weights + j, drops ? p * load(multipliers_ + j) : p);
        total += p;
      }
      mask(weights, i, span, columns, O{});
    });
    if (rescale != 1) {
      sum_[i] *= rescale;
      for (int64_t m = 0; m < padded_value_dim(); m += kLanes<T>)
        store(result_ + i * padded_value_dim() + m, rescale * load(result_ + i * padded_value_dim() + m));
    }
    maximum_[i] = maximum;
    sum_[i] += sum(total);
  }

  // Rounds rows i and i + 1 of `weights` to BFloat16. Stores the two elements of each column as a pair in
  // `operand`. If row i is the last query of the block, sets row i + 1 to zero before rounding.
  void round_pair(T* weights, int64_t i, const ScoreColumns& columns, O* operand) const {
    T *const even = weights + i * kScoreStride, *const odd = even + kScoreStride;
    if (i + 1 == queries_) std::fill_n(odd, kScoreStride, T{0});
    for (int64_t j = columns.begin; j < columns.padded_end; j += kLanes<T>)
      store_pairs(operand + i * kScoreStride + 2 * j, narrow_pairs(load(even + j), load(odd + j)));
  }

  // Writes the dropout multipliers of query i for the keys in `columns` to multipliers_. Returns false if
  // dropout is not active.
  bool draw_multipliers(int64_t i, const KeySpan& span, const ScoreColumns& columns) {
    if (!shape_.dropout.is_active()) return false;
    const int64_t row = (batch_ * shape_.heads + head_) * shape_.query_length + query_ + i;
    compute_dropout_multipliers(shape_.dropout,
                                row * shape_.key_length + span.first_key + columns.begin - span.first_column,
                                columns.padded_end - columns.begin, multipliers_ + columns.begin);
    return true;
  }

  // Packs g and the queries of the current block. Sets maximum_ to the log-sum-exp of each query, and sum_ to
  // the dot product of g and the attention result of each query.
  void load_gradients(AttentionRows<const S> out, const T* log_sums, AttentionRows<const S> g) {
    const S* const block = g.row(batch_, query_, head_);
    std::fill_n(g_rows_, padded_queries() * value_depth(), O{});
    std::fill_n(gq_, padded_queries() * padded_dim(), T{0});
    for (int64_t i = 0; i < queries_; ++i) {
      const S *const row = block + i * g.length_stride, *const out_row = out.row(batch_, query_ + i, head_);
      convert_elements(row, shape_.value_dim, g_rows_ + i * value_depth());
      sum_[i] = dot(row, out_row, shape_.value_dim);
      const T log_sum = log_sums[(batch_ * shape_.heads + head_) * shape_.query_length + query_ + i];
      maximum_[i] = log_sum == kMinusInfinity<T> ? T{0} : log_sum;  // the difference to a score of -inf
    }
    Products::pack_query_columns(g_rows_, queries_, shape_.value_dim, g_columns_);
    Products::pack_query_columns(query_rows_, queries_, shape_.dim, query_columns_);
    // add_for_keys() can multiply weights of rows after the last query of the block by zeros, so these
    // weights must be finite.
    if (Products::pad_depth(queries_) > compute_packed_depth<O>(queries_))
      for (O* const pairs : {weight_pairs_, gradient_pairs_})
        std::fill_n(pairs, kQueries * kScoreStride, O{});
  }

  // Updates row i of scores_ and score_gradients_, in which each column belongs to one key, in place:
  //   scores_: the score is replaced by m * p.
  //   score_gradients_: d is replaced by p * (m * d - g_out).
  // Here, p is the attention weight, m is the dropout multiplier, and d is the dot product of g and the
  // value. g_out is the dot product of g and the attention result. If O is BFloat16, the results are also
  // rounded and written to weight_rows_, weight_pairs_ and gradient_pairs_.
  void row_gradient(int64_t i) {
    T *const row = scores_ + i * kScoreStride, *const gradient = score_gradients_ + i * kScoreStride;
    const T log_sum = maximum_[i], g_out = sum_[i];
    key_blocks_.for_each_span(i, [&](const KeySpan& span, const ScoreColumns& columns) {
      const bool drops = draw_multipliers(i, span, columns);
      for (int64_t j = columns.begin; j < columns.padded_end; j += kLanes<T>) {
        const Vector<T> p = vmath::exp_nonpositive(scaled(load(row + j)) - log_sum);
        const Vector<T> multiplier = drops ? load(multipliers_ + j) : Vector<T>{} + T{1};
        store(row + j, p * multiplier);
        store(gradient + j, p * (load(gradient + j) * multiplier - g_out));
      }
      for (T* const weights : {row, gradient}) mask(weights, i, span, columns, T{0});
      if constexpr (kPairs) {
        O* const operand = weight_rows_ + i * kScoreStride;
        for (int64_t j = columns.begin; j < columns.padded_end; j += kLanes<T>)
          store_dot_product_operand(operand + j, load(gradient + j));
        if (i % 2 == 0 && i + 1 < queries_) return;
        round_pair(scores_, i - i % 2, columns, weight_pairs_);
        round_pair(score_gradients_, i - i % 2, columns, gradient_pairs_);
      }
    });
  }

  // Adds the matrix product of weightsᵀ and x to `sums`, for the current blocks of queries and keys.
  // `weights` has the shape (queries, keys). x has the shape (queries, columns_width) and is packed in
  // `columns` by Products::pack_query_columns().
  void add_for_keys(const O* weights, const O* columns, int64_t columns_width, T* sums) {
    key_blocks_.for_each_key_tile([&](int64_t key, int64_t column, int64_t first, int64_t end) {
      Products::add_for_keys(weights, column, first, end, columns, columns_width, sums + key * columns_width);
    });
  }
  // Adds the matrix product of weight_rows_ and x to `sums`, for the current blocks of queries and keys. x
  // has the shape (keys, columns_width) and is packed in `columns` by Products::pack_key_columns().
  void add_for_queries(const O* columns, int64_t columns_width, T* sums) {
    key_blocks_.for_each_tile([&](const KeySpan& span, int64_t i, const ScoreColumns& range) {
      const int64_t key = span.first_key + range.begin - span.first_column;
      Products::add_for_queries(weight_rows_ + i * kScoreStride + range.begin,
                                columns + key * kTileColumns<T>, key_capacity(), range.end - range.begin,
                                columns_width, sums + i * columns_width);
    });
  }

  const SoftmaxAttentionShape& shape_;
  const AttentionRows<const S> q_, k_, v_;
  const bool backward_;  // whether backward() is called instead of forward()
  int64_t batch_ = 0, head_ = 0, valid_keys_ = 0;
  AttendedKeys attended_;
  KeyBlockIterator<T, kQueries, kAttentionKeys, Products::kRows, Products::kColumnStep> key_blocks_;
  int64_t query_ = 0, queries_ = 0;  // first query and number of queries of the block
  // query_rows_ and g_rows_ have the layout `rows` of attention_products.h. Arrays with the suffixes _panels_
  // and _columns_ have the layouts `panels` and `columns`. If O is float or double, query_rows_,
  // query_columns_ and key_columns_ are multiplied by scale().
  O *query_rows_ = nullptr, *query_columns_ = nullptr;    // queries of the block
  O *key_panels_ = nullptr, *key_columns_ = nullptr;      // keys of the sequence
  O *value_panels_ = nullptr, *value_columns_ = nullptr;  // values of the sequence
  O *g_rows_ = nullptr, *g_columns_ = nullptr;            // gradients of the results of the block
  // weight_rows_ contains attention weights in forward(), and gradients of scores in backward().
  // weight_pairs_ contains attention weights, and gradient_pairs_ contains gradients of scores. In
  // weight_pairs_ and gradient_pairs_, BFloat16 elements (i, j) and (i + 1, j) with even i are a pair at
  // [i * kScoreStride + 2 * j].
  O *weight_rows_ = nullptr, *weight_pairs_ = nullptr, *gradient_pairs_ = nullptr;
  T *scores_ = nullptr, *score_gradients_ = nullptr;  // (kQueries, kScoreStride)
  T* multipliers_ = nullptr;                          // dropout multipliers (kScoreStride,)
  T *maximum_ = nullptr, *sum_ = nullptr;             // one element per query of the block
  T *result_ = nullptr, *gq_ = nullptr;               // rows padded to whole tiles
  T *gk_ = nullptr, *gv_ = nullptr;                   // sums of Products::add_for_keys()
};

// Calls f(SoftmaxAttentionHead, batch, first head) for groups of heads of each sequence, in parallel. A group
// is one head in the forward pass, and s.head_group heads in the backward pass.
template <class Products, class S, class F>
void for_heads_with_products(const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                             AttentionRows<const S> k, AttentionRows<const S> v, bool backward, const F& f) {
  using Head = SoftmaxAttentionHead<S, Products>;
  const int64_t group = backward ? s.head_group : 1, groups = s.heads / group;
  for_each_task<typename Products::ProcessorState>(
      s.batch * groups, group * s.query_length * s.key_length * (s.dim + s.value_dim),
      [&] { return Head(s, q, k, v, backward); },
      [&](Head& head, int64_t task) { f(head, task / groups, task % groups * group); });
}

// Calls for_heads_with_products(). If S is BFloat16, the class of matrix products of `head` depends on
// uses_amx() and prefers_bfloat16_dot_products().
template <class S, class F>
void for_heads(const SoftmaxAttentionShape& s, AttentionRows<const S> q, AttentionRows<const S> k,
               AttentionRows<const S> v, bool backward, const F& f) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    if constexpr (AmxProducts::kIsBuilt)
      if (uses_amx()) return for_heads_with_products<AmxProducts>(s, q, k, v, backward, f);
    if (!prefers_bfloat16_dot_products(kHasDotProductInstructions))
      return for_heads_with_products<VectorProducts<float>>(s, q, k, v, backward, f);
  }
  for_heads_with_products<VectorProducts<S>>(s, q, k, v, backward, f);
}

}  // namespace

template <class T>
void softmax_attention_forward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                               AttentionRows<const T> k, AttentionRows<const T> v,
                               AttentionRows<const Compute<T>> bias, T* out, Compute<T>* log_sums) {
  const AttentionRows<T> target = make_contiguous_rows(out, s.query_length, s.heads, s.value_dim);
  if constexpr (!std::is_same_v<T, BFloat16>)
    if (is_for_query_attention<T>(s, bias)) return attend_with_few_queries(s, q, k, v, target, log_sums);
  for_heads(s, q, k, v, false, [&](auto& head, int64_t batch, int64_t index) {
    head.select(batch, index);
    head.forward(bias, target, log_sums);
  });
}

template <class T>
void softmax_attention_backward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                                AttentionRows<const T> k, AttentionRows<const T> v,
                                AttentionRows<const Compute<T>> bias, const T* out,
                                const Compute<T>* log_sums, AttentionRows<const T> g,
                                AttentionGradients<T> gradients, AttentionRows<Compute<T>> gbias) {
  const AttentionRows<const T> result = make_contiguous_rows(out, s.query_length, s.heads, s.value_dim);
  for_heads(s, q, k, v, true, [&](auto& head, int64_t batch, int64_t first) {
    for (int64_t index = first; index < first + s.head_group; ++index) {
      head.select(batch, index);
      if (index == first) head.start_backward();
      head.add_gradients(bias, result, log_sums, g, gradients, gbias);
    }
    head.store_key_gradients(gradients);
  });
}

template <class T>
struct SoftmaxAttentionKernels {
  inline static const FunctionInstances all{&softmax_attention_forward<T>, &softmax_attention_backward<T>};
};
template struct SoftmaxAttentionKernels<float>;
template struct SoftmaxAttentionKernels<double>;
template struct SoftmaxAttentionKernels<BFloat16>;

}  // namespace tapeformer::cpu
