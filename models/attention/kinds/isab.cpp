#include "models/attention/attention.h"
#include "models/attention/kinds/learned_queries.h"
#include "models/attention/kinds/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kIsab = "isab";

// The attention of the induced set attention block ISAB(X) = MAB(X, H) with H = MAB(I, X) (Lee et al. 2019,
// equations 9 and 10). MAB is a multi-head attention block, X is the input of the layer, and I contains
// learned inducing points. This class computes H and the attention of X to H. The encoder layer computes the
// rest of MAB(X, H): the queries, the residual sums, the norms and the feed-forward block.
class IsabKind final : public Attention {
 public:
  IsabKind(int64_t points, int64_t feedforward, const AttentionSetup& setup)
      : dropout_(setup.dropout),
        inducing_({.count = points,
                   .heads = setup.heads,
                   .dim = setup.dim,
                   .feedforward = feedforward,
                   .dropout = setup.dropout}),
        key_projection_(setup.heads * setup.dim, setup.heads * setup.dim),
        value_projection_(setup.heads * setup.dim, setup.heads * setup.dim) {
    add_child("inducing_points", inducing_);
    add_child("key_projection", key_projection_);
    add_child("value_projection", value_projection_);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(!mask.causal, kIsab, "each inducing point attends to all elements, so there is no causal form");
    const Tensor h = inducing_.forward(k, v, mask.key_lengths, context, name + ".inducing_points");
    const auto heads = [&](const Linear& projection) {
      return reshape(projection.forward(h), {h.size(0), h.size(1), k.size(2), k.size(3)});
    };
    const Tensor keys = heads(key_projection_), values = heads(value_projection_);
    return softmax_attention(q, keys, values,
                             make_softmax_attention_options(q, keys, {.causal = false, .key_lengths = {}},
                                                            dropout_, context, name));
  }

 private:
  double dropout_;
  LearnedQueries inducing_;
  Linear key_projection_, value_projection_;  // projections of H
};

}  // namespace

AttentionKind make_isab_attention_kind() {
  return {.name = kIsab,
          .help = "attention through learned inducing points (Set Transformer): time is linear in the length",
          .capabilities = {.causal = make_unsupported("each inducing point also attends to later tokens"),
                           .length_masks = true,
                           .unequal_lengths = true,
                           .recurrent = make_unsupported("each inducing point also attends to later tokens"),
                           .weight_dropout = true,
                           .bfloat16 = make_unsupported("its projections of inducing points are float32")},
          .options = {{.name = "inducing_points",
                       .default_value = int64_t{32},
                       .help = "number of inducing points",
                       .min = 1,
                       .max = 1 << 20},
                      {.name = "feedforward",
                       .default_value = int64_t{128},
                       .help = "hidden units of the feed-forward block of the inducing points",
                       .min = 1,
                       .max = 1 << 24}},
          .make = [](const OptionValues& options, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            return std::make_unique<IsabKind>(options.get<int64_t>("inducing_points"),
                                              options.get<int64_t>("feedforward"), setup);
          },
          // Counts the scores and the weighted sums of the attention of I to X and of X to H.
          .count_multiply_adds =
              [](const OptionValues& options, const AttentionSize& size) {
                return 4 * static_cast<double>(options.get<int64_t>("inducing_points")) *
                       static_cast<double>(size.dim) * static_cast<double>(size.length);
              },
          .test_options = {{"inducing_points", int64_t{3}}, {"feedforward", int64_t{8}}}};
}

}  // namespace tapeformer
