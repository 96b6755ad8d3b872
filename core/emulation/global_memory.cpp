#include "core/emulation/global_memory.h"

#include <map>
#include <mutex>

namespace tapeformer::cuda::emulation {
namespace {

struct Blocks {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> ends;  // the end of each block, by its first address
};

Blocks& blocks() {
  static auto& all = *new Blocks;
  return all;
}

}  // namespace

void note_global_memory(const void* block, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(block);
  const std::scoped_lock lock(blocks().mutex);
  blocks().ends[begin] = begin + bytes;
}

void forget_global_memory(const void* block) {
  const std::scoped_lock lock(blocks().mutex);
  blocks().ends.erase(reinterpret_cast<uint64_t>(block));
}

std::vector<AddressRange> global_memory() {
  const std::scoped_lock lock(blocks().mutex);
  std::vector<AddressRange> ranges;
  for (const auto& [begin, end] : blocks().ends) ranges.push_back({begin, end});
  return ranges;
}

}  // namespace tapeformer::cuda::emulation
