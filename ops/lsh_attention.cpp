// ops/reference/lsh_attention.h computes lsh_attention() and its gradient as masked softmax attention. The
// kernels are in ops/cpu/lsh_attention.cpp and ops/cuda/lsh_attention.cu.
#include "ops/lsh_attention.h"

#include <algorithm>
#include <cmath>

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"

namespace tapeformer {
namespace {

constexpr const char* kHash = "compute_lsh_buckets";
constexpr const char* kOp = "lsh_attention";

// kEpsilon * dim is added to the squared norm of a key, as in trax.
constexpr double kEpsilon = 1e-6;
// lsh_hash() (ops/kernels/lsh_attention.h) computes the index of a random block from the round, the head, the
// example and the element. These limits keep the indices distinct.
constexpr int64_t kMaxRounds = 255, kMaxHeads = 1 << 12, kMaxBatch = 1 << 20, kMaxRotation = 1 << 25;

// Returns the two even factors of `buckets` with the smallest difference. The cost of the hash is
// proportional to the sum of the factors.
LshBucketCounts factorise(int64_t buckets) {
  check(buckets % 4 == 0, kHash, "more than ", LshHashShape::kMaxSingleRotationBuckets,
        " buckets are hashed in two even factors, so their number must be a multiple of 4, not ", buckets,
        "; use ", buckets + 2, " buckets or hyperplanes");
  LshBucketCounts best{buckets / 2, 2};
  for (int64_t second = 2; second * second <= buckets; second += 2)
    if (buckets % second == 0 && buckets / second % 2 == 0) best = {buckets / second, second};
  return best;
}

void check_options(const char* op, const LshOptions& options) {
  check(options.rounds >= 1 && options.rounds <= kMaxRounds, op, "rounds must be 1 to ", kMaxRounds, ", not ",
        options.rounds);
  check(options.chunk_length >= 1, op, "chunk_length must be at least 1, not ", options.chunk_length);
  check(options.buckets >= 0 && options.buckets % 2 == 0, op,
        "buckets must be even (each rotation gives pairs of opposite buckets), or 0 for 2 length / "
        "chunk_length, not ",
        options.buckets);
}

LshHashShape hash_shape(const LshOptions& options) {
  check_options(kHash, options);
  LshHashShape shape;
  shape.rounds = options.rounds;
  shape.chunk_length = options.chunk_length;
  shape.share_all_rotations = options.hash == LshOptions::Hash::hyperplanes;
  shape.share_rotations_across_examples = options.share_rotations;
  shape.first_example = options.first_example;
  shape.allow_two_rotations = !shape.share_all_rotations;
  if (options.buckets > 0)
    shape.requested_buckets =
        options.buckets <= LshHashShape::kMaxSingleRotationBuckets || !shape.allow_two_rotations
            ? LshBucketCounts{options.buckets, 1}
            : factorise(options.buckets);
  return shape;
}

void check_length(const LshOptions& options, int64_t length) {
  if (options.allow_any_length || options.buckets == 0 || length == 0) return;
  check(length > options.chunk_length, kHash, "length ", length, " fits in one chunk of ",
        options.chunk_length, ", which is exact attention and needs no buckets: set buckets to 0 instead of ",
        options.buckets, ", or chunk_length below the length");
  check(options.buckets <= length, kHash, options.buckets, " buckets are more than the ", length,
        " positions: lower buckets, or 0 for 2 length / chunk_length");
}

// Returns an upper bound of the number of buckets of each rotation. If of_any_length is false, all sequences
// have shape.length positions. If of_any_length is true, sequences can have fewer than shape.length
// positions. A shorter sequence can use one rotation instead of two, and can then have more buckets in the
// first rotation than a longer sequence.
LshBucketCounts find_max_bucket_counts(const LshHashShape& shape, bool of_any_length) {
  const LshBucketCounts own = shape.compute_bucket_counts(shape.length);
  if (!of_any_length || own.total() == 1) return own;
  const LshBucketCounts automatic = shape.compute_default_bucket_counts(shape.length);
  if (automatic.second == 1)
    return {std::max(shape.requested_buckets.first, automatic.first), shape.requested_buckets.second};
  return {std::max({shape.requested_buckets.first, automatic.first, LshHashShape::kMaxSingleRotationBuckets}),
          std::max(shape.requested_buckets.second, automatic.first)};
}

LshAttentionShape make_shape(const Tensor& q, const Tensor& v, const LshOptions& options) {
  LshAttentionShape shape;
  shape.batch = q.size(0);
  shape.length = q.size(1);
  shape.heads = q.size(2);
  shape.dim = q.size(3);
  shape.value_dim = v.size(3);
  // If all positions fit in one chunk, all rounds give the same result.
  shape.rounds = shape.length <= options.chunk_length ? 1 : options.rounds;
  shape.chunk_length = std::min(options.chunk_length, std::max<int64_t>(shape.length, 1));
  shape.wrap = options.wrap;
  shape.normalize_duplicates = options.duplicates == LshOptions::Duplicates::exact && shape.rounds > 1 &&
                               options.combine == LshOptions::Combine::logsumexp;
  shape.across_buckets = options.across_buckets || shape.length <= options.chunk_length;
  shape.causal = options.causal;
  shape.average_rounds = options.combine == LshOptions::Combine::mean;
  const auto dim = static_cast<double>(shape.dim);
  shape.scale = options.scale == LshOptions::Scale::rsqrt_dim ? 1 / std::sqrt(dim) : 1;
  shape.epsilon = kEpsilon * dim;
  shape.dropout = {options.dropout, options.dropout_stream};
  return shape;
}

// Returns a copy of `shape` in which the member `lengths` points to the data of the tensor. Call this
// function inside dispatch_floating(), because Tensor::data() throws if the tensor is not on current_device.
template <class AnyShape>
AnyShape with_lengths(AnyShape shape, const Tensor& lengths) {
  shape.lengths = lengths.defined() ? lengths.data<int64_t>() : nullptr;
  return shape;
}

void check_buckets(const Tensor& buckets, const Tensor& q, int64_t rounds) {
  const Shape expected{q.size(0), q.size(2), rounds, q.size(1)};
  check(buckets.defined() && buckets.dtype() == DType::int32 && buckets.shape() == expected &&
            buckets.is_contiguous(),
        kOp, "expected contiguous int32 buckets ", expected, " (batch, heads, rounds, length), not ",
        buckets.defined() ? name_of(buckets.dtype()) : "undefined", " ",
        buckets.defined() ? buckets.shape() : Shape{});
  check(buckets.device() == q.device(), kOp, "q is on ", q.device().to_string(), " and the buckets on ",
        buckets.device().to_string());
  if (!buckets.device().is_cpu()) return;  // reading the buckets would wait for the device
  const int32_t* const id = buckets.data<int32_t>();
  for (int64_t i = 0; i < buckets.numel(); ++i)
    check(id[i] >= 0 && id[i] <= q.size(1), kOp, "bucket ", id[i], " is not in [0, ", q.size(1), "]");
}

// The inputs of the kernels. The last dimensions of q and v are contiguous.
struct LshOperands {
  Tensor q, v, buckets, lengths;
  LshAttentionShape shape;  // without pointers to data

