#include "models/attention/kinds/big_bird.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/random/rng.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

struct BigBirdOptions {
  int64_t block = 0, window_blocks = 0, global_blocks = 0, random_blocks = 0;
  uint64_t seed = 0;

  int64_t side_blocks() const { return window_blocks / 2; }
};

// The pattern of Big Bird. A query attends to a window of blocks, to global blocks at both ends of the
// sequence, and to random blocks. In the causal pattern, the keys of a query must not depend on the sequence
// length. Therefore, the last blocks are not global, and all random blocks of a query precede its window.
class BigBirdPattern {
 public:
  explicit BigBirdPattern(const BigBirdOptions& options) : options_(options) {}

  SparsePattern operator()(const PatternContext& context) const {
    const int64_t block = options_.block, side = options_.side_blocks() * block;
    const int64_t blocks = (context.length + block - 1) / block;
    SparsePattern sparse;
    sparse.pattern.window = {.block_size = block, .before = side, .after = side};
    sparse.pattern.table.block_size = block;
    sparse.pattern.global.prefix_end = options_.global_blocks * block;
    if (!context.causal && options_.global_blocks > 0)
      sparse.pattern.global.suffix_begin = std::max<int64_t>(blocks - options_.global_blocks, 0) * block;
    if (options_.random_blocks > 0 && blocks > 0) {
      Tensor& table =
          tables_[{context.name, blocks, context.heads, context.causal, context.device.to_string()}];
      if (!table.defined()) table = draw(context, blocks).to(context.device);
      sparse.key_blocks = table;
    }
    return sparse;
  }

 private:
  // Returns the random key blocks of each query block, (heads, blocks, random_blocks) int32 on the CPU. If a
  // query block has too few candidates, its remaining entries are -1.
  Tensor draw(const PatternContext& context, int64_t blocks) const {
    const Tensor table = Tensor::empty({context.heads, blocks, options_.random_blocks}, DType::int32);
    std::fill_n(table.data<int32_t>(), table.numel(), -1);
    int32_t* row = table.data<int32_t>();
    for (int64_t head = 0; head < context.heads; ++head) {
      const RandomStream stream(options_.seed, context.name + ".random_blocks", static_cast<uint64_t>(head));
      for (int64_t query = 0; query < blocks; ++query, row += options_.random_blocks)
        draw_row(stream, query, candidates(query, blocks, context.causal), row);
    }
    return table;
  }
  // Draws the random key blocks of the query block `query` from the candidates `from`, without repetition,
  // and writes the block indices to `row`.
  void draw_row(const RandomStream& stream, int64_t query, std::vector<int32_t> from, int32_t* row) const {
    for (int64_t i = 0; i < options_.random_blocks && !from.empty(); ++i) {
      const auto element = static_cast<uint64_t>(query * options_.random_blocks + i);
      const auto chosen = static_cast<size_t>(stream.uniform_below(element, from.size()));
      row[i] = from[chosen];
      from[chosen] = from.back();
      from.pop_back();
    }
  }
  // Returns the key blocks from which the random blocks of the query block `query` are drawn. These key
  // blocks are neither global nor in the window of the query block. If `causal` is true, these key blocks
  // also precede the query block.
  std::vector<int32_t> candidates(int64_t query, int64_t blocks, bool causal) const {
    const int64_t end = causal ? query : blocks - options_.global_blocks;
    std::vector<int32_t> all;
    for (int64_t key = options_.global_blocks; key < end; ++key)
      if (std::abs(key - query) > options_.side_blocks()) all.push_back(static_cast<int32_t>(key));
    return all;
  }

  BigBirdOptions options_;
  // Tables of random blocks. The key of the map consists of the layer name, the number of blocks, the number
  // of heads, `causal` and the device. Tables are never removed, because captured CUDA graphs read them.
  using TableKey = std::tuple<std::string, int64_t, int64_t, bool, std::string>;
  mutable std::map<TableKey, Tensor> tables_;
};

BigBirdOptions make_big_bird_options(const OptionValues& values) {
  BigBirdOptions options;
  options.block = values.get<int64_t>("block");
  options.window_blocks = values.get<int64_t>("window_blocks");
  options.global_blocks = values.get<int64_t>("global_blocks");
  options.random_blocks = values.get<int64_t>("random_blocks");
  options.seed = static_cast<uint64_t>(values.get<int64_t>("block_seed"));
  if (options.window_blocks % 2 == 0)
    throw OptionError("window_blocks", concat_text("expected an odd number, because the window is centred on "
                                                   "the block of the query, got ",
                                                   options.window_blocks));
  return options;
}

}  // namespace

PatternFunction make_big_bird_pattern(const OptionValues& options) {
  return BigBirdPattern(make_big_bird_options(options));
}

void check_big_bird_length(const OptionValues& values, int64_t length) {
  check_option_at_most_length(values, "block", length);
  const BigBirdOptions options = make_big_bird_options(values);
  const int64_t blocks = (length + options.block - 1) / options.block;
  const int64_t others = std::max<int64_t>(blocks - options.window_blocks - 2 * options.global_blocks, 0);
  if (options.random_blocks > others)
    throw OptionError(
        "random_blocks",
        concat_text("expected at most ", others, ", the blocks of sequences of ", length,
                    " tokens outside the window and the global blocks, got ", options.random_blocks,
                    "; with a smaller value of block there are more blocks"));
}

}  // namespace tapeformer
