#include "ops/kernels/gumbel.h"

#include <cmath>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {

template <class T>
void add_gumbel_noise(Backend, const T* x, const RandomStream& stream, int64_t offset, T* y, int64_t n) {
  constexpr int64_t kGrain = 1 << 10;
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      y[i] = x[i] - static_cast<T>(std::log(-std::log(stream.uniform(static_cast<uint64_t>(offset + i)))));
  });
}

template <class T>
struct GumbelKernels {
  inline static const FunctionInstances all{&add_gumbel_noise<T>};
};
template struct GumbelKernels<float>;
template struct GumbelKernels<double>;

}  // namespace tapeformer::cpu
