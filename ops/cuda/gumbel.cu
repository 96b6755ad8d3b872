#include "ops/kernels/gumbel.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"

namespace tapeformer::cuda {
namespace {

template <class T>
__global__ void add_gumbel_kernel(const T* x, GraphRandomStream stream, int64_t offset, T* y, int64_t n) {
  const RandomStream current = stream.current_stream();
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = x[i] - static_cast<T>(std::log(-std::log(current.uniform(static_cast<uint64_t>(offset + i)))));
}

}  // namespace

template <class T>
void add_gumbel_noise(Backend, const T* x, const RandomStream& stream, int64_t offset, T* y, int64_t n) {
  launch(add_gumbel_kernel<T>, make_elementwise_launch(n), x, GraphRandomStream(stream), offset, y, n);
}

template <class T>
struct GumbelKernels {
  inline static const FunctionInstances all{&add_gumbel_noise<T>};
};
template struct GumbelKernels<float>;
template struct GumbelKernels<double>;

}  // namespace tapeformer::cuda
