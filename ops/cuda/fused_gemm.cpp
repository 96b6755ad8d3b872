#include "ops/cuda/fused_gemm.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/devices.h"
#include "core/cuda/product_algorithms.h"
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

// The arguments of a matrix product c = alpha * op(a) op(b).
struct ProductArrays {
  const void *a, *b;
  void* c;
  float alpha;
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
  const float beta = 0;
  const cublasStatus_t status =
      cublasLtMatmul(get_context().blas_lt, plan.matmul.get(), &arrays.alpha, arrays.b, plan.a.get(),
                     arrays.a, plan.b.get(), &beta, arrays.c, plan.c.get(), arrays.c, plan.c.get(),
                     &algorithm, get_context().blas_workspace, kBlasWorkspaceBytes, get_context().stream);
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
    add_product_tuning_counts({.failed_algorithms = 1});
  }
  return false;
}

// Measures the time of a few consecutive matrix products several times, and returns the shortest measured
// time in seconds. Returns nullopt if the algorithm is not supported.
std::optional<double> measure_seconds(const Plan& plan, const Algorithm& algorithm,
                                      const ProductArrays& arrays) {
  // In the emulation, a product has a fixed time, so one product is enough.
  const int rounds = is_emulated() ? 1 : 3, repeats = is_emulated() ? 1 : 4;
  if (!multiply(plan, algorithm, arrays)) return std::nullopt;
  double seconds = INFINITY;
  for (int round = 0; round < rounds; ++round) {
    const EventTimer timer;
    for (int repeat = 0; repeat < repeats; ++repeat) multiply(plan, algorithm, arrays);
    seconds = std::min(seconds, timer.measure_elapsed_seconds());
  }
  return seconds;
}

void move_to_front(Plan& plan, const Algorithm& algorithm) {
  std::erase_if(plan.algorithms, [&](const Algorithm& candidate) {
    return std::memcmp(&candidate, &algorithm, sizeof(algorithm)) == 0;
  });
  plan.algorithms.insert(plan.algorithms.begin(), algorithm);
}

// Moves the fastest algorithm of the plan to the front, and removes the algorithms that are not supported.
// Overwrites arrays.c.
void time_algorithms(Plan& plan, const ProductArrays& arrays) {
  // An algorithm replaces the fastest previous algorithm only if its time is less than kMaxTimeRatio times
  // the time of the previous algorithm.
  constexpr double kMaxTimeRatio = 0.97;
  std::vector<Algorithm> working_algorithms;
  Algorithm fastest{};
  double fastest_seconds = 0;
  for (const Algorithm& algorithm : plan.algorithms) {
    const auto seconds = measure_seconds(plan, algorithm, arrays);
    if (!seconds) {
      add_product_tuning_counts({.failed_algorithms = 1});
      continue;
    }
    if (working_algorithms.empty() || *seconds < kMaxTimeRatio * fastest_seconds) {
      fastest_seconds = *seconds;
      fastest = algorithm;
    }
    working_algorithms.push_back(algorithm);
  }
  plan.algorithms = std::move(working_algorithms);
  if (!plan.algorithms.empty()) move_to_front(plan, fastest);
  add_product_tuning_counts({.timed_plans = 1});
}

