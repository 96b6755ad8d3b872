#include "ops/kernels/rounded_weights.h"

#include "ops/cuda/array_list.h"

namespace tapeformer::cuda {
namespace {

// Rounds elements [i, i + V) of array.source to bfloat16, and writes the rounded elements to array.target.
template <int V>
__device__ void round_group(const RoundingTask& array, int64_t i) {
  float values[V];
  load_group<V>(array.source + i, values);
  store_group<V>(array.target + i, values);
}

// Rounds one chunk of one array per block. Uses groups of 4 elements if the arrays are aligned to 16 bytes.
__global__ void round_kernel(ArrayList<RoundingTask> list) {
  constexpr int kPack = Pack<float>::kSize;
  const ArrayChunk chunk = find_block_chunk(list);
  const RoundingTask array = list.entries[chunk.entry_index];
  int64_t groups_end = chunk.begin;
  if ((reinterpret_cast<uintptr_t>(array.source) | reinterpret_cast<uintptr_t>(array.target)) % 16 == 0) {
    groups_end += (chunk.end - chunk.begin) / kPack * kPack;
    for (int64_t i = chunk.begin + threadIdx.x * kPack; i < groups_end; i += blockDim.x * kPack)
      round_group<kPack>(array, i);
  }
  for (int64_t i = groups_end + threadIdx.x; i < chunk.end; i += blockDim.x) round_group<1>(array, i);
}

}  // namespace

void round_arrays(Backend, const RoundingTask* list, int64_t count) {
  for_each_list("round_arrays", list, count, [&](const ArrayList<RoundingTask>& sublist, int64_t) {
    launch(round_kernel, make_row_launch(sublist.first_chunk[sublist.entry_count]), sublist);
  });
}

}  // namespace tapeformer::cuda
