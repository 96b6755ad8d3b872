// The positions of all heads and rounds, sorted by bucket, in device memory. ops/cpu/lsh_order.h defines
// slots, cells and codes.
#pragma once

#include "core/cuda/kernel.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cuda {

inline constexpr int32_t kNoCell = -1, kEmptySlot = -2;  // codes of a missing cell and of an empty slot

// A pair of cells that attend across the ends of the sequence. Cell `from` is in the first chunk of a round,
// and cell `code` in the last chunk of round `round`. Queries of `from` attend to keys of `code`. If `from`
// is kNoCell, there is no such pair.
struct LshWrapCell {
  int32_t from, round, code;
};

struct LshOrderView {
  const int32_t *sorted = nullptr, *codes = nullptr;  // (batch * heads, rounds, length)
  const LshWrapCell* wraps = nullptr;                 // (batch * heads, rounds)
};

// Returns the valid length of an example.
__device__ inline int64_t lsh_valid_length(const LshAttentionShape& s, int64_t example) {
  return read_valid_length(s.lengths, example, s.length);
}

// The part of an LshOrderView for one head.
struct LshHeadOrder {
  LshOrderView all;
  int64_t index, length, rounds, chunk_length, valid, chunks;

  __device__ LshHeadOrder(const LshAttentionShape& s, const LshOrderView& view, int64_t head)
      : all(view),
        index(head),
        length(s.length),
        rounds(s.rounds),
        chunk_length(s.chunk_length),
        valid(lsh_valid_length(s, head / s.heads)),
        chunks((valid + chunk_length - 1) / chunk_length) {}

  __device__ int64_t slots(int64_t chunk) const {
    const int64_t left = valid - chunk * chunk_length;
    return left < chunk_length ? left : chunk_length;
  }
  __device__ const int32_t* positions(int64_t round, int64_t chunk) const {
    return all.sorted + (index * rounds + round) * length + chunk * chunk_length;
  }
  __device__ int32_t code(int64_t round, int64_t position) const {
    return all.codes[(index * rounds + round) * length + position];
  }
  __device__ LshWrapCell wrap(int64_t round) const { return all.wraps[index * rounds + round]; }
  // Returns the look-back cell of the cell `code`. Queries of the cell `code` also attend to the keys of the
  // look-back cell. The member `from` of the result is unused.
  __device__ LshWrapCell look_back(int64_t round, int32_t code) const {
    const LshWrapCell at = wrap(round);
    return code == at.from ? at : LshWrapCell{0, static_cast<int32_t>(round), code - 1};
  }
};

// Sorts the buckets (batch, heads, rounds, length) of all heads.
class LshOrders {
 public:
  LshOrders(const LshAttentionShape& shape, const int32_t* buckets);
  LshOrderView view() const { return {sorted_.data(), codes_.data(), wraps_.data()}; }

 private:
  Scratch<int32_t> sorted_, codes_;
  Scratch<LshWrapCell> wraps_;
};

}  // namespace tapeformer::cuda
