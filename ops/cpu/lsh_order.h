// The sorted sequences of one head: who sits where in each round, and who meets whom.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cpu {

// A place is an index of a round's sorted sequence; chunk c holds places [c chunk_length, (c + 1)
// chunk_length). The part of a bucket within a chunk is a cell. Codes number the cells so that position j is
// among the keys of position i in a round exactly when code(j) is code(i) or look_back(code(i)): a bucket's
// cells have consecutive codes, and a gap separates buckets. Across buckets a cell is a whole chunk.
class LshOrder {
 public:
  // The code of no cell, and of room behind the positions of a chunk.
  static constexpr int32_t kNone = -1, kEmpty = -2;

  // Working memory in int32: sorted (rounds, length), codes (length, rounds), counters (length + 1).
  static int64_t memory(const LshAttentionShape& s) { return 2 * s.rounds * s.length + s.length + 1; }
  LshOrder(const LshAttentionShape& shape, int32_t* memory);

  // buckets (rounds, length). Sorts the rounds, one after the other.
  void sort(int64_t counted, const int32_t* buckets);

  int64_t chunks() const { return chunks_; }
  int64_t places(int64_t chunk) const {
    return std::min(s_.chunk_length, counted_ - chunk * s_.chunk_length);
  }
  // Positions of a chunk's places.
  const int32_t* positions(int64_t round, int64_t chunk) const {
    return sorted_ + round * s_.length + chunk * s_.chunk_length;
  }
  // Codes of a position in all rounds.
  const int32_t* codes(int64_t position) const { return codes_ + position * s_.rounds; }

  // The cell whose positions the positions of a cell see too; code kNone: there is no such cell.
  struct Cell {
    int64_t round;
    int32_t code;
  };
  Cell look_back(int64_t round, int32_t code) const {
    const Wrap& wrap = wraps_[static_cast<size_t>(round)];
    return code == wrap.from ? wrap.to : Cell{round, code - 1};
  }
  // The chunk that a chunk looks back at; false: none.
  struct Chunk {
    bool exists;
    int64_t round, chunk;
  };
  Chunk chunk_before(int64_t round, int64_t chunk) const {
    if (chunk > 0) return {true, round, chunk - 1};
    const Wrap& wrap = wraps_[static_cast<size_t>(round)];
    return {wrap.from != kNone, wrap.to.round, chunks_ - 1};
  }

 private:
  // The cell of the first chunk that looks back at one of a last chunk; from kNone: nothing to see there.
  struct Wrap {
    int32_t from;
    Cell to;
  };
  void sort_round(int64_t round, const int32_t* buckets);
  Wrap find_wrap(int64_t round, const int32_t* buckets) const;

  const LshAttentionShape& s_;
  int32_t *sorted_, *codes_, *counters_;
  int64_t counted_ = 0, chunks_ = 0;
  std::vector<Wrap> wraps_;  // for each round
};

}  // namespace tapeformer::cpu
