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

using Algorithm = cublasLtMatmulAlgo_t;

// The descriptors of a product and its algorithms, in the order in which they are tried. Created once per
// shape, types, layout and epilogue.
struct Plan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> matmul;
  Layout a, b, c;
  std::vector<Algorithm> algorithms;  // empty if cuBLASLt cannot compute the product
};

// The arrays of a product, and its scale.
struct Arrays {
  const void *a, *b;
  void* c;
  float alpha;
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

// Returns the algorithms that cuBLASLt offers for a plan, the most promising first.
std::vector<Algorithm> offered_algorithms(const Plan& plan) {
  constexpr int kOffered = 8;
  cublasLtMatmulPreference_t made{};
  check_status(cublasLtMatmulPreferenceCreate(&made));
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_status(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kBlasWorkspaceBytes));
  // Partial sums are added in float32 and in a fixed order. Other reduction schemes round partial sums to the
  // type of the result, or add them in the order in which blocks finish.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kAlignment);
  cublasLtMatmulHeuristicResult_t results[kOffered] = {};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(context().blas_lt, plan.matmul.get(), plan.a.get(), plan.b.get(),
                                     plan.c.get(), plan.c.get(), made, kOffered, results, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_status(status);
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
  return algorithms;
}

// Computes the product with an algorithm. Returns false if the device or cuBLASLt does not support it.
bool multiply(const Plan& plan, const Algorithm& algorithm, const Arrays& arrays) {
  const float none = 0;
  const cublasStatus_t status =
      cublasLtMatmul(context().blas_lt, plan.matmul.get(), &arrays.alpha, arrays.b, plan.a.get(), arrays.a,
                     plan.b.get(), &none, arrays.c, plan.c.get(), arrays.c, plan.c.get(), &algorithm,
                     context().blas_workspace, kBlasWorkspaceBytes, context().stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH) return false;
  check_status(status);
  return true;
}

// Computes the product with the first algorithm that works, and removes the algorithms before it. Returns
// false if there is none.
bool multiply(Plan& plan, const Arrays& arrays) {
  while (!plan.algorithms.empty()) {
    if (multiply(plan, plan.algorithms.front(), arrays)) return true;
    plan.algorithms.erase(plan.algorithms.begin());
    add_product_counts({.failed_algorithms = 1});
  }
  return false;
}

// Returns the seconds of a few products, or nothing if the algorithm does not work.
std::optional<double> seconds_of(const Plan& plan, const Algorithm& algorithm, const Arrays& arrays) {
  // The emulation adds fixed times, so one product is enough.
  const int rounds = is_emulated() ? 1 : 3, repeats = is_emulated() ? 1 : 4;
  if (!multiply(plan, algorithm, arrays)) return std::nullopt;
  double seconds = INFINITY;
  for (int round = 0; round < rounds; ++round) {
    const EventTimer timer;
    for (int repeat = 0; repeat < repeats; ++repeat) multiply(plan, algorithm, arrays);
    seconds = std::min(seconds, timer.seconds());
  }
  return seconds;
}

// Moves an algorithm to the front. The order of the others does not change.
void put_first(Plan& plan, const Algorithm& algorithm) {
  std::erase_if(plan.algorithms, [&](const Algorithm& other) {
    return std::memcmp(&other, &algorithm, sizeof(algorithm)) == 0;
  });
  plan.algorithms.insert(plan.algorithms.begin(), algorithm);
}

// Moves the fastest algorithm to the front and removes the algorithms that do not work. Overwrites the result
// of the product.
void time_algorithms(Plan& plan, const Arrays& arrays) {
  // An algorithm replaces another one only if it is clearly faster.
  constexpr double kFaster = 0.97;
  std::vector<Algorithm> working;
  Algorithm fastest{};
  double least = 0;
  for (const Algorithm& algorithm : plan.algorithms) {
    const auto seconds = seconds_of(plan, algorithm, arrays);
    if (!seconds) {
      add_product_counts({.failed_algorithms = 1});
      continue;
    }
    if (working.empty() || *seconds < kFaster * least) {
      least = *seconds;
      fastest = algorithm;
    }
    working.push_back(algorithm);
  }
  plan.algorithms = std::move(working);
  if (!plan.algorithms.empty()) put_first(plan, fastest);
  add_product_counts({.timed_plans = 1});
}

// Moves the saved choice to the front, unless cuBLASLt does not accept it for this plan.
void restore_choice(Plan& plan, const std::string& saved) {
  Algorithm algorithm{};
  cublasLtMatmulHeuristicResult_t result{};
  const bool sized = saved.size() == sizeof(algorithm);
  if (sized) std::memcpy(&algorithm, saved.data(), sizeof(algorithm));
  const bool accepted =
      sized &&
      cublasLtMatmulAlgoCheck(context().blas_lt, plan.matmul.get(), plan.a.get(), plan.b.get(), plan.c.get(),
                              plan.c.get(), &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= static_cast<size_t>(kBlasWorkspaceBytes);
  if (accepted) put_first(plan, algorithm);
  add_product_counts({.reused_choices = accepted ? 1 : 0, .failed_algorithms = accepted ? 0 : 1});
}

// Sorts the algorithms of a plan: the earlier choice first or, without a choice, the fastest. While a graph
// is recorded, nothing can be measured, and the order of cuBLASLt remains.
void choose_algorithm(Plan& plan, const std::string& name, const Arrays& arrays) {
  ProductAlgorithms& choices = ProductAlgorithms::current();
  if (const auto choice = choices.find_choice(name)) return restore_choice(plan, *choice);
  if (!context().step_offset) time_algorithms(plan, arrays);
  if (plan.algorithms.empty()) return;
  const Algorithm& first = plan.algorithms.front();
  choices.save_choice(name, std::string(reinterpret_cast<const char*>(&first), sizeof(first)));
}

// Makes a plan with the algorithms that cuBLASLt offers. cuBLASLt uses column-major matrices, so the operands
// of the row-major product are swapped. The heuristic uses the alignment of `bias`, which is the same in all
// calls. Products without an epilogue have no bias.
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
  if (bias) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  plan.a = layout_of(kTypeOf<Operand>, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
  plan.b = layout_of(kTypeOf<Operand>, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
  plan.c = layout_of(kTypeOf<T>, p.n, p.m, p.ldc);
  plan.algorithms = offered_algorithms(plan);
  return plan;
}

// Rounds a size up to a number with at most three significant bits.
int64_t size_class(int64_t size) {
  int64_t step = 1;
  while (size > 8 * step) step *= 2;
  return (size + step - 1) / step * step;
}

// Returns the name of the choice for a plan. Products of similar sizes share a choice, so that batches of
// varying length need few measurements.
template <class T, class Operand>
std::string name_of_choice(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, bool tf32) {
  return concat_text("epilogue ", int64_t{epilogue}, " operands ", sizeof(Operand), " result ", sizeof(T),
                     tf32 ? " tf32 " : " ", p.transpose_a ? "t" : "n", p.transpose_b ? "t" : "n", " m ",
                     size_class(p.m), " n ", size_class(p.n), " k ", size_class(p.k), " lda ", p.lda, " ldb ",
                     p.ldb, " ldc ", p.ldc);
}

const char* text_of(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DEFAULT     ? ""
         : epilogue == CUBLASLT_EPILOGUE_BGRADB    ? "bias gradient"
         : epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ? "bias and relu"
                                                   : "bias";
}

// Computes the product with cuBLASLt. Returns false, without effect, if cuBLASLt cannot compute it.
template <class T, class Operand>
bool planned_gemm(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || !aligned(p.a, p.b, p.c, bias)) return false;
  const bool tf32 = std::is_same_v<Operand, float> && context().precision == Precision::tf32;
  const ProductAlgorithms& choices = ProductAlgorithms::current();
  using Key = std::tuple<int, int64_t, cublasLtEpilogue_t, bool, bool, bool, int64_t, int64_t, int64_t,
                         int64_t, int64_t, int64_t>;
  static thread_local std::map<Key, Plan> plans;
  const Key key{context().device,
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
  const Arrays arrays{p.a, p.b, p.c, epilogue == CUBLASLT_EPILOGUE_DEFAULT ? p.alpha : 1};
  auto found = plans.find(key);
  if (found == plans.end()) {
    Plan plan = make_plan(p, epilogue, bias, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    if (choices.is_timing()) choose_algorithm(plan, name_of_choice(p, epilogue, tf32), arrays);
    found = plans.emplace(key, std::move(plan)).first;
  }
  if (bias) set(found->second, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (!multiply(found->second, arrays)) return false;
  log_product(p, 1, text_of(epilogue), epilogue != CUBLASLT_EPILOGUE_BGRADB);
  return true;
}

template <class T, class Operand>
bool fused_gemm(const Gemm<T, Operand>& p, cublasLtEpilogue_t epilogue, const T* bias) {
  if (planned_gemm(p, epilogue, bias)) return true;
  if (p.m > 0 && p.n > 0 && p.k > 0) add_product_counts({.unfused_products = 1});
  return false;
}

}  // namespace

template <class T, class Operand>
bool timed_gemm(const Gemm<T, Operand>& product) {
  if (product.beta != 0 || !ProductAlgorithms::current().is_timing()) return false;
  return planned_gemm<T, Operand>(product, CUBLASLT_EPILOGUE_DEFAULT, nullptr);
}

template <class T, class Operand>
bool gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu) {
  return fused_gemm(product, relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS, bias);
}

template <class Operand>
bool gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias) {
  return fused_gemm(product, CUBLASLT_EPILOGUE_BGRADB, gbias);
}

template bool timed_gemm(const Gemm<float>&);
template bool timed_gemm(const Gemm<float, BFloat16>&);
template bool timed_gemm(const Gemm<BFloat16>&);
template bool gemm_with_bias(const Gemm<float>&, const float*, bool);
template bool gemm_with_bias(const Gemm<float, BFloat16>&, const float*, bool);
template bool gemm_with_bias(const Gemm<BFloat16>&, const BFloat16*, bool);
template bool gemm_with_bias_gradient(const Gemm<float>&, float*);
template bool gemm_with_bias_gradient(const Gemm<float, BFloat16>&, float*);

}  // namespace tapeformer::cuda
