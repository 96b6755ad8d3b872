#include "core/emulation/global_memory.h"

#include <map>
#include <mutex>

namespace tapeformer::cuda::emulation {
namespace {

struct BlockTable {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> ends;  // maps the first address of a block to its end
};

BlockTable& block_table() {
  static auto& instance = *new BlockTable;
  return instance;
}

}  // namespace

void register_global_memory(const void* block, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(block);
  const std::scoped_lock lock(block_table().mutex);
  block_table().ends[begin] = begin + bytes;
}

void unregister_global_memory(const void* block) {
  const std::scoped_lock lock(block_table().mutex);
  block_table().ends.erase(reinterpret_cast<uint64_t>(block));
}

std::vector<AddressRange> list_global_memory() {
  const std::scoped_lock lock(block_table().mutex);
  std::vector<AddressRange> ranges;
  for (const auto& [begin, end] : block_table().ends) ranges.push_back({begin, end});
  return ranges;
}

}  // namespace tapeformer::cuda::emulation
