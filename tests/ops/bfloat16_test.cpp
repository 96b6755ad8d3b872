// Tests of layer norm and attention with tensors in bfloat16, on the CPU and on a device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/norm.h"
#include "ops/softmax_attention.h"
#include "tests/support/devices.h"
#include "tests/support/lengths.h"
#include "tests/support/op_table.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns x in float64, rounded to values that bfloat16 represents exactly. Returns integers unchanged.
Tensor exact_in_bfloat16(const Tensor& x) {
  return is_floating(x.dtype()) ? x.to(DType::bfloat16).to(DType::float64) : x;
}

struct NormCase {
  int64_t rows, dim;
  double dropout;
};

// Computes layer norm with a residual branch from inputs that bfloat16 represents exactly. The branch has the
// dtype `branch`, and all other inputs have the dtype `dtype`. Returns the result and the gradients of all
// inputs, converted to float64 on the CPU.
std::vector<Tensor> norm_outcome(const NormCase& c, Device device, DType dtype, DType branch) {
  const std::vector<Tensor> inputs{normal({c.rows, c.dim}, 1), normal({c.rows, c.dim}, 2), normal({c.dim}, 3),
                                   normal({c.dim}, 4)};
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs)
    leaves.push_back(set_requires_grad(
        exact_in_bfloat16(input).to(leaves.size() == 1 ? branch : dtype).to(device).alias()));
  const Tensor y =
      residual_layer_norm(leaves[0], leaves[1], leaves[2], leaves[3], {c.dropout, RandomStream(5, "branch")});
  CHECK(y.dtype() == dtype);
  backward(y, normal(y.shape(), 17, DType::float32).to(dtype).to(device));
  std::vector<Tensor> all{detach(y).to(kCpu).to(DType::float64)};
  for (const Tensor& leaf : leaves) {
    CHECK(gradient(leaf).dtype() == leaf.dtype());
    all.push_back(gradient(leaf).to(kCpu).to(DType::float64));
  }
  return all;
}

void check_layer_norm(Device device) {
  for (const int64_t dim : {1, 33, 64, 255, 256, 1029})
    for (const double dropout : {0.0, 0.3}) {
      CAPTURE(dim);
      CAPTURE(dropout);
      const NormCase c{5, dim, dropout};
      const auto exact = norm_outcome(c, kCpu, DType::float64, DType::float64),
                 found = norm_outcome(c, device, DType::float32, DType::bfloat16),
                 again = norm_outcome(c, device, DType::float32, DType::bfloat16);
      for (size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);
        double largest = 1;
        for (const double value : exact[i].to_vector()) largest = std::max(largest, std::abs(value));
        // Only the gradient of the branch, which has index 2, is rounded to bfloat16.
        CHECK(max_difference(found[i], exact[i]) < (i == 2 ? 0.004 : 1e-5) * largest);
        CHECK(found[i].to_vector() == again[i].to_vector());
      }
    }
}

// Returns the attention cases of the op table. The inputs are exact in bfloat16, so their conversion causes
// no error.
std::vector<OpCase> attention_cases() {
  std::vector<OpCase> table;
  add_attention_cases(table);
  for (OpCase& op : table)
    for (Tensor& input : op.inputs) input = exact_in_bfloat16(input);
  return table;
}

// Checks the maximum error and the root mean square error of attention in bfloat16.
void check_errors(const Tensor& expected, const Tensor& found) {
  const auto a = expected.to_vector(), b = found.to_vector();
  double largest = 1, largest_error = 0, squares = 0, errors = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    const double error = std::abs(a[n] - b[n]);
    REQUIRE(std::isfinite(b[n]));
    largest = std::max(largest, std::abs(a[n]));
    largest_error = std::max(largest_error, error);
    squares += a[n] * a[n];
    errors += error * error;
  }
  CHECK(largest_error <= 0.03 * largest);
  // If the terms of a gradient cancel, the gradient is small, but its error is proportional to the terms,
  // which are of order 1. The second summand allows this error.
  CHECK(std::sqrt(errors) <= 0.015 * std::sqrt(squares) + 0.002 * std::sqrt(static_cast<double>(a.size())));
}

