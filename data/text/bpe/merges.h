// The merges of byte-level BPE, and a cache of their results. Internal to the tokenizer "bpe".
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tapeformer {

// The pairs of symbols that are joined. Immutable and thread-safe.
class BpeMerges {
 public:
  // Each merge joins a left and a right token to the third token. If a pair is repeated, its last merge
  // counts.
  explicit BpeMerges(const std::vector<std::array<int32_t, 3>>& merges);

  // Joins the pair of adjacent tokens with the first merge, and of several equal pairs the leftmost one,
  // until no pair has a merge. Needs O(n log n) steps for n tokens.
  void apply(std::vector<int32_t>& tokens) const;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t result = 0;
  };
  struct Candidate;
  const Merge* find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Merge> merges_;
};

// The tokens of pieces that were encoded before. Not thread-safe.
class BpePieceCache {
 public:
  // Returns the tokens of a piece, or an empty span. The span is valid until the next call of add().
  std::span<const int32_t> find(std::string_view piece) const;
  // Adds a piece that is not in the cache. Long pieces are not added. If the cache is full, removes all
  // pieces.
  void add(std::string_view piece, std::span<const int32_t> tokens);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Range {
    uint32_t first = 0, count = 0;
  };
  std::unordered_map<std::string, Range, Hash, std::equal_to<>> ranges_;
  std::vector<int32_t> tokens_;
};

}  // namespace tapeformer
