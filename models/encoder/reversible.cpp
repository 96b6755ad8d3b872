#include "models/encoder/reversible.h"

#include <algorithm>

#include "ops/view.h"

namespace tapeformer {

std::vector<ReversibleBlock> make_reversible_blocks(const std::vector<std::unique_ptr<EncoderLayer>>& layers,
                                                    int64_t chunks, int64_t length, const AttentionMask& mask,
                                                    const ReplayContext& context) {
  const int64_t first_row = (*context).first_example * length;
  std::vector<ReversibleBlock> blocks;
  for (const auto& pointer : layers) {
    const EncoderLayer& layer = *pointer;
    const auto attend = [&layer, length, mask, context](const Tensor& rows, int64_t) {
      const Tensor x = reshape(rows, {rows.size(0) / std::max<int64_t>(length, 1), length, rows.size(1)});
      return reshape(layer.run_attention_branch(x, mask, *context), rows.shape());
    };
    const auto transform = [&layer, first_row, context](const Tensor& rows, int64_t first) {
      return layer.run_feedforward_branch(rows, first_row + first, *context);
    };
    blocks.push_back({{attend}, {transform, chunks}, layer.leaves()});
  }
  return blocks;
}

Tensor run_reversible_stack(const std::vector<std::unique_ptr<EncoderLayer>>& layers, int64_t chunks,
                            const Tensor& x, const AttentionMask& mask, const ForwardContext& context) {
  const ReplayContext replay(context, is_recording());
  const Tensor rows = reshape(x, {x.size(0) * x.size(1), x.size(2)});
  const Tensor joined =
      run_reversible(make_reversible_blocks(layers, chunks, x.size(1), mask, replay), rows, rows);
  return reshape(joined, {x.size(0), x.size(1), 2 * x.size(2)});
}

}  // namespace tapeformer
