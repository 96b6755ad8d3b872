#include "train/distributed/replicas.h"

#include <cstring>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

// Returns a 64-bit hash of the bytes of a contiguous tensor. Each step of the hash is invertible, so a change
// of a single word always changes the hash.
uint64_t compute_hash(const Tensor& tensor) {
  const Tensor on_host = tensor.alias().to(kCpu);
  const auto* const bytes = static_cast<const char*>(on_host.raw_data());
  const auto size = static_cast<size_t>(on_host.bytes());
  constexpr size_t kWord = sizeof(uint64_t);
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  uint64_t hash = size;
  for (size_t at = 0; at < size; at += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(kWord, size - at));
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

void broadcast_tensors(Communicator& processes, const NamedReplicas& tensors) {
  for (const auto& [name, tensor] : tensors) processes.broadcast(tensor);
}

void require_equal_tensors(Communicator& processes, const NamedReplicas& tensors, int64_t step) {
  if (processes.size() == 1) return;
  const auto count = static_cast<int64_t>(tensors.size());
  const Tensor hashes = Tensor::zeros({processes.size(), count}, DType::int64);
  int64_t* const all = hashes.data<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    all[processes.rank() * count + i] =
        static_cast<int64_t>(compute_hash(tensors[static_cast<size_t>(i)].second));
  processes.all_reduce(hashes);
  for (int64_t rank = 1; rank < processes.size(); ++rank)
    for (int64_t i = 0; i < count; ++i)
      if (all[rank * count + i] != all[i])
        throw std::runtime_error(
            concat_text("after step ", step, ", the weights of process ", rank,
                        " differ from the weights of process 0: ", tensors[static_cast<size_t>(i)].first,
                        "; the processes must run on processors with the same instruction set"));
}

}  // namespace tapeformer
