// A record of the live memory blocks of all caching allocators. find_live_block() returns the block that
// contains an address. Blocks are recorded only while a BlockRecordingScope exists.
#pragma once

#include <cstdint>

namespace tapeformer {

struct LiveBlock {
  const void* begin = nullptr;
  int64_t bytes = 0;  // requested bytes; 0 if there is no block
};

// While an object of this class exists, the blocks that any thread allocates are recorded. At most one object
// may exist at a time.
class BlockRecordingScope {
 public:
  BlockRecordingScope();
  ~BlockRecordingScope();
  BlockRecordingScope(const BlockRecordingScope&) = delete;
  BlockRecordingScope& operator=(const BlockRecordingScope&) = delete;
};

// Returns the recorded live block that contains an address, or a block of 0 bytes if no block contains the
// address.
LiveBlock find_live_block(const void* address);

// CachingAllocator calls record_allocated_block() and record_released_block() for each block. Without a
// BlockRecordingScope, the two functions do nothing.
void record_allocated_block(const void* address, int64_t bytes);
void record_released_block(const void* address);

}  // namespace tapeformer
