#include "ops/class_sampling.h"

#include "core/dispatch.h"
#include "ops/kernels/class_sampling.h"

namespace tapeformer {

void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    bool greedy) {
  check_defined("sample_classes", "logits", logits, "out", out);
  constexpr const char* kOp = "sample_classes";
  check(logits.rank() == 2 && logits.is_contiguous(), kOp, "logits must be (rows, classes), not ",
        logits.shape());
  const int64_t rows = logits.size(0), classes = logits.size(1);
  check(classes >= 1 && classes <= 256, kOp, classes, " classes are not 1 to 256");
  check(out.shape() == Shape{rows} && out.dtype() == DType::uint8 && out.is_contiguous(), kOp, "out ",
        name_of(out.dtype()), " ", out.shape(), " must be uint8 ", Shape{rows});
  const ClassScore score{stream, first, classes, greedy};
  dispatch(kOp, logits, [&]<class T>(auto backend) {
    sample_classes(backend, rows, logits.data<T>(), score, out.data<uint8_t>());
  });
}

void advance_tokens(const Tensor& columns, int64_t position, int64_t prefix, const Tensor& tokens) {
  constexpr const char* kOp = "advance_tokens";
  const int64_t batch = tokens.numel();
  check(columns.rank() == 2 && columns.size(1) == batch && columns.is_contiguous() &&
            tokens.shape() == Shape{batch} && tokens.is_contiguous(),
        kOp, "columns ", columns.shape(), " for tokens ", tokens.shape());
  check(position >= 0 && position < columns.size(0), kOp, "position ", position, " of ", columns.shape());
  on_device(tokens.device(), kOp, [&](auto backend) {
    advance_tokens(backend, batch, position, prefix, columns.data<uint8_t>(), tokens.data<uint8_t>());
  });
}

}  // namespace tapeformer