void check_attention(Device device) {
  for (const OpCase& op : attention_cases()) {
    CAPTURE(op.name);
    const auto exact = compute_result_and_gradients(op, kCpu, DType::float64),
               found = compute_result_and_gradients(op, device, DType::bfloat16),
               again = compute_result_and_gradients(op, device, DType::bfloat16);
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);  // 0 is the result, and the other indices are gradients of inputs
      check_errors(exact[i], found[i]);
      CHECK(found[i].dtype() == DType::bfloat16);
      CHECK(found[i].to_vector() == again[i].to_vector());
    }
  }
}

// Checks the errors of linear attention in bfloat16 for queries, keys and values with common offsets. A
// common offset of all values does not change the gradients of queries and keys, so rounding errors that are
// proportional to this offset must not accumulate in these gradients.
void check_common_values(Device device, int64_t length, int64_t dim, double eps = 1e-6) {
  const Shape shape{1, length, 1, dim};
  const auto with_common = [&](int salt) {
    const Tensor x = normal(shape, salt), common = normal({shape[-1]}, salt + 100);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] += common.data<double>()[i % shape[-1]];
    return exact_in_bfloat16(x);
  };
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const OpCase op{
        "",
        [=](const auto& in) { return linear_attention(in[0], in[1], in[2], {.causal = causal, .eps = eps}); },
        {with_common(1), with_common(2), with_common(3)}};
    const auto exact = compute_result_and_gradients(op, kCpu, DType::float64),
               found = compute_result_and_gradients(op, device, DType::bfloat16);
    for (size_t i = 0; i < exact.size(); ++i) {
      CAPTURE(i);
      const auto a = exact[i].to_vector(), b = found[i].to_vector();
      double squares = 0, errors = 0;
      for (size_t n = 0; n < a.size(); ++n) {
        squares += a[n] * a[n];
        errors += (a[n] - b[n]) * (a[n] - b[n]);
      }
      CHECK(std::sqrt(errors / squares) < 0.01);
    }
  }
}

Tensor aligned(const Tensor& x) {
  return x;
}
// Returns a copy of x whose address is not a multiple of 16 bytes.
Tensor unaligned(const Tensor& x) {
  Tensor view = Tensor::zeros({x.numel() + 1}, x.dtype(), x.device()).view(x.shape(), x.strides(), 1);
  view.copy_from(x);
  return view;
}

// The sizes of the inputs of attention. value_dim is dim + 8.
struct RoundedAttentionSizes {
  int64_t batch, heads, query_length, key_length, dim;
};

// Returns the result of attention f(q, k, v) and the gradients of q, k and v. `place` copies each tensor to
// aligned or unaligned memory.
template <class F, class Place>
std::vector<Tensor> attention_outcome(F f, const RoundedAttentionSizes& sizes, Device device, Place place) {
  const auto input = [&](int64_t length, int64_t width, int salt) {
    const Tensor x = normal({sizes.batch, length, sizes.heads, width}, salt, DType::float32);
    return place(x.to(DType::bfloat16).to(device));
  };
  const Tensor leaves[] = {set_requires_grad(input(sizes.query_length, sizes.dim, 0).alias()),
                           set_requires_grad(input(sizes.key_length, sizes.dim, 1).alias()),
                           set_requires_grad(input(sizes.key_length, sizes.dim + 8, 2).alias())};
  const Tensor y = f(leaves);
  backward(y, input(sizes.query_length, sizes.dim + 8, 3));
  return {y, gradient(leaves[0]), gradient(leaves[1]), gradient(leaves[2])};
}

}  // namespace

TEST_CASE("layer norm with a bfloat16 branch agrees with float64 and is deterministic") {
  check_layer_norm(kCpu);
}
TEST_CASE("cuda: layer norm with a bfloat16 branch agrees with float64 and is deterministic") {
  for (const Device device : list_cuda_devices()) check_layer_norm(device);
}

TEST_CASE("layer norm rounds the gradient of a bfloat16 branch once, with the statistics of float32") {
  for (const double dropout : {0.0, 0.3}) {
    const NormCase c{7, 37, dropout};
    const auto single = norm_outcome(c, kCpu, DType::float32, DType::float32),
               found = norm_outcome(c, kCpu, DType::float32, DType::bfloat16);
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      const Tensor expected = i == 2 ? exact_in_bfloat16(single[i]) : single[i];
      CHECK(found[i].to_vector() == expected.to_vector());
    }
  }
}

