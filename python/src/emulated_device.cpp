// Access to the emulated CUDA device for the tests. Only builds that emulate CUDA contain this file.
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/emulation/global_memory.h"
#include "core/emulation/stream_waits.h"
#include "python/src/tensor_access.h"

namespace tapeformer::python {
namespace {

// Returns a NumPy array over `bytes` bytes of device memory, which the emulation keeps in host memory.
nb::ndarray<nb::numpy, uint8_t> allocate_emulated(size_t bytes) {
  auto owner = std::make_unique<Tensor>(
      Tensor::empty({static_cast<int64_t>(bytes)}, DType::uint8, {DeviceType::cuda, 0}));
  auto* const data = static_cast<uint8_t*>(owner->raw_data());
  const nb::capsule capsule(owner.release(), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return nb::ndarray<nb::numpy, uint8_t>(data, {bytes}, capsule);
}

// Returns and forgets the waits of this thread as tuples (earlier stream, later stream).
auto take_stream_waits() {
  std::vector<std::tuple<uintptr_t, uintptr_t>> result;
  for (const auto& wait : std::exchange(cuda::emulation::stream_waits, {}))
    result.emplace_back(reinterpret_cast<uintptr_t>(wait.earlier), reinterpret_cast<uintptr_t>(wait.later));
  return result;
}

}  // namespace

bool is_emulated_memory(const void* data) {
  const auto blocks = cuda::emulation::list_global_memory();
  return std::any_of(blocks.begin(), blocks.end(),
                     [=](const auto& block) { return block.contains(reinterpret_cast<uint64_t>(data)); });
}

void bind_emulated_device(nb::module_& m) {
  m.def("allocate_emulated", &allocate_emulated);
  m.def("take_stream_waits", &take_stream_waits);
}

}  // namespace tapeformer::python
