#include "data/text/bpe/merges.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace tapeformer {
namespace {

constexpr size_t kMaxCachedBytes = 64;  // of a piece
constexpr size_t kMaxCachedPieces = 1 << 16;

uint64_t make_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// A pair of adjacent symbols that has a merge. The pair no longer exists if a symbol has changed.
struct BpeMerges::Candidate {
  uint32_t rank;
  uint32_t left;  // position of the left symbol
  int32_t result;
  uint64_t key;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

BpeMerges::BpeMerges(const std::vector<std::array<int32_t, 3>>& merges) {
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (const auto& [left, right, result] : merges) merges_[make_key(left, right)] = {rank++, result};
}

const BpeMerges::Merge* BpeMerges::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(make_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<int32_t>& tokens) const {
  const auto count = static_cast<uint32_t>(tokens.size());
  constexpr int32_t kRemoved = -1;
  std::vector<Candidate> heap;
  // The symbols form a linked list: next[i] and previous[i] are the positions of the neighbours of symbol i.
  std::vector<uint32_t> next(count), previous(count);
  const auto push = [&](uint32_t left, uint32_t right) {
    if (const Merge* const merge = find(tokens[left], tokens[right])) {
      heap.push_back({merge->rank, left, merge->result, make_key(tokens[left], tokens[right])});
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first symbol: not below `count`
    if (i + 1 < count) push(i, i + 1);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate best = heap.back();
    heap.pop_back();
    const uint32_t left = best.left, right = next[left];
    if (right >= count || make_key(tokens[left], tokens[right]) != best.key) continue;
    tokens[left] = best.result;
    tokens[right] = kRemoved;
    next[left] = next[right];
    if (next[left] < count) {
      previous[next[left]] = left;
      push(left, next[left]);
    }
    if (previous[left] < count) push(previous[left], left);
  }
  std::erase(tokens, kRemoved);
}

std::span<const int32_t> BpePieceCache::find(std::string_view piece) const {
  const auto found = ranges_.find(piece);
  if (found == ranges_.end()) return {};
  return {tokens_.data() + found->second.first, found->second.count};
}

void BpePieceCache::add(std::string_view piece, std::span<const int32_t> tokens) {
  if (piece.size() > kMaxCachedBytes) return;
  if (ranges_.size() >= kMaxCachedPieces) {
    ranges_.clear();
    tokens_.clear();
  }
  ranges_.emplace(piece, Range{static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(tokens.size())});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace tapeformer
