#include "ops/class_sampling.h"

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
  visit_floating(kOp, logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) { kernel(rows, logits.data<T>(), score, out.data<uint8_t>()); };
    on_device(
        logits.device(), kOp, [&] { run(cpu::sample_classes<T>); }, [&] { run(cuda::sample_classes<T>); });
  });
}

void advance_tokens(const Tensor& columns, int64_t position, int64_t given, const Tensor& tokens) {
  constexpr const char* kOp = "advance_tokens";
  const int64_t batch = tokens.numel();
  check(columns.rank() == 2 && columns.size(1) == batch && columns.is_contiguous() &&
            tokens.shape() == Shape{batch} && tokens.is_contiguous(),
        kOp, "columns ", columns.shape(), " for tokens ", tokens.shape());
  check(position >= 0 && position < columns.size(0), kOp, "position ", position, " of ", columns.shape());
  const auto run = [&](auto kernel) {
    kernel(batch, position, given, columns.data<uint8_t>(), tokens.data<uint8_t>());
  };
  on_device(
      tokens.device(), kOp, [&] { run(cpu::advance_tokens); }, [&] { run(cuda::advance_tokens); });
}

}  // namespace tapeformer