TEST_CASE("errors of attention in bfloat16 have the size of rounding errors, and results are deterministic") {
  check_attention(kCpu);
}
TEST_CASE("errors of attention in bfloat16: softmax attention with several blocks of queries and of keys") {
  for (const int64_t length : {97, 300, 513})
    for (const int64_t dim : {1, 33, 64, 72})
      for (const bool causal : {false, true})
        for (const int64_t window : {0, 40}) {
          CAPTURE(length);
          CAPTURE(dim);
          CAPTURE(causal);
          CAPTURE(window);
          SoftmaxAttentionOptions options{
              .causal = causal, .dropout = 0.2, .dropout_stream = RandomStream(5, "weights")};
          if (window > 0) options.pattern.window = {.block_size = 1, .before = window, .after = window};
          options.key_lengths = Tensor::from_vector<int64_t>({length, length / 2}, {2});
          const auto input = [&](int64_t width, int salt) {
            return exact_in_bfloat16(normal({2, length, 2, width}, salt));
          };
          const OpCase op{"",
                          [&](const auto& in) { return softmax_attention(in[0], in[1], in[2], options); },
                          {input(dim, 1), input(dim, 2), input(dim + 5, 3)}};
          const auto exact = compute_result_and_gradients(op, kCpu, DType::float64),
                     found = compute_result_and_gradients(op, kCpu, DType::bfloat16);
          for (size_t i = 0; i < exact.size(); ++i) {
            CAPTURE(i);
            check_errors(exact[i], found[i]);
          }
        }
}
TEST_CASE(
    "cuda: attention in bfloat16 on tensor cores has errors of the size of rounding and is deterministic") {
  for (const Device device : list_cuda_devices()) check_attention(device);
}
TEST_CASE("cuda: attention in bfloat16 gives the results and gradients of the CPU up to rounding") {
  for (const Device device : list_cuda_devices())
    for (const OpCase& op : attention_cases()) {
      CAPTURE(op.name);
      const auto expected = compute_result_and_gradients(op, kCpu, DType::bfloat16),
                 found = compute_result_and_gradients(op, device, DType::bfloat16);
      for (size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);
        check_errors(expected[i], found[i]);
      }
    }
}

TEST_CASE(
    "linear attention in bfloat16: gradients of queries are accurate for values with a large common part") {
  check_common_values(kCpu, 700, 33);
  check_common_values(kCpu, 5, 4, 1);  // eps is large compared with the other part of the denominators
}
TEST_CASE(
    "cuda: linear attention in bfloat16: gradients of queries are accurate for values with a large common "
    "part") {
  for (const Device device : list_cuda_devices()) {
    check_common_values(device, 700, 33);
    check_common_values(device, 1500, 32);
    check_common_values(device, 2100, 64);
  }
}

TEST_CASE("cuda: softmax attention in bfloat16 has the same bits with and without 16-byte loads") {
  for (const Device device : list_cuda_devices())
    for (const int64_t length : {30, 128, 195})
      for (const int64_t dim : {16, 32, 40, 72})
        for (const bool causal : {false, true}) {
          CAPTURE(length);
          CAPTURE(dim);
          const auto f = [&](const Tensor* in) {
            return softmax_attention(in[0], in[1], in[2], {.causal = causal});
          };
          const RoundedAttentionSizes sizes{2, 3, length, length, dim};
          const auto found = attention_outcome(f, sizes, device, aligned),
                     expected = attention_outcome(f, sizes, device, unaligned);
          for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].to_vector() == expected[i].to_vector());
        }
}