// Interprets `saved` as the bytes of a cublasLtMatmulAlgo_t. If cuBLASLt accepts this algorithm for the
// product of `plan`, moves the algorithm to the front of plan.algorithms.
void restore_choice(Plan& plan, const std::string& saved) {
  Algorithm algorithm{};
  cublasLtMatmulHeuristicResult_t result{};
  const bool has_valid_size = saved.size() == sizeof(algorithm);
  if (has_valid_size) std::memcpy(&algorithm, saved.data(), sizeof(algorithm));
  const bool is_accepted =
      has_valid_size &&
      cublasLtMatmulAlgoCheck(get_context().blas_lt, plan.matmul.get(), plan.a.get(), plan.b.get(),
                              plan.c.get(), plan.c.get(), &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= static_cast<size_t>(kBlasWorkspaceBytes);
  if (is_accepted) move_to_front(plan, algorithm);
  add_product_tuning_counts(
      {.reused_choices = is_accepted ? 1 : 0, .failed_algorithms = is_accepted ? 0 : 1});
}

// Chooses the algorithm that later calls use, and moves it to the front of plan.algorithms. If
// ProductAlgorithmChoices contains a choice for `name`, this choice is used. Otherwise the fastest algorithm
// is chosen, and the choice is saved. While a graph is being recorded, algorithms cannot be timed, so the
// first algorithm of the plan is chosen.
void choose_algorithm(Plan& plan, const std::string& name, const ProductArrays& arrays) {
  ProductAlgorithmChoices& choices = ProductAlgorithmChoices::current();
  if (const auto choice = choices.find_choice(name)) return restore_choice(plan, *choice);
  if (!get_context().step_offset) time_algorithms(plan, arrays);
  if (plan.algorithms.empty()) return;
  const Algorithm& first = plan.algorithms.front();
  choices.save_choice(name, std::string(reinterpret_cast<const char*>(&first), sizeof(first)));
}

// Returns a plan with the algorithms that cuBLASLt suggests for the product `p`. cuBLASLt uses column-major
// matrices, so the operands of the row-major product are swapped. `bias` is null if the product has no
// epilogue.
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
  if (bias) set_attribute(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  plan.a = make_layout(kCudaType<Operand>, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
  plan.b = make_layout(kCudaType<Operand>, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
  plan.c = make_layout(kCudaType<T>, p.n, p.m, p.ldc);
  plan.algorithms = find_algorithms(plan);
  return plan;
}

// Returns `size` rounded up to a number with at most three significant bits.
int64_t round_size(int64_t size) {
  int64_t step = 1;
  while (size > 8 * step) step *= 2;
  return (size + step - 1) / step * step;
}

// Returns the name under which ProductAlgorithmChoices stores the chosen algorithm of a product. Products
// whose sizes are equal after round_size() have the same name, so batches of varying length need few
// measurements.
template <class T, class Operand>
std::string make_choice_name(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, bool tf32) {
  return concat_text("epilogue ", int64_t{epilogue}, " operands ", sizeof(Operand), " result ", sizeof(T),
                     tf32 ? " tf32 " : " ", p.transpose_a ? "t" : "n", p.transpose_b ? "t" : "n", " m ",
                     round_size(p.m), " n ", round_size(p.n), " k ", round_size(p.k), " lda ", p.lda, " ldb ",
                     p.ldb, " ldc ", p.ldc);
}

// Computes the product `p` with cuBLASLt. Returns false and does nothing if cuBLASLt does not support the
// product. The plan of the product is cached for later calls by the same thread.
template <class T, class Operand>
bool run_planned_gemm(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || !are_aligned(p.a, p.b, p.c, bias)) return false;
  const bool tf32 = std::is_same_v<Operand, float> && get_context().precision == Precision::tf32;
  const ProductAlgorithmChoices& choices = ProductAlgorithmChoices::current();
  using Key = std::tuple<int, int64_t, cublasLtEpilogue_t, bool, bool, bool, int64_t, int64_t, int64_t,
                         int64_t, int64_t, int64_t>;
  static thread_local std::map<Key, Plan> plans;
  const Key key{get_context().device,
                choices.generation(),
                epilogue,
                tf32,
                p.transpose_a,
                p.transpose_b,
                p.m,
                p.n,
                p.k,
                p.lda,
                p.ldb,
                p.ldc};
  const ProductArrays arrays{p.a, p.b, p.c, epilogue == CUBLASLT_EPILOGUE_DEFAULT ? p.alpha : 1};
  auto found = plans.find(key);
  if (found == plans.end()) {
    Plan plan = make_plan(p, epilogue, bias, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    if (choices.is_tuning()) choose_algorithm(plan, make_choice_name(p, epilogue, tf32), arrays);
    found = plans.emplace(key, std::move(plan)).first;
  }
  if (bias) set_attribute(found->second, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (!multiply(found->second, arrays)) return false;
  ++launch_count;
  return true;
}

// Computes the product `p` with an epilogue. If run_planned_gemm() returns false, run_fused_gemm() also
// returns false, and adds 1 to ProductTuningCounts::unfused_products unless m, n or k is 0.
template <class T, class Operand>
bool run_fused_gemm(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias) {
  if (run_planned_gemm(p, epilogue, bias)) return true;
  if (p.m > 0 && p.n > 0 && p.k > 0) add_product_tuning_counts({.unfused_products = 1});
  return false;
}

}  // namespace

template <class T, class Operand>
bool try_tuned_gemm(const Gemm<T, Operand>& product) {
  if (product.beta != 0 || !ProductAlgorithmChoices::current().is_tuning()) return false;
  return run_planned_gemm<T, Operand>(product, CUBLASLT_EPILOGUE_DEFAULT, nullptr);
}

template <class T, class Operand>
bool try_gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu) {
  return run_fused_gemm(product, relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS, bias);
}

template <class Operand>
bool try_gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias) {
  return run_fused_gemm(product, CUBLASLT_EPILOGUE_BGRADB, gbias);
}

template bool try_tuned_gemm(const Gemm<float>&);
template bool try_tuned_gemm(const Gemm<float, BFloat16>&);
template bool try_tuned_gemm(const Gemm<BFloat16>&);
template bool try_gemm_with_bias(const Gemm<float>&, const float*, bool);
template bool try_gemm_with_bias(const Gemm<float, BFloat16>&, const float*, bool);
template bool try_gemm_with_bias(const Gemm<BFloat16>&, const BFloat16*, bool);
template bool try_gemm_with_bias_gradient(const Gemm<float>&, float*);
template bool try_gemm_with_bias_gradient(const Gemm<float, BFloat16>&, float*);

}  // namespace tapeformer::cuda