  Shape statistics_shape() const {
    return {shape.batch, shape.heads, shape.log_sum_round_count(), shape.length};
  }
};

// Throws ShapeError for invalid inputs and options.
LshOperands prepare_operands(const Tensor& q, const Tensor& v, const Tensor& buckets,
                             const LshOptions& options) {
  check_defined(kOp, "q", q, "v", v);
  check(q.rank() != 4 || v.rank() != 4 || q.size(1) == v.size(1), kOp, "q of length ",
        q.rank() == 4 ? q.size(1) : 0, " and v of length ", v.rank() == 4 ? v.size(1) : 0,
        ": queries are also the keys, so both lengths must be equal");
  check_attention_inputs(kOp, q, q, v);
  check_options(kOp, options);
  check(options.dropout >= 0 && options.dropout < 1, kOp, "dropout must be in [0, 1), not ", options.dropout);
  check(q.size(1) < (int64_t{1} << 31), kOp, "q ", q.shape(), " is too long");
  check_buckets(buckets, q, options.rounds);
  LshOperands x{make_features_contiguous(q), make_features_contiguous(v), detach(buckets),
                prepare_key_lengths(kOp, options.key_lengths, q), make_shape(q, v, options)};
  // If all positions fit in one chunk, shape.rounds is 1, and the result does not depend on the buckets.
  if (x.shape.rounds != options.rounds)
    x.buckets = Tensor::zeros({x.shape.batch, x.shape.heads, 1, x.shape.length}, DType::int32, q.device());
  return x;
}

void run_forward(const LshOperands& x, const AttentionResult& result) {
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    lsh_attention_forward(backend, with_lengths(x.shape, x.lengths), get_attention_rows<const T>(x.q),
                          get_attention_rows<const T>(x.v), x.buckets.data<int32_t>(), result.out.data<T>(),
                          result.statistics.data<Compute<T>>());
  });
}

void run_backward(const LshOperands& x, const AttentionResult& result, const Tensor& gradient,
                  const Gradients& gradients) {
  const Tensor g = make_features_contiguous(gradient);
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    lsh_attention_backward(backend, with_lengths(x.shape, x.lengths), get_attention_rows<const T>(x.q),
                           get_attention_rows<const T>(x.v), x.buckets.data<int32_t>(), result.out.data<T>(),
                           result.statistics.data<Compute<T>>(), get_attention_rows<const T>(g),
                           gradients[0].data<T>(), gradients[1].data<T>());
  });
}

}  // namespace

