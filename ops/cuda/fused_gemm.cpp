#include "ops/cuda/fused_gemm.h"

#include <map>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/devices.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

constexpr uint32_t kAlignment = 16;  // in bytes

template <class... T>
bool are_aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kAlignment == 0) && ...);
}

template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, cublasStatus_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

using Algorithm = cublasLtMatmulAlgo_t;

// The cuBLASLt descriptors of a matrix product, and the algorithms that can compute the product.
// run_planned_gemm() caches one plan for each combination of shape, types, layout and epilogue.
struct Plan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> matmul;
  Layout a, b, c;
  // The algorithms, in the order in which multiply() tries them. Empty if cuBLASLt cannot compute the
  // product.
  std::vector<Algorithm> algorithms;
};

// The arguments of a matrix product c = op(a) op(b).
struct ProductArrays {
  const void *a, *b;
  void* c;
};

template <class T>
constexpr cudaDataType_t kCudaType = std::is_same_v<T, BFloat16> ? CUDA_R_16BF : CUDA_R_32F;

Layout make_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout{};
  check_status(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), stride));
  return Layout(layout);
}

template <class T>
void set_attribute(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_status(cublasLtMatmulDescSetAttribute(plan.matmul.get(), attribute, &value, sizeof(value)));
}

// Returns the algorithms that the heuristic of cuBLASLt suggests for a plan, in order of increasing estimated
// time.
std::vector<Algorithm> find_algorithms(const Plan& plan) {
  constexpr int kMaxAlgorithms = 8;
  cublasLtMatmulPreference_t handle{};
  check_status(cublasLtMatmulPreferenceCreate(&handle));
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(handle);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_status(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kBlasWorkspaceBytes));
  // This reduction scheme adds partial sums in float32 and in a fixed order. Other reduction schemes round
  // partial sums to the type of the result, or add them in the order in which blocks finish.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kAlignment);
  cublasLtMatmulHeuristicResult_t results[kMaxAlgorithms] = {};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(get_context().blas_lt, plan.matmul.get(), plan.a.get(), plan.b.get(),
                                     plan.c.get(), plan.c.get(), handle, kMaxAlgorithms, results, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_status(status);
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
  return algorithms;
}

// Computes the product with `algorithm`. Returns false if the device or cuBLASLt does not support the
// algorithm.
bool multiply(const Plan& plan, const Algorithm& algorithm, const ProductArrays& arrays) {
  const float alpha = 1, beta = 0;
  const cublasStatus_t status =
      cublasLtMatmul(get_context().blas_lt, plan.matmul.get(), &alpha, arrays.b, plan.a.get(), arrays.a,
                     plan.b.get(), &beta, arrays.c, plan.c.get(), arrays.c, plan.c.get(), &algorithm,
                     get_context().blas_workspace, kBlasWorkspaceBytes, get_context().stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH) return false;
  check_status(status);
  return true;
}

// Computes a matrix product with the first supported algorithm of `plan`, and removes the unsupported
// algorithms that precede this algorithm. Returns false if `plan` has no supported algorithm.
bool multiply(Plan& plan, const ProductArrays& arrays) {
  while (!plan.algorithms.empty()) {
    if (multiply(plan, plan.algorithms.front(), arrays)) return true;
    plan.algorithms.erase(plan.algorithms.begin());
  }
  return false;
}

// Returns a plan with the algorithms that cuBLASLt suggests for the product `p`. cuBLASLt uses column-major
// matrices, so the operands of the row-major product are swapped.
//
// The algorithms that cuBLASLt suggests depend on the alignment of `bias`, but not on its address. The caller
// ensures that `bias` is aligned to 16 bytes, so the plan can be reused with other bias arrays.
template <class T, class Operand>
Plan make_plan(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias,
               cublasComputeType_t compute) {
  Plan plan;
  cublasLtMatmulDesc_t matmul{};
  check_status(cublasLtMatmulDescCreate(&matmul, compute, CUDA_R_32F));
  plan.matmul.reset(matmul);
  set_attribute(plan, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_attribute(plan, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_attribute(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set_attribute(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  plan.a = make_layout(kCudaType<Operand>, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
  plan.b = make_layout(kCudaType<Operand>, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
  plan.c = make_layout(kCudaType<T>, p.n, p.m, p.ldc);
  plan.algorithms = find_algorithms(plan);
  return plan;
}

// Computes the product `p` with cuBLASLt. Returns false and does nothing if cuBLASLt does not support the
// product. The plan of the product is cached for later calls by the same thread.
template <class T, class Operand>
bool run_planned_gemm(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || !are_aligned(p.a, p.b, p.c, bias)) return false;
  const bool tf32 = std::is_same_v<Operand, float> && get_context().precision == Precision::tf32;
  using Key = std::tuple<int, cublasLtEpilogue_t, bool, bool, bool, int64_t, int64_t, int64_t, int64_t,
                         int64_t, int64_t>;
  static thread_local std::map<Key, Plan> plans;
  const Key key{
      get_context().device, epilogue, tf32, p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.lda, p.ldb, p.ldc};
  auto found = plans.find(key);
  if (found == plans.end()) {
    const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    found = plans.emplace(key, make_plan(p, epilogue, bias, compute)).first;
  }
  set_attribute(found->second, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (!multiply(found->second, {p.a, p.b, p.c})) return false;
  ++launch_count;
  return true;
}

}  // namespace

template <class T, class Operand>
bool try_gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu) {
  return run_planned_gemm(product, relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS, bias);
}

template <class Operand>
bool try_gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias) {
  return run_planned_gemm(product, CUBLASLT_EPILOGUE_BGRADB, gbias);
}

template bool try_gemm_with_bias(const Gemm<float>&, const float*, bool);
template bool try_gemm_with_bias(const Gemm<float, BFloat16>&, const float*, bool);
template bool try_gemm_with_bias(const Gemm<BFloat16>&, const BFloat16*, bool);
template bool try_gemm_with_bias_gradient(const Gemm<float>&, float*);
template bool try_gemm_with_bias_gradient(const Gemm<float, BFloat16>&, float*);

}  // namespace tapeformer::cuda
