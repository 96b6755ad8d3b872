#include "core/live_blocks.h"

#include <atomic>
#include <map>
#include <mutex>

#include "core/errors.h"

namespace tapeformer {
namespace {

struct Blocks {
  std::mutex mutex;
  std::map<const char*, int64_t> bytes;  // maps the first address of a block to its size
};

Blocks& get_live_blocks() {
  static auto& all = *new Blocks;
  return all;
}

std::atomic<bool> records_blocks = false;

}  // namespace

BlockRecordingScope::BlockRecordingScope() {
  check(!records_blocks.exchange(true), "BlockRecordingScope", "blocks are already recorded");
}
BlockRecordingScope::~BlockRecordingScope() {
  records_blocks = false;
  const std::scoped_lock lock(get_live_blocks().mutex);
  get_live_blocks().bytes.clear();
}

LiveBlock find_live_block(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  const std::scoped_lock lock(get_live_blocks().mutex);
  auto found = get_live_blocks().bytes.upper_bound(at);
  if (found == get_live_blocks().bytes.begin()) return {};
  --found;
  return at < found->first + found->second ? LiveBlock{found->first, found->second} : LiveBlock{};
}

void record_allocated_block(const void* address, int64_t bytes) {
  if (!records_blocks) return;
  const std::scoped_lock lock(get_live_blocks().mutex);
  get_live_blocks().bytes[static_cast<const char*>(address)] = bytes;
}

void record_released_block(const void* address) {
  if (!records_blocks) return;
  const std::scoped_lock lock(get_live_blocks().mutex);
  get_live_blocks().bytes.erase(static_cast<const char*>(address));
}

}  // namespace tapeformer
