#include "models/layers/low_rank.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace tapeformer {

LowRankAdapter::LowRankAdapter(int64_t in, int64_t out, const LowRankOptions& options,
                               const std::string& name)
    : options_(options), stream_name_(name + ".lora") {
  add_parameter("lora_A.weight", a, {options.rank, in},
                make_uniform_initializer(1 / std::sqrt(static_cast<double>(in))));
  add_parameter("lora_B.weight", b, {out, options.rank}, make_constant_initializer(0));
}

Tensor LowRankAdapter::compute_product() const {
  return mul(matmul(b, a), scale());
}

DropoutMask LowRankAdapter::make_mask(const ForwardContext& context, int64_t first_row) const {
  return context.make_dropout_mask(options_.dropout, stream_name_).at_offset(first_row * a.size(1));
}

Tensor add_adapter_results(const std::vector<PlacedAdapter>& adapters, const Tensor& x, Tensor y,
                           const ForwardContext* context, int64_t first_row) {
  std::vector<Tensor> inputs;
  std::vector<LowRankTerm> terms;
  for (const PlacedAdapter& placed : adapters) {
    inputs.push_back(placed.adapter->a);
    terms.push_back({placed.adapter->b, placed.column});
  }
  const LowRankAdapter& first = *adapters.front().adapter;
  const DropoutMask mask = context ? first.make_mask(*context, first_row) : DropoutMask{};
  const Tensor low = linear(dropout(x, mask), inputs.size() == 1 ? inputs[0] : concat(inputs, 0), {},
                            Activation::none, {}, y.dtype());
  return add_low_rank(std::move(y), low, terms, first.scale());
}

bool is_adapter_tensor(const std::string& name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

}  // namespace tapeformer
