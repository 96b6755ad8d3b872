#include "ops/class_sampling.h"

#include "ops/kernels/class_sampling.h"

namespace tapeformer {

void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    bool greedy) {
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

}  // namespace tapeformer
