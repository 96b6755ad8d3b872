// Window of keys around the position of a query, as in local attention.
#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace tapeformer {

// The positions are divided into blocks of `block_size` positions. If a block begins at position `first`, all
// its queries attend to the keys [first - before, first + block_size + after). If `block_size` is 1, the
// window of each query contains `before` keys, the key at the position of the query, and `after` keys. The
// default window contains all keys.
struct KeyWindow {
  static constexpr int64_t kUnlimited = int64_t{1} << 40;
  int64_t block_size = 1, before = kUnlimited, after = kUnlimited;

  TAPEFORMER_HOST_DEVICE bool is_limited() const { return before < kUnlimited || after < kUnlimited; }
  // Returns the maximum number of positions from the first key of a window to the query, both included. In
  // causal attention, a query has at most this number of keys.
  TAPEFORMER_HOST_DEVICE int64_t max_causal_key_count() const { return before + block_size; }

  // begin() returns the first key of the window of a query, which is at least 0. end() returns the key after
  // the last key of the window, which may exceed the number of keys.
  TAPEFORMER_HOST_DEVICE int64_t begin(int64_t query) const {
    const int64_t first = query / block_size * block_size - before;
    return first < 0 ? 0 : first;
  }
  TAPEFORMER_HOST_DEVICE int64_t end(int64_t query) const {
    return query / block_size * block_size + block_size + after;
  }

  // first_query() returns the first query whose window contains a key. end_query() returns the query after
  // the last query whose window contains the key.
  TAPEFORMER_HOST_DEVICE int64_t first_query(int64_t key) const {
    return key < after ? 0 : (key - after) / block_size * block_size;
  }
  TAPEFORMER_HOST_DEVICE int64_t end_query(int64_t key) const {
    return (key + before) / block_size * block_size + block_size;
  }
};

}  // namespace tapeformer
