#include "ops/cuda/fused_gemm.h"

#include <atomic>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>

#include "core/cuda/context.h"
#include "ops/cuda/log_product.h"

namespace tapeformer::cuda {
namespace {

constexpr uint32_t kAlignment = 16;  // in bytes

template <class... T>
bool aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kAlignment == 0) && ...);
}

template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, cublasStatus_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

// The descriptors of a product and the algorithm that cuBLASLt selects for it. Created once per shape.
struct Plan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> matmul;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  bool possible = false;
};

template <class T>
constexpr cudaDataType_t kTypeOf = std::is_same_v<T, BFloat16> ? CUDA_R_16BF : CUDA_R_32F;

Layout layout_of(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout{};
  check_status(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), stride));
  return Layout(layout);
}

template <class T>
void set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_status(cublasLtMatmulDescSetAttribute(plan.matmul.get(), attribute, &value, sizeof(value)));
}

void choose_algorithm(Plan& plan) {
  cublasLtMatmulPreference_t made{};
  check_status(cublasLtMatmulPreferenceCreate(&made));
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_status(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kBlasWorkspace));
  // Partial sums are added in float32. Other reduction schemes round partial sums to the type of the result.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kAlignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(context().blas_lt, plan.matmul.get(), plan.a.get(), plan.b.get(),
                                     plan.c.get(), plan.c.get(), made, 1, &result, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_status(status);
  plan.possible = status == CUBLAS_STATUS_SUCCESS && found == 1 && result.state == CUBLAS_STATUS_SUCCESS;
  plan.algorithm = result.algo;
}

// Selects an algorithm. cuBLASLt uses column-major matrices, so the operands of the row-major product are
// swapped. The heuristic uses the alignment of `bias`, which is the same in all calls.
template <class T, class Operand>
Plan make_plan(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias,
               cublasComputeType_t compute) {
  Plan plan;
  cublasLtMatmulDesc_t matmul{};
  check_status(cublasLtMatmulDescCreate(&matmul, compute, CUDA_R_32F));
  plan.matmul.reset(matmul);
  set(plan, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  plan.a = layout_of(kTypeOf<Operand>, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
  plan.b = layout_of(kTypeOf<Operand>, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
  plan.c = layout_of(kTypeOf<T>, p.n, p.m, p.ldc);
  choose_algorithm(plan);
  return plan;
}

std::atomic<int64_t> unfused = 0;  // number of products for which cuBLASLt has no algorithm

template <class T, class Operand>
bool fused_gemm(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || !aligned(p.a, p.b, p.c, bias)) return false;
  const bool tf32 = std::is_same_v<Operand, float> && context().precision == Precision::tf32;
  using Key = std::tuple<int, cublasLtEpilogue_t, bool, bool, bool, int64_t, int64_t, int64_t, int64_t,
                         int64_t, int64_t>;
  static thread_local std::map<Key, Plan> plans;
  const Key key{
      context().device, epilogue, tf32, p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.lda, p.ldb, p.ldc};
  auto found = plans.find(key);
  if (found == plans.end())
    found = plans
                .emplace(key, make_plan(p, epilogue, bias,
                                        tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F))
                .first;
  const Plan& plan = found->second;
  if (!plan.possible) {
    ++unfused;
    return false;
  }
  set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const bool sums_operand = epilogue == CUBLASLT_EPILOGUE_BGRADB;
  log_product(p, 1,
              sums_operand                              ? "bias gradient"
              : epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ? "bias and relu"
                                                        : "bias",
              !sums_operand);
  const float one = 1, none = 0;
  check_status(cublasLtMatmul(context().blas_lt, plan.matmul.get(), &one, p.b, plan.a.get(), p.a,
                              plan.b.get(), &none, p.c, plan.c.get(), p.c, plan.c.get(), &plan.algorithm,
                              context().blas_workspace, kBlasWorkspace, context().stream));
  return true;
}

}  // namespace

int64_t unfused_products() {
  return unfused;
}

template <class T, class Operand>
bool gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu) {
  return fused_gemm(product, relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS, bias);
}

template <class Operand>
bool gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias) {
  return fused_gemm(product, CUBLASLT_EPILOGUE_BGRADB, gbias);
}

template bool gemm_with_bias(const Gemm<float>&, const float*, bool);
template bool gemm_with_bias(const Gemm<float, BFloat16>&, const float*, bool);
template bool gemm_with_bias(const Gemm<BFloat16>&, const BFloat16*, bool);
template bool gemm_with_bias_gradient(const Gemm<float>&, float*);
template bool gemm_with_bias_gradient(const Gemm<float, BFloat16>&, float*);

}  // namespace tapeformer::cuda
