// The positions of each head and round, sorted by bucket, in device memory. ops/cpu/lsh_order.h defines the
// terms slot, cell and code.
#pragma once

#include "core/cuda/kernel.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cuda {

// Special values that are not codes of cells. kNoCell stands for a cell that does not exist, and kEmptySlot
// is the code of a slot without a position.
inline constexpr int32_t kNoCell = -1, kEmptySlot = -2;

// A pair of cells that connects the first chunk of a round with the last chunk of round `key_round`. The
// queries in cell `query_code` of the first chunk attend to the keys in cell `key_code` of the last chunk. If
// the round has no such pair of cells, query_code is kNoCell.
struct LshWrapPair {
  int32_t query_code, key_round, key_code;
};

// Pointers to the arrays of an LshOrders object, for kernels.
struct LshOrderView {
  const int32_t* sorted_positions = nullptr;  // (batch * heads, rounds, length), position in each slot
  const int32_t* codes = nullptr;  // (batch * heads, rounds, length), code of the cell of each position
  const LshWrapPair* wrap_pairs = nullptr;  // (batch * heads, rounds)
};

__device__ inline int64_t get_lsh_valid_length(const LshAttentionShape& s, int64_t example) {
  return get_valid_length(s.lengths, example, s.length);
}

// The sorted positions and the cells of one head. The member `head` is example * heads + the index of the
// head in the example.
struct LshHeadOrder {
  LshOrderView view;
  int64_t head, length, rounds, chunk_length;
  int64_t valid_length;  // number of positions that are not masked
  int64_t chunk_count;   // number of chunks with valid positions

  __device__ LshHeadOrder(const LshAttentionShape& s, const LshOrderView& order_view, int64_t head_index)
      : view(order_view),
        head(head_index),
        length(s.length),
        rounds(s.rounds),
        chunk_length(s.chunk_length),
        valid_length(get_lsh_valid_length(s, head_index / s.heads)),
        chunk_count((valid_length + chunk_length - 1) / chunk_length) {}

  __device__ int64_t slot_count(int64_t chunk) const {
    const int64_t remaining = valid_length - chunk * chunk_length;
    return remaining < chunk_length ? remaining : chunk_length;
  }
  __device__ const int32_t* positions(int64_t round, int64_t chunk) const {
    return view.sorted_positions + (head * rounds + round) * length + chunk * chunk_length;
  }
  __device__ int32_t cell_code(int64_t round, int64_t position) const {
    return view.codes[(head * rounds + round) * length + position];
  }
  __device__ LshWrapPair wrap_pair(int64_t round) const { return view.wrap_pairs[head * rounds + round]; }
  // Returns the look-back cell of the cell `code`. The queries of a cell also attend to the keys of its
  // look-back cell. The members key_round and key_code of the result are the round and the code of the
  // look-back cell. The member query_code is not used.
  __device__ LshWrapPair find_look_back_cell(int64_t round, int32_t code) const {
    const LshWrapPair pair = wrap_pair(round);
    return code == pair.query_code ? pair : LshWrapPair{0, static_cast<int32_t>(round), code - 1};
  }
  // Returns the code of the cell of `chunk` whose look-back cell is the cell `code` of the previous chunk. If
  // no cell of `chunk` has this look-back cell, returns a code that no query of `chunk` has.
  __device__ int32_t find_attending_cell(int64_t round, int64_t chunk, int32_t code) const {
    if (chunk > 0) return code + 1;
    const LshWrapPair pair = wrap_pair(round);
    return code == pair.key_code ? pair.query_code : kEmptySlot;
  }
};

// Sorts the positions of each head and round by `buckets` (batch, heads, rounds, length), and owns the
// results.
class LshOrders {
 public:
  LshOrders(const LshAttentionShape& shape, const int32_t* buckets);
  LshOrderView view() const { return {sorted_positions_.data(), codes_.data(), wrap_pairs_.data()}; }

 private:
  Scratch<int32_t> sorted_positions_, codes_;
  Scratch<LshWrapPair> wrap_pairs_;
};

}  // namespace tapeformer::cuda
