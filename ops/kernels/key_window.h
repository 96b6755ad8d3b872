// Windows of keys around the position of a query.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tapeformer {

// The positions are divided into blocks of `block` positions. A query in the block [first, first + block)
// attends to the keys [first - before, first + block + after). With block = 1 the window slides with the
// query. The default is all keys.
struct KeyWindow {
  static constexpr int64_t kUnlimited = int64_t{1} << 40;
  int64_t block = 1, before = kUnlimited, after = kUnlimited;

  TAPEFORMER_HOST_DEVICE bool is_limited() const { return before < kUnlimited || after < kUnlimited; }
  // Returns the maximum number of keys from the first key of a window to the query itself.
  TAPEFORMER_HOST_DEVICE int64_t span() const { return before + block; }

  // begin() and end() return the first key of the window of a query, and the key after its last key. The
  // first key is at least
  // 0. The end may exceed the number of keys.
  TAPEFORMER_HOST_DEVICE int64_t begin(int64_t query) const {
    const int64_t first = query / block * block - before;
    return first < 0 ? 0 : first;
  }
  TAPEFORMER_HOST_DEVICE int64_t end(int64_t query) const { return query / block * block + block + after; }

  // first_query() and end_query() return the first query whose window contains a key, and the query after the
  // last such query.
  TAPEFORMER_HOST_DEVICE int64_t first_query(int64_t key) const {
    return key < after ? 0 : (key - after) / block * block;
  }
  TAPEFORMER_HOST_DEVICE int64_t end_query(int64_t key) const {
    return (key + before) / block * block + block;
  }
};

}  // namespace tapeformer
