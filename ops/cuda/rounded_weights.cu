#include "ops/kernels/rounded_weights.h"

#include "ops/cuda/array_list.h"

namespace tapeformer::cuda {
namespace {

// Rounds V elements from element i.
template <int V>
__device__ void round_group(const RoundedArray& array, int64_t i) {
  float values[V];
  load_group<V>(array.source + i, values);
  store_group<V>(array.target + i, values);
}

__global__ void round_kernel(ArrayList<RoundedArray> list) {
  constexpr int kPack = Pack<float>::kSize;
  const Chunk chunk = chunk_of_block(list);
  const RoundedArray array = list.arrays[chunk.slot];
  int64_t done = chunk.begin;
  if ((reinterpret_cast<uintptr_t>(array.source) | reinterpret_cast<uintptr_t>(array.target)) % 16 == 0) {
    done += (chunk.end - chunk.begin) / kPack * kPack;
    for (int64_t i = chunk.begin + threadIdx.x * kPack; i < done; i += blockDim.x * kPack)
      round_group<kPack>(array, i);
  }
  for (int64_t i = done + threadIdx.x; i < chunk.end; i += blockDim.x) round_group<1>(array, i);
}

}  // namespace

void round_arrays(Backend, const RoundedArray* list, int64_t count) {
  for_lists("round_arrays", list, count, [&](const ArrayList<RoundedArray>& part, int64_t) {
    const auto bytes = static_cast<int64_t>(sizeof(float) + sizeof(BFloat16));
    launch(round_kernel, over_rows(part.first_chunk[part.count]).with_bytes(bytes * elements_of(part)), part);
  });
}

}  // namespace tapeformer::cuda