LshOptions make_lsh_preset(const std::string& name) {
  LshOptions options;
  if (name == "reformer") return options;
  options.duplicates = LshOptions::Duplicates::none;
  options.across_buckets = true;
  if (name == "trax") {
    options.wrap = LshOptions::Wrap::global;
    return options;
  }
  if (name != "fast_transformers")
    throw ConfigError("unknown LSH preset \"" + name + "\" (known: reformer, trax, fast_transformers)");
  options.chunk_length = 32;
  options.buckets = 64;
  options.scale = LshOptions::Scale::rsqrt_dim;
  options.combine = LshOptions::Combine::mean;
  options.hash = LshOptions::Hash::hyperplanes;
  return options;
}

int64_t count_lsh_buckets(const LshOptions& options, int64_t length) {
  const LshHashShape shape = hash_shape(options);
  check_length(options, length);
  return shape.compute_bucket_counts(length).total();
}

Tensor compute_lsh_buckets(const Tensor& query, const LshOptions& options, const RandomStream& stream) {
  check_defined(kHash, "q", query);
  check(query.rank() == 4 && query.size(3) > 0, kHash, "expected q (batch, length, heads, dim), not ",
        query.shape());
  const NoGradScope no_grad;
  const Tensor q = make_features_contiguous(query);
  const Tensor lengths = prepare_key_lengths(kHash, options.key_lengths, q);
  LshHashShape shape = hash_shape(options);
  check_length(options, q.size(1));
  shape.batch = q.size(0);
  shape.length = q.size(1);
  shape.heads = q.size(2);
  shape.dim = q.size(3);
  shape.max_buckets = find_max_bucket_counts(shape, lengths.defined());
  check(options.first_example >= 0 && options.first_example + q.size(0) <= kMaxBatch &&
            q.size(2) <= kMaxHeads && q.size(1) < (int64_t{1} << 31) &&
            q.size(3) * std::max(shape.max_buckets.first, shape.max_buckets.second) / 2 <= kMaxRotation,
        kHash, "q ", q.shape(), " with ", shape.compute_bucket_counts(q.size(1)).total(),
        " buckets is too large to hash");
  const Tensor buckets =
      Tensor::zeros({q.size(0), q.size(2), options.rounds, q.size(1)}, DType::int32, q.device());
  dispatch_floating(kHash, q, [&]<class T>(auto backend) {
    lsh_hash(backend, with_lengths(shape, lengths), stream, get_attention_rows<const T>(q),
             buckets.data<int32_t>());
  });
  return buckets;
}

Tensor lsh_attention(const Tensor& query, const Tensor& value, const Tensor& buckets,
                     const LshOptions& options) {
  const LshOperands x = prepare_operands(query, value, buckets, options);
  const AttentionResult result{
      allocate_attention_result(x.q, x.v),
      Tensor::empty(x.statistics_shape(), get_compute_dtype(x.q.dtype()), x.q.device())};
  run_forward(x, result);
  return record(kOp, result.out, {&x.q, &x.v},
                [x = LshOperands{detach(x.q), detach(x.v), x.buckets, x.lengths, x.shape},
                 result = AttentionResult{detach(result.out), result.statistics}](const Tensor& gradient) {
                  const Gradients gradients{Tensor::empty(x.q.shape(), x.q.dtype(), x.q.device()),
                                            Tensor::empty(x.v.shape(), x.v.dtype(), x.v.device())};
                  run_backward(x, result, gradient, gradients);
                  return gradients;
                });
}

void lsh_attention_forward_into(const Tensor& q, const Tensor& v, const Tensor& buckets,
                                const LshOptions& options, const AttentionResult& result) {
  const LshOperands x = prepare_operands(q, v, buckets, options);
  check_attention_result(kOp, result, q, v, x.statistics_shape());
  run_forward(x, result);
}

void lsh_attention_backward_into(const Tensor& q, const Tensor& v, const Tensor& buckets,
                                 const LshOptions& options, const AttentionResult& result,
                                 const Tensor& gradient, const Gradients& gradients) {
  const LshOperands x = prepare_operands(q, v, buckets, options);
  check_attention_result(kOp, result, q, v, x.statistics_shape());
  check_gradient(kOp, gradient, result.out);
  check_gradients(kOp, gradients, {&q, &v});
  for (const Tensor& g : gradients)
    check(g.defined() && g.is_contiguous(), kOp, "both gradients must be defined and contiguous");
  run_backward(x, result, gradient, gradients);
}

}  // namespace tapeformer
