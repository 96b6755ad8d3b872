// Feature maps of linear attention with parameters, for models that imitate softmax attention.
#pragma once

#include <optional>

#include "models/attention/attention.h"
#include "ops/inference.h"

namespace tapeformer {

enum class LearnedFeatureMap {
  // [softmax(W x), softmax(-W x)], where the initial rows of W are rows of the identity matrix: Hedgehog
  // (Zhang et al. 2024, equation 6) with the normalised features of LoLCATs (Zhang et al. 2024).
  hedgehog,
  t2r,  // relu(W x + b) (Kasai et al. 2021, "Finetuning Pretrained Transformers into RNNs", equation 3)
};

// Returns the feature map "hedgehog" or "t2r", or nothing for another name.
std::optional<LearnedFeatureMap> find_learned_feature_map(const std::string& name);
// Returns the option `features` of attention kinds with learned feature maps, which is used if `feature_map`
// is the name of one.
OptionSpec make_features_option();

// A feature map with its own W (features, dim) and b (features,) for each head.
class LearnedFeatures final : public Module {
 public:
  // If `features` is 0, the results have the width of the inputs if `dim` is even, and dim + 1 otherwise.
  LearnedFeatures(LearnedFeatureMap map, int64_t heads, int64_t dim, int64_t features);
  int64_t width() const;  // of the results
  // Maps x (batch, length, heads, dim), float32 or float64, to (batch, length, heads, width()).
  Tensor forward(const Tensor& x) const;

 private:
  friend class DecodingFeatures;

  LearnedFeatureMap map_;
  int64_t heads_, dim_, features_;
  Tensor weight_;  // (heads, features, dim)
  Tensor bias_;    // (heads, features); undefined for hedgehog
};

// LearnedFeatures of one token of each sequence. Allocates memory only in the constructor.
class DecodingFeatures {
 public:
  DecodingFeatures(const LearnedFeatures& map, const AttentionStateOptions& shape);
  // Computes the features of x (batch, heads, dim), whose last dimension is contiguous.
  const Tensor& compute(const Tensor& x) const;

 private:
  LearnedFeatureMap map_;
  Tensor weight_, bias_;    // (heads, dim, width), and (batch, heads, width), undefined for hedgehog
  Tensor input_;            // (batch, heads, dim)
  Tensor features_, rows_;  // (batch, heads, width), and a view (rows, features) for hedgehog
};

// Returns linear attention (Katharopoulos et al. 2020) whose queries and keys have learned feature maps.
// `eps` is added to the denominator.
std::unique_ptr<Attention> make_learned_linear_attention(LearnedFeatureMap map, int64_t features, double eps,
                                                         const AttentionSetup& setup);

}  // namespace tapeformer