TEST_CASE("cuda: linear attention in bfloat16 has the same results with and without 16-byte loads") {
  struct Case {
    RoundedAttentionSizes sizes;
    FeatureMap map;
    std::vector<int64_t> valid_lengths;
  };
  // At a length of 2,100, a thread block scans three chunks. Some of the valid lengths mask all keys of a
  // chunk or of an example.
  const Case cases[] = {{{2, 3, 30, 30, 24}, FeatureMap::elu_plus_one, {23, 30}},
                        {{2, 3, 195, 195, 16}, FeatureMap::relu, {188, 195}},
                        {{2, 2, 200, 200, 56}, FeatureMap::squared_relu, {0, 70}},
                        {{1, 1, 2100, 2100, 24}, FeatureMap::exponential, {2100}},
                        {{1, 1, 2100, 2100, 56}, FeatureMap::elu_plus_one, {1990}},
                        {{2, 2, 70, 190, 32}, FeatureMap::elu_plus_one, {190, 100}},
                        {{1, 2, 1300, 65, 56}, FeatureMap::relu, {65}}};
  for (const Device device : list_cuda_devices())
    for (const Case& c : cases)
      for (const bool causal : {false, true}) {
        if (causal && c.sizes.query_length != c.sizes.key_length) continue;
        CAPTURE(c.sizes.query_length);
        CAPTURE(c.sizes.dim);
        CAPTURE(causal);
        const Tensor key_lengths = lengths(c.valid_lengths).to(device);
        const auto f = [&](const Tensor* in) {
          return linear_attention(in[0], in[1], in[2],
                                  {.causal = causal, .key_lengths = key_lengths, .feature_map = c.map});
        };
        const auto found = attention_outcome(f, c.sizes, device, aligned),
                   again = attention_outcome(f, c.sizes, device, aligned),
                   expected = attention_outcome(f, c.sizes, device, unaligned);
        for (size_t i = 0; i < found.size(); ++i) {
          CAPTURE(i);
          check_errors(expected[i], found[i]);
          CHECK(found[i].to_vector() == again[i].to_vector());
        }
      }
}

TEST_CASE("cuda: linear attention in bfloat16: each gradient is the same if others are not computed") {
  for (const Device device : list_cuda_devices()) {
    const auto gradients = [&](unsigned needed) {
      std::vector<Tensor> leaves;
      for (int i = 0; i < 3; ++i) {
        const Tensor x = normal({2, 150, 2, 32}, i, DType::float32).to(DType::bfloat16).to(device);
        leaves.push_back(needed >> i & 1 ? set_requires_grad(x.alias()) : x);
      }
      const Tensor y = linear_attention(leaves[0], leaves[1], leaves[2], {.causal = true});
      backward(y, normal({2, 150, 2, 32}, 3, DType::float32).to(DType::bfloat16).to(device));
      std::vector<std::vector<double>> all(3);
      for (size_t i = 0; i < 3; ++i)
        if (needed >> i & 1) all[i] = gradient(leaves[i]).to_vector();
      return all;
    };
    const auto expected = gradients(0b111);
    for (const unsigned needed : {0b001u, 0b010u, 0b100u, 0b110u, 0b101u}) {
      const auto found = gradients(needed);
      for (size_t i = 0; i < 3; ++i)
        if (needed >> i & 1) CHECK(found[i] == expected[i]);
    }
  }
}

TEST_CASE("cuda: LSH attention in bfloat16 has the same bits with and without 16-byte loads") {
  const auto outcome = [](int64_t length, int64_t dim, bool causal, Device device, auto place) {
    const auto input = [&](int64_t width, int salt) {
      return normal({2, length, 3, width}, salt, DType::float32).to(DType::bfloat16).to(device);
    };
    LshOptions options{.rounds = 3, .chunk_length = 32, .buckets = 4};
    options.causal = causal;
    const Tensor buckets = compute_lsh_buckets(input(dim, 0), options, RandomStream(7, "rotations"));
    const Tensor leaves[] = {set_requires_grad(place(input(dim, 0)).alias()),
                             set_requires_grad(place(input(dim + 8, 1)).alias())};
    const Tensor y = lsh_attention(leaves[0], leaves[1], buckets, options);
    backward(y, place(input(dim + 8, 2)));
    return std::vector{y.to_vector(), gradient(leaves[0]).to_vector(), gradient(leaves[1]).to_vector()};
  };
  for (const Device device : list_cuda_devices())
    for (const int64_t length : {33, 130})
      for (const int64_t dim : {16, 32, 72})
        for (const bool causal : {false, true}) {
          CAPTURE(length);
          CAPTURE(dim);
          CHECK(outcome(length, dim, causal, device, aligned) ==
                outcome(length, dim, causal, device, unaligned));
        }
}
