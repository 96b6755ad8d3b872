#include "ops/detail/attention_inputs.h"

#include "ops/detail/tensors.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

void check_same_kind(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check(q.dtype() == k.dtype() && q.dtype() == v.dtype(), op, "q, k and v must have one dtype, not ",
        name_of(q.dtype()), ", ", name_of(k.dtype()), " and ", name_of(v.dtype()));
  check(q.device() == k.device() && q.device() == v.device(), op, "q, k and v must be on one device, not ",
        q.device().to_string(), ", ", k.device().to_string(), " and ", v.device().to_string());
}

// Returns whether the heads of k and v, in dimension `dim`, fit the heads of q.
bool heads_fit(const Tensor& q, const Tensor& k, const Tensor& v, int dim, const AttentionInputRules& rules) {
  const int64_t heads = q.size(dim), key_heads = k.size(dim);
  const bool is_grouped = rules.grouped_heads && key_heads > 0 && heads % key_heads == 0;
  return key_heads == v.size(dim) && (heads == key_heads || is_grouped);
}

}  // namespace

bool last_dimension_is_contiguous(const Tensor& x) {
  return x.numel() == 0 || x.size(-1) == 1 || x.strides()[-1] == 1;
}

void check_attention_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionInputRules& rules) {
  check_defined(op, "q", q, "k", k, "v", v);
  const bool fits = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q.size(0) == k.size(0) &&
                    q.size(0) == v.size(0) && k.size(1) == v.size(1) && heads_fit(q, k, v, 2, rules) &&
                    q.size(3) == k.size(3) && q.size(3) > 0 && v.size(3) > 0;
  check(fits, op,
        "expected q (batch, query_length, heads, dim), k (batch, key_length, heads, dim) and v (batch, "
        "key_length, "
        "heads, value_dim)",
        rules.grouped_heads ? ", where the heads of q are a multiple of those of k and v, not " : ", not ",
        q.shape(), ", ", k.shape(), " and ", v.shape());
  check_same_kind(op, q, k, v);
}

void check_on_device_of_q(const char* op, const char* name, std::initializer_list<const Tensor*> tensors,
                          const Tensor& q) {
  for (const Tensor* x : tensors)
    check(x->device() == q.device(), op, name, " is on ", x->device().to_string(), ", and q is on ",
          q.device().to_string());
}

void check_attention_step(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& out, const AttentionInputRules& rules) {
  check_defined(op, "q", q, "k", k, "v", v, "out", out);
  const bool fits = q.rank() == 3 && k.rank() == 3 && v.rank() == 3 && q.size(0) == k.size(0) &&
                    q.size(0) == v.size(0) && q.size(2) == k.size(2) && heads_fit(q, k, v, 1, rules) &&
                    out.shape() == Shape{q.size(0), q.size(1), v.size(2)} && q.size(2) > 0 && v.size(2) > 0;
  check(fits, op, "expected q, k (batch, heads, dim) and v, out (batch, heads, value_dim), not ", q.shape(),
        ", ", k.shape(), ", ", v.shape(), " and ", out.shape());
  check_same_kind(op, q, k, v);
  if (!rules.bfloat16_result || out.dtype() != DType::bfloat16 || q.dtype() != DType::float32)
    check_same_kind(op, q, k, out);
  check_on_device_of_q(op, "out", {&out}, q);
  for (const Tensor* x : {&q, &k, &v, &out})
    check(last_dimension_is_contiguous(*x), op, "the last dimension of q, k, v and out must be contiguous");
}

Tensor prepare_key_lengths(const char* op, const Tensor& key_lengths, const Tensor& keys) {
  if (!key_lengths.defined()) return {};
  const int64_t batch = keys.size(0), key_length = keys.size(1);
  check(key_lengths.shape() == Shape{batch} && key_lengths.dtype() == DType::int64, op,
        "key_lengths must be int64 ", Shape{batch}, ", not ", name_of(key_lengths.dtype()), " ",
        key_lengths.shape());
  check(key_lengths.device().is_cpu() || key_lengths.device() == keys.device(), op, "key_lengths are on ",
        key_lengths.device().to_string(), ", expected cpu or ", keys.device().to_string());
  const Tensor lengths = key_lengths.clone();
  for (int64_t i = 0; i < batch && lengths.device().is_cpu(); ++i) {
    const int64_t length = lengths.data<int64_t>()[i];
    check(length >= 0 && length <= key_length, op, "key_lengths[", i, "] is ", length, ", expected 0 to ",
          key_length);
  }
  return lengths.to(keys.device());
}

Tensor make_features_contiguous(const Tensor& x) {
  return last_dimension_is_contiguous(x) ? x : contiguous(x);
}

void check_result_tensor(const char* op, const char* name, const Tensor& x, const Shape& shape, DType dtype) {
  check_defined(op, name, x);
  check(x.shape() == shape && x.dtype() == dtype && x.is_contiguous(), op, name, " is ", name_of(x.dtype()),
        " ", x.shape(), ", expected contiguous ", name_of(dtype), " ", shape);
}

void check_attention_result(const char* op, const AttentionResult& result, const Tensor& q, const Tensor& v,
                            const Shape& statistics_shape) {
  check_result_tensor(op, "out", result.out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype());
  check_result_tensor(op, "statistics", result.statistics,
                      statistics_shape.rank() > 0 ? statistics_shape : Shape{q.size(0), q.size(2), q.size(1)},
                      get_compute_dtype(q.dtype()));
}

void check_gradient(const char* op, const Tensor& gradient, const Tensor& out) {
  check_defined(op, "the gradient", gradient);
  check(gradient.shape() == out.shape() && gradient.dtype() == out.dtype(), op, "the gradient is ",
        name_of(gradient.dtype()), " ", gradient.shape(), ", expected ", name_of(out.dtype()), " ",
        out.shape());
}

void check_gradients(const char* op, const Gradients& gradients,
                     std::initializer_list<const Tensor*> inputs) {
  check(gradients.size() == inputs.size(), op, gradients.size(), " gradients, expected ", inputs.size());
  size_t i = 0;
  for (const Tensor* input : inputs) {
    const Tensor& g = gradients[i++];
    if (!g.defined()) continue;
    check(input->defined(), op, "gradient ", i - 1, " belongs to an undefined input");
    check(g.shape() == input->shape() && g.dtype() == input->dtype() && last_dimension_is_contiguous(g), op,
          "gradient ", i - 1, " is ", name_of(g.dtype()), " ", g.shape(), ", expected ",
          name_of(input->dtype()), " ", input->shape());
  }
}

Gradients allocate_attention_gradients(NeededGradients needs, const Tensor& q, const Tensor& k,
                                       const Tensor& v) {
  constexpr int kDim = 2;  // q, k and v may be slices of (batch, length, 3, heads, dim) along dimension 2
  if (needs[0] && needs[1] && needs[2] && are_slices_of_one_tensor({q, k, v}, kDim))
    return unbind(Tensor::empty(compute_stacked_shape({q, k, v}, kDim), q.dtype(), q.device()), kDim);
  return allocate_gradients(needs, {&q, &k, &v});
}

Tensor allocate_attention_result(const Tensor& q, const Tensor& v) {
  return Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype(), q.device());
}

Tensor allocate_query_statistics(const Tensor& q) {
  return Tensor::empty({q.size(0), q.size(2), q.size(1)}, get_compute_dtype(q.dtype()), q.device());
}

}  // namespace tapeformer
