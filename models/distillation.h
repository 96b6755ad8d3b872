// Distillation: a model, the student, learns what another model, the teacher, computes for the same tokens.
#pragma once

#include "models/autoregressive_model.h"

namespace tapeformer {

enum class DistillationTarget {
  // 1000 times the mean squared difference of the results of the heads, before the output projection
  // (LoLCATs,
  // Zhang et al. 2024, section 3.2). Each layer of the student reads what the layer of the teacher reads, so
  // the losses of layers are independent.
  heads,
  // The mean distance of the results of the attention layers, after the output projection (MOHAWK, Bick et
  // al.
  // 2024, section 4.2). Layers read what those of the teacher read.
  attention,
  logits,  // the Kullback-Leibler divergence of the distributions of the next token, teacher to student
};

// Returns the mean loss of the student for a batch, a scalar. The teacher is evaluated without dropout and
// without gradients. Layers with the same attention kind in both models add nothing to the losses of `heads`
// and `attention`. Throws ConfigError if the models do not fit: another number of layers, another width of
// the layers or of their heads for `heads` and `attention`, another vocabulary or a logistic mixture for
// `logits`.
Tensor compute_distillation_loss(const AutoregressiveModel& teacher, const AutoregressiveModel& student,
                                 DistillationTarget target, const Batch& batch,
                                 const ForwardContext& context);
// Throws the ConfigError of compute_distillation_loss().
void check_distillation(const AutoregressiveModelOptions& teacher, const AutoregressiveModelOptions& student,
                        DistillationTarget target);

}  // namespace tapeformer
