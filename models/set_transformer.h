// The Set Transformer (Lee et al. 2019). A linear layer projects the elements, and an encoder without
// positions processes the projected elements. Attention pooling with learned seeds reduces the set to one row
// per seed. A decoder of self-attention layers processes these rows, and a linear layer computes the outputs.
//
// The encoder is permutation equivariant, and the result is permutation invariant, if the attention kinds of
// the encoder ignore the order of the keys. Examples are "softmax" (block SAB of the paper) and "isab".
#pragma once

#include <memory>
#include <vector>

#include "models/attention/kinds/learned_queries.h"
#include "models/encoder/encoder.h"
#include "models/example_model.h"

namespace tapeformer {

struct SetTransformerOptions {
  EncoderOptions encoder;
  int64_t features = 0;  // number of features of an element
  // Number of Gaussians in the mixture that the model predicts for a set. Each Gaussian has a separate seed,
  // a learned query that pools the set. If `components` is 0, the model has one seed and predicts one number.
  int64_t components = 0;
  int64_t decoder_layers = 0;  // layers of self-attention over the seeds
  int64_t max_length = 0;      // maximum number of elements

  int64_t seed_count() const { return components > 0 ? components : 1; }
  // Returns the number of outputs per seed. If `components` is 0, the output is one number. Otherwise, the
  // outputs of a seed are the logit of the weight of its Gaussian, the mean (`features` numbers), and
  // `features` numbers that determine the standard deviations.
  int64_t output_width() const { return components > 0 ? 1 + 2 * features : 1; }
};

std::vector<OptionProblem> find_option_problems(const SetTransformerOptions& options);

// Pooling by multi-head attention (PMA, section 3.2). The queries are learned seeds, and the keys and values
// are computed from feedforward(z).
class AttentionPooling final : public Module {
 public:
  explicit AttentionPooling(const LearnedQueriesOptions& seeds);
  // Pools z (batch, length, width) to (batch, seeds, width). `lengths` (batch,) int64 contains the numbers of
  // valid rows; if it is undefined, all rows are valid.
  Tensor forward(const Tensor& z, const Tensor& lengths, const ForwardContext& context) const;

  FeedForward feedforward;
  Linear key_projection, value_projection;
  LearnedQueries seeds;
};

class SetTransformer final : public ExampleModel {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit SetTransformer(const SetTransformerOptions& options);

  // Returns the outputs for each seed, (batch, seeds, outputs). `elements` is (batch, length, features)
  // floating. `lengths` (batch,) int64 contains the numbers of valid elements; if it is undefined, all
  // elements are valid. Throws ShapeError for mismatched shapes.
  Tensor forward(const Tensor& elements, const Tensor& lengths, const ForwardContext& context) const;
  // Without a mixture, returns the mean absolute error between the predictions and batch.targets. With a
  // mixture, returns the mean negative log-likelihood of an element in nats, averaged over the sets.
  Tensor compute_loss(const Batch& batch, const ForwardContext& context) const override;
  // Without a mixture, the score is mean_absolute_error. With a mixture, the scores are nats_per_element,
  // log_likelihood and oracle_log_likelihood. The oracle of a set is the mixture from which the set was
  // drawn. For each set, batch.targets (batch,) contains the mean log-likelihood of the elements under the
  // oracle.
  std::vector<std::string> score_names() const override;
  std::vector<double> compute_scores(const Batch& batch, uint64_t seed = 0) const override;

  const SetTransformerOptions& options() const { return options_; }

  Linear input_projection;
  Encoder encoder;
  AttentionPooling pooling;
  // Post-norm layers with softmax attention. The numbers in the names of these layers continue the numbers of
  // the encoder layers: if the encoder has n layers, decoder layer i is named "layers.N" with N = n + i.
  std::vector<std::unique_ptr<EncoderLayer>> decoder;
  Linear predictor;

 private:
  SetTransformerOptions options_;
};

}  // namespace tapeformer
