#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "models/layers/option_error.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kLinformer = "linformer";

// Softmax attention to `rank` linear combinations of the keys and of the values (Wang et al. 2020):
//   softmax(q (E k)ᵀ / √dim) F v
// E and F are learned projections, (groups, rank, max_length). The number of groups is 1 if all heads share
// the projections, and otherwise the number of heads.
class LinformerKind final : public Attention {
 public:
  LinformerKind(int64_t rank, const std::string& sharing, const AttentionSetup& setup)
      : dropout_(setup.dropout) {
    const Shape shape{sharing == "none" ? setup.heads : 1, rank, setup.max_length};
    // E and F are initialised like the weight of a linear layer with max_length inputs.
    const Initializer initializer =
        make_uniform_initializer(1 / std::sqrt(static_cast<double>(setup.max_length)));
    if (sharing == "layerwise" && setup.shared_parameter_source) {
      add_alias(key_map_, static_cast<const LinformerKind*>(setup.shared_parameter_source)->key_map_);
    } else {
      add_parameter(sharing == "layerwise" || sharing == "key-value" ? "projection" : "key_projection",
                    key_map_, shape, initializer);
    }
    if (sharing == "none" || sharing == "headwise")
      add_parameter("value_projection", value_map_, shape, initializer);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(!mask.causal, kLinformer, "each compressed key contains later tokens, so there is no causal form");
    check(k.size(1) <= key_map_.size(2), kLinformer, "sequences of ", k.size(1),
          " tokens are longer than the maximum, ", key_map_.size(2));
    const Tensor& value_map = value_map_.defined() ? value_map_ : key_map_;
    const Tensor keys = compressed(key_map_, zero_masked_rows(k, mask)),
                 values = compressed(value_map, zero_masked_rows(v, mask));
    return softmax_attention(q, keys, values,
                             make_softmax_attention_options(q, keys, {.causal = false, .key_lengths = {}},
                                                            dropout_, context, name));
  }

 private:
  // Returns `rank` linear combinations of the rows of x, (batch, rank, heads, dim). x is (batch, length,
  // heads, dim). The weights are the first `length` columns of `projection` (groups, rank, max_length).
  static Tensor compressed(const Tensor& projection, const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), groups = projection.size(0);
    const int64_t rank = projection.size(1), width = x.size(2) * x.size(3) / groups;
    const Tensor columns = permute(reshape(x, {batch, length, groups, width}), {2, 1, 0, 3});
    const Tensor product =
        matmul(slice(projection, 2, 0, length), reshape(columns, {groups, length, batch * width}));
    return reshape(permute(reshape(product, {groups, rank, batch, width}), {2, 1, 0, 3}),
                   {batch, rank, x.size(2), x.size(3)});
  }

  double dropout_;
  // The projections of the keys (E) and of the values (F), (groups, rank, max_length). If value_map_ is
  // undefined, key_map_ projects both the keys and the values.
  Tensor key_map_, value_map_;
};

void check_rank(const OptionValues& options, int64_t length) {
  if (const auto rank = options.get<int64_t>("rank"); rank > length)
    throw OptionError("rank", concat_text("expected at most the maximum length of the sequences, ", length,
                                          ", got ", rank));
}

std::unique_ptr<Attention> make_linformer(const OptionValues& options, const AttentionSetup& setup) {
  check(setup.max_length > 0, kLinformer, "the projections over the length need a maximum length");
  check_rank(options, setup.max_length);
  return std::make_unique<LinformerKind>(options.get<int64_t>("rank"), options.get<std::string>("sharing"),
                                         setup);
}

}  // namespace

AttentionKind make_linformer_attention_kind() {
  return {
      .name = kLinformer,
      .help = "softmax attention to learned combinations of keys and values: time is linear in the length",
      .capabilities = {.causal = make_unsupported("each compressed key also combines later tokens"),
                       .length_masks = true,
                       .unequal_lengths = true,
                       .recurrent = make_unsupported("each compressed key also combines later tokens"),
                       .weight_dropout = true,
                       .bfloat16 = make_unsupported("its projections over the length are float32")},
      .options = {{.name = "rank",
                   .default_value = int64_t{256},
                   .help = "number of compressed keys and values, at most the maximum length",
                   .min = 1,
                   .max = 1 << 20},
                  {.name = "sharing",
                   .default_value = std::string("headwise"),
                   .help = "none: projections for each head; headwise: one for keys and one for values; "
                           "key-value: one for both; layerwise: one for both in all layers",
                   .choices = {"none", "headwise", "key-value", "layerwise"}}},
      .make = make_linformer,
      .check_length = check_rank,
      // Counts the compression of keys and values, the scores and the weighted sums.
      .count_multiply_adds =
          [](const OptionValues& options, const AttentionSize& size) {
            return 4 * static_cast<double>(options.get<int64_t>("rank")) * static_cast<double>(size.dim) *
                   static_cast<double>(size.length);
          },
      .test_options = {{"rank", int64_t{3}}}};
}

}  // namespace tapeformer
