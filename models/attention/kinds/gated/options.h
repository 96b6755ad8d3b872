// The options of linear attention with decays, gates and the delta rule (ops/gated_linear_attention.h), and
// the presets of published models.
#pragma once

#include <string>
#include <vector>

#include "models/attention/attention.h"

namespace tapeformer {

// The parametrisation of the log decay g. a is a projection of the input of the layer.
enum class DecayForm {
  none,       // g = 0
  retention,  // g = ln(1 - 2^(-5-h)) for head h (RetNet, Sun et al. 2023)
  slope,      // g = -2^(-8(h+1)/H) (1 - l/(L-1)) for head h of H and layer l of L (Lightning Attention)
  head,       // g = -exp(A) softplus(a + b), one per head (Mamba-2, Dao and Gu 2024; Gated DeltaNet)
  channel,  // the same, one per channel, with a low-rank projection; A is one per head (Kimi Delta Attention)
  bounded,  // g = bound sigmoid(exp(A) (a + b)), one per channel (Kimi Delta Attention with a lower bound)
  gate,     // g = log(sigmoid(a + b)) / normalizer, one per channel, with a low-rank projection (GLA)
};

enum class OutputNorm { none, head, group, width };

inline constexpr int64_t kRankOfHead = -1;  // a rank that is the width of a head

struct GatedLinearOptions {
  DecayForm decay = DecayForm::head;
  int64_t decay_rank = kRankOfHead;  // rank of the projection of channel decays
  double decay_bound = 0;            // DecayForm::bounded
  double gate_normalizer = 16;       // DecayForm::gate
  bool delta = true;                 // the delta rule, with β = sigmoid(projection of the input)
  double beta_range = 1;             // maximum of β; 2 allows negative eigenvalues of the transitions
  bool decay_scales_values = false;  // β = softplus(a + b), without the delta rule (Mamba-2)
  bool normalizes_keys = true;       // L2 norm of queries and keys
  bool scales_queries = true;        // queries are divided by √dim
  bool rotates = false;              // rotary positions, if the model has them
  GateActivation output_gate = GateActivation::silu;  // none: no gate
  int64_t gate_rank = 0;                              // rank of the projection of the gate; 0: full rank
  bool gates_before_norm = false;
  OutputNorm output_norm = OutputNorm::head;
  double norm_eps = 1e-5;  // of the norm of the results
  bool skips = false;      // D v is added to the results, with one factor D per head (Mamba-2)
  ProjectionConv conv = {4, GateActivation::silu};
};

// Returns the options for the values of the options of the kind "gated-delta" or "gated-linear".
GatedLinearOptions read_gated_linear_options(const OptionValues& values, bool delta);
std::vector<OptionSpec> list_gated_linear_options(bool delta);
// Returns the options with numbers and names in place of the values that the preset decides, and of the sizes
// that are those of the model.
OptionValues resolve_gated_linear_options(const OptionValues& values, const HeadSizes& model, bool delta);
// Returns the sizes of the heads of a layer in a model with the sizes `model`. Throws OptionError unless the
// number of heads of keys divides the number of heads of values.
HeadSizes choose_gated_head_sizes(const OptionValues& values, const HeadSizes& model);

}  // namespace tapeformer
