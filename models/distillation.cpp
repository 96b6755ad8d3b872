#include "models/distillation.h"

#include "core/base/errors.h"
#include "models/layers/predictor_loss.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/row_loss.h"
#include "ops/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr double kHeadLossScale = 1000;  // of LoLCATs; results of heads are small

void require_equal(const char* what, int64_t teacher, int64_t student) {
  if (teacher != student)
    throw ConfigError(concat_text("the teacher has ", what, " ", teacher, ", and this model ", student));
}

Tensor compute_difference(const Tensor& student, const Tensor& teacher) {
  const DType dtype = get_compute_dtype(student.dtype());
  return sub(cast(student, dtype), cast(teacher, dtype));
}

Tensor compute_layer_loss(const AttentionRecord& teacher, const AttentionRecord& student,
                          DistillationTarget target) {
  if (target == DistillationTarget::heads)
    return mul(mean(square(compute_difference(student.heads, teacher.heads))), kHeadLossScale);
  // eps bounds the gradient of the square root where the results are equal.
  constexpr double kEps = 1e-12;
  return mean(sqrt(add(sum(square(compute_difference(student.result, teacher.result)), -1), kEps)));
}

Tensor compute_attention_loss(const AutoregressiveModel& teacher, const AutoregressiveModel& student,
                              DistillationTarget target, const Tensor& inputs,
                              const ForwardContext& context) {
  std::vector<AttentionRecord> records;
  {
    const NoGradScope no_grad;
    teacher.encode(inputs, {.seed = context.seed, .attention_records = &records});
  }
  const AttentionPattern &taught = teacher.options().encoder.attention,
                         &learned = student.options().encoder.attention;
  Tensor total;
  double layers = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    if (find_layer_choice(taught, layer).kind == find_layer_choice(learned, layer).kind) continue;
    std::vector<AttentionRecord> own;
    ForwardContext recorded = context;
    recorded.attention_records = &own;
    const AttentionRecord& record = records[i];
    student.encoder.layers[i]->attention.forward(record.input, record.operand, {}, recorded,
                                                 student.encoder.layers[i]->name(), record.input.dtype());
    const Tensor loss = compute_layer_loss(record, own.at(0), target);
    total = total.defined() ? add(total, loss) : loss;
    ++layers;
  }
  return mul(total, 1 / layers);
}

// Returns the mean over the rows with weights of sum_c p_c (log p_c - log q_c), where p and q are the softmax
// of the two logits (rows, classes).
Tensor compute_divergence(const Tensor& teacher_logits, const Tensor& logits, const Tensor& weights) {
  const Tensor log_p = log_softmax(teacher_logits);
  const Tensor rows = sum(mul(exp(log_p), sub(log_p, log_softmax(logits))), -1);
  return sum(
      mul(rows, compute_row_weights("distillation", weights, rows.size(0), rows.dtype(), rows.device())));
}

Tensor flatten_rows(const Tensor& x) {
  return reshape(x, {x.size(0) * x.size(1), x.size(2)});
}

}  // namespace

void check_distillation(const AutoregressiveModelOptions& teacher, const AutoregressiveModelOptions& student,
                        DistillationTarget target) {
  if (target == DistillationTarget::logits) {
    if (teacher.head != OutputHead::categorical || student.head != OutputHead::categorical)
      throw ConfigError("logits of images are mixtures of logistics, whose divergence has no closed form");
    return require_equal("a vocabulary of", teacher.vocabulary_size, student.vocabulary_size);
  }
  require_equal("layers:", teacher.encoder.layers, student.encoder.layers);
  require_equal("a width of", teacher.encoder.width(), student.encoder.width());
  require_equal("heads:", teacher.encoder.heads, student.encoder.heads);
  require_equal("heads of width", teacher.encoder.head_dim, student.encoder.head_dim);
  const auto get_width = [](const EncoderOptions& encoder, int64_t layer) {
    return get_head_sizes(encoder.attention, layer, encoder.head_sizes()).result_width();
  };
  for (int64_t i = 0; i < student.encoder.layers && target == DistillationTarget::heads; ++i)
    require_equal("results of heads of width", get_width(teacher.encoder, i), get_width(student.encoder, i));
  for (int64_t i = 0; i < student.encoder.layers; ++i)
    if (find_layer_choice(teacher.encoder.attention, i).kind !=
        find_layer_choice(student.encoder.attention, i).kind)
      return;
  throw ConfigError("all layers have the same attention as those of the teacher");
}

Tensor compute_distillation_loss(const AutoregressiveModel& teacher, const AutoregressiveModel& student,
                                 DistillationTarget target, const Batch& batch,
                                 const ForwardContext& context) {
  check_distillation(teacher.options(), student.options(), target);
  const Tensor inputs = slice(batch.tokens, 1, 0, -1);
  if (target != DistillationTarget::logits)
    return compute_attention_loss(teacher, student, target, inputs, context);
  const auto encode_teacher = [&] {
    const NoGradScope no_grad;
    return flatten_rows(teacher.encode(inputs, {.seed = context.seed}));
  };
  // The rows of the teacher are the targets, so that only the logits of one chunk are in memory.
  const PredictorRows rows{flatten_rows(student.encode(inputs, context)), encode_teacher(),
                           batch.mask.defined() ? reshape(batch.mask, {-1}) : Tensor{}};
  return compute_predictor_loss(student.predictor, rows, student.options().loss_chunks,
                                [&](const Tensor& logits, const Tensor& taught, const Tensor& weights) {
                                  Tensor teacher_logits;
                                  {
                                    const NoGradScope no_grad;
                                    teacher_logits = teacher.predictor.forward(taught);
                                  }
                                  return compute_divergence(teacher_logits, logits, weights);
                                });
}

}  // namespace tapeformer
