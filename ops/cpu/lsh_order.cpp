#include "ops/cpu/lsh_order.h"

#include <algorithm>

namespace tapeformer::cpu {

LshOrder::LshOrder(const LshAttentionShape& shape, int32_t* memory)
    : shape_(shape),
      sorted_(memory),
      codes_(memory + shape.rounds * shape.length),
      counters_(codes_ + shape.rounds * shape.length),
      first_chunk_look_backs_(static_cast<size_t>(shape.rounds)) {}

void LshOrder::sort(int64_t valid, const int32_t* buckets) {
  valid_length_ = valid;
  chunks_ = (valid + shape_.chunk_length - 1) / shape_.chunk_length;
  for (int64_t round = 0; round < shape_.rounds; ++round) sort_round(round, buckets + round * shape_.length);
  // With LshWrap::global, round 0 looks back at the last round, so all rounds must be sorted first.
  for (int64_t round = 0; round < shape_.rounds; ++round)
    first_chunk_look_backs_[static_cast<size_t>(round)] = find_first_chunk_look_back(round, buckets);
}

LshOrder::FirstChunkLookBack LshOrder::find_first_chunk_look_back(int64_t round,
                                                                  const int32_t* buckets) const {
  const FirstChunkLookBack none{kNone, {round, kNone}};
  if (chunks_ < 2 || shape_.wrap == LshWrap::none) return none;
  const int64_t target_round =
      shape_.wrap == LshWrap::global ? (round + shape_.rounds - 1) % shape_.rounds : round;
  const int32_t first_chunk_position = positions(round, 0)[shape_.chunk_length - 1];
  const int32_t target_position = positions(target_round, chunks_ - 1)[0];
  // If across_buckets is false, the first chunk looks back only if it shares a bucket with the last chunk of
  // the same round. Positions are sorted by bucket, so the two chunks share a bucket only if the last
  // position of the first chunk and the first position of the last chunk have the same bucket.
  const int32_t* const ids = buckets + round * shape_.length;
  if (!shape_.across_buckets && (target_round != round || ids[first_chunk_position] != ids[target_position]))
    return none;
  return {codes(first_chunk_position)[round], {target_round, codes(target_position)[target_round]}};
}

// Sorts the positions of a round by bucket with a stable counting sort, and stores the code of the cell of
// each position.
void LshOrder::sort_round(int64_t round, const int32_t* buckets) {
  if (valid_length_ == 0) return;
  const int32_t highest = *std::max_element(buckets, buckets + valid_length_);
  std::fill_n(counters_, highest + 1, 0);
  for (int64_t i = 0; i < valid_length_; ++i) ++counters_[buckets[i]];
  int32_t before = 0;
  for (int64_t b = 0; b <= highest; ++b) {
    const int32_t size = counters_[b];
    counters_[b] = before;
    before += size;
  }
  int32_t* const sorted = sorted_ + round * shape_.length;
  for (int64_t i = 0; i < valid_length_; ++i) sorted[counters_[buckets[i]]++] = static_cast<int32_t>(i);

  int32_t code = 0, bucket = buckets[sorted[0]];
  int64_t free_slots = shape_.chunk_length;
  for (int64_t slot = 0; slot < valid_length_; ++slot, --free_slots) {
    const int32_t position = sorted[slot], next = buckets[position];
    if (!shape_.across_buckets && next != bucket) {
      code += 2;
      bucket = next;
    } else if (free_slots == 0) {
      ++code;
    }
    if (free_slots == 0) free_slots = shape_.chunk_length;
    codes_[int64_t{position} * shape_.rounds + round] = code;
  }
}

}  // namespace tapeformer::cpu
