#include "ops/class_sampling.h"

#include "core/dispatch.h"
#include "ops/kernels/class_sampling.h"

namespace tapeformer {

void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    const ClassSamplingOptions& sampling) {
  check_defined("sample_classes", "logits", logits, "out", out);
  constexpr const char* kOp = "sample_classes";
  check(logits.rank() == 2 && logits.is_contiguous(), kOp, "logits must be (rows, classes), not ",
        logits.shape());
  const int64_t rows = logits.size(0), classes = logits.size(1);
  check(classes >= 1, kOp, "logits ", logits.shape(), " have no classes");
  check(sampling.temperature > 0 && sampling.top_k >= 0 && sampling.top_p > 0 && sampling.top_p <= 1, kOp,
        "temperature ", sampling.temperature, " must be positive, top_k ", sampling.top_k,
        " at least 0, and top_p ", sampling.top_p, " in (0, 1]");
  check(out.shape() == Shape{rows} && out.is_contiguous() && (out.dtype() != DType::uint8 || classes <= 256),
        kOp, "out ", name_of(out.dtype()), " ", out.shape(), " must be int32 or int64 ", Shape{rows},
        ", or uint8 for at most 256 classes, not ", classes);
  const ClassScorer score{stream,
                          first,
                          classes,
                          sampling.greedy,
                          1 / sampling.temperature,
                          sampling.top_k < classes ? sampling.top_k : 0,
                          sampling.top_p};
  dispatch_float_or_double(kOp, logits, [&]<class T>(auto backend) {
    visit_index_dtype(kOp, out.dtype(), [&](auto index) {
      sample_classes(backend, rows, logits.data<T>(), score, out.data<decltype(index)>());
    });
  });
}

void copy_tokens_at_position(const Tensor& columns, int64_t position, int64_t prefix, const Tensor& tokens) {
  constexpr const char* kOp = "copy_tokens_at_position";
  const int64_t batch = tokens.numel();
  check(columns.rank() == 2 && columns.size(1) == batch && columns.is_contiguous() &&
            tokens.shape() == Shape{batch} && tokens.is_contiguous(),
        kOp, "columns ", columns.shape(), " do not match tokens ", tokens.shape());
  check(position >= 0 && position < columns.size(0), kOp, "position ", position, " is not in [0, ",
        columns.size(0), ")");
  run_on_device(tokens.device(), kOp, [&](auto backend) {
    copy_tokens_at_position(backend, batch, position, prefix, columns.data<uint8_t>(),
                            tokens.data<uint8_t>());
  });
}

}  // namespace tapeformer
