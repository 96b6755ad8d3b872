// Sorts the positions of one head by bucket for LSH attention. In each round, the sorted positions are
// divided into cells, which are the groups of positions that attend to each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cpu {

// A slot is an index into the sorted positions of a round. Chunk c consists of the `chunk_length` slots that
// begin at slot c * chunk_length. A cell is the part of a bucket in one chunk, or a whole chunk if
// across_buckets is true. A query attends to the keys in its cell and in the look-back cell of its cell.
//
// A code identifies a cell of a round. The look-back cell of the cell with code c has code c - 1, except in
// the first chunk (FirstChunkLookBack). If across_buckets is false, one code is unused between two buckets,
// so that the first cell of a bucket has no look-back cell.
class LshOrder {
 public:
  // kNone is the code for a cell that does not exist. kEmpty is the code of an empty slot after the last
  // position of a chunk.
  static constexpr int32_t kNone = -1, kEmpty = -2;

  // Returns the number of int32 elements of the working memory: sorted positions (rounds, length), codes
  // (length, rounds) and counters (length + 1).
  static int64_t get_workspace_size(const LshAttentionShape& s) {
    return 2 * s.rounds * s.length + s.length + 1;
  }
  LshOrder(const LshAttentionShape& shape, int32_t* memory);

  // Sorts the first `valid` positions of all rounds by `buckets` (rounds, length).
  void sort(int64_t valid, const int32_t* buckets);

  int64_t chunk_count() const { return chunks_; }
  int64_t slot_count(int64_t chunk) const {
    return std::min(shape_.chunk_length, valid_length_ - chunk * shape_.chunk_length);
  }
  const int32_t* positions(int64_t round, int64_t chunk) const {
    return sorted_ + round * shape_.length + chunk * shape_.chunk_length;
  }
  const int32_t* codes(int64_t position) const { return codes_ + position * shape_.rounds; }

  // A cell of a round. If no position of the round has the code `code`, the cell does not exist.
  struct Cell {
    int64_t round;
    int32_t code;
  };
  Cell find_look_back_cell(int64_t round, int32_t code) const {
    const FirstChunkLookBack& look_back = first_chunk_look_backs_[static_cast<size_t>(round)];
    return code == look_back.code ? look_back.target : Cell{round, code - 1};
  }
  // The result of find_previous_chunk(). If there is no previous chunk, `exists` is false.
  struct Chunk {
    bool exists;
    int64_t round, chunk;
  };
  Chunk find_previous_chunk(int64_t round, int64_t chunk) const {
    if (chunk > 0) return {true, round, chunk - 1};
    const FirstChunkLookBack& look_back = first_chunk_look_backs_[static_cast<size_t>(round)];
    return {look_back.code != kNone, look_back.target.round, chunks_ - 1};
  }

 private:
  // The look-back cell of a cell in the first chunk of a round. Queries in the cell `code` also attend to the
  // keys in the cell `target`, which is in the last chunk of the same round, or of the previous round for
  // LshWrap::global. If no cell of the first chunk has a look-back cell, `code` is kNone.
  struct FirstChunkLookBack {
    int32_t code;
    Cell target;
  };
  void sort_round(int64_t round, const int32_t* buckets);
  FirstChunkLookBack find_first_chunk_look_back(int64_t round, const int32_t* buckets) const;

  const LshAttentionShape& shape_;
  int32_t *sorted_, *codes_, *counters_;
  int64_t valid_length_ = 0, chunks_ = 0;
  std::vector<FirstChunkLookBack> first_chunk_look_backs_;  // one per round
};

}  // namespace tapeformer::cpu
