#include "models/encoder/reversible.h"

#include <algorithm>

#include "ops/view.h"

namespace tapeformer {
namespace {

// Returns rows (batch * length, width) as (batch, length, width).
Tensor split_sequences(const Tensor& rows, int64_t length) {
  return reshape(rows, {rows.size(0) / std::max<int64_t>(length, 1), length, rows.size(1)});
}

}  // namespace

std::vector<ReversibleBlock> make_reversible_blocks(const std::vector<std::unique_ptr<EncoderLayer>>& layers,
                                                    int64_t chunks, int64_t length, const AttentionMask& mask,
                                                    const ReplayContext& context,
                                                    const EncodedSource& source) {
  const int64_t first_row = (*context).first_example * length;
  std::vector<ReversibleBlock> blocks;
  for (const auto& pointer : layers) {
    const EncoderLayer& layer = *pointer;
    std::vector<ReversibleBranch> branches;
    for (const ResidualBranch branch : layer.branches()) {
      const bool by_row = branch == ResidualBranch::feedforward;
      const auto run = [&layer, branch, by_row, length, mask, source, first_row, context](const Tensor& rows,
                                                                                          int64_t first) {
        const Tensor x = by_row ? rows : split_sequences(rows, length);
        return reshape(layer.run_branch(branch, x, mask, *context, source, first_row + first), rows.shape());
      };
      branches.push_back({run, by_row ? chunks : 1});
    }
    blocks.push_back({std::move(branches), layer.leaves()});
  }
  return blocks;
}

Tensor run_reversible_stack(const std::vector<std::unique_ptr<EncoderLayer>>& layers, int64_t chunks,
                            const Tensor& x1, const Tensor& x2, const AttentionMask& mask,
                            const ForwardContext& context, const EncodedSource& source) {
  const ReplayContext replay(context, is_recording());
  const int64_t length = x1.size(1), width = x1.size(2);
  const auto join_rows = [&](const Tensor& x) { return reshape(x, {x.size(0) * length, width}); };
  std::vector<ReversibleSource> read;
  if (source.states.defined()) read.emplace_back(source.states);
  const EncodedSource leaf{read.empty() ? Tensor{} : read.front().leaf, source.lengths};
  const Tensor joined = run_reversible(make_reversible_blocks(layers, chunks, length, mask, replay, leaf),
                                       join_rows(x1), join_rows(x2), read);
  return reshape(joined, {x1.size(0), length, 2 * width});
}

}  // namespace tapeformer
