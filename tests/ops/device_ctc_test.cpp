// Tests that compare the CTC loss and its gradient on each device with the CPU.
#include <doctest/doctest.h>

#include "ops/ctc_loss.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct Case {
  Tensor logits, frame_lengths, labels, label_lengths;
};

Case random_case(int64_t batch, int64_t frames, int64_t classes, int64_t longest, int salt) {
  Case made{normal({batch, frames, classes}, salt), Tensor::empty({batch}, DType::int64),
            Tensor::empty({batch, longest}, DType::int64), Tensor::empty({batch}, DType::int64)};
  const RandomStream stream(5, "ctc", static_cast<uint64_t>(salt));
  const auto below = [&](int64_t place, int64_t n) {
    return static_cast<int64_t>(stream.uniform_below(static_cast<uint64_t>(place), static_cast<uint64_t>(n)));
  };
  for (int64_t b = 0; b < batch; ++b) {
    made.frame_lengths.data<int64_t>()[b] = b == 1 ? 0 : frames - below(b, frames / 3 + 1);
    made.label_lengths.data<int64_t>()[b] = b == 2 ? 0 : below(batch + b, longest + 1);
    for (int64_t i = 0; i < longest; ++i)  // class 0 is the blank
      made.labels.data<int64_t>()[b * longest + i] =
          1 + below(2 * batch + b * longest + i, std::max<int64_t>(classes / 2, 1));
  }
  return made;
}

std::vector<Tensor> compute_result_and_gradients(const Case& c, DType dtype, Device device,
                                                 CtcReduction reduction) {
  const Tensor x = set_requires_grad(c.logits.to(dtype).to(device).alias());
  const CtcLoss loss = ctc_loss(x, c.frame_lengths, c.labels, c.label_lengths, {.reduction = reduction});
  backward(loss.loss, Tensor::full({}, 1.5, dtype, device));
  const CtcLoss only =
      ctc_loss(detach(x), c.frame_lengths, c.labels, c.label_lengths, {.reduction = reduction});
  return {detach(loss.loss).to(kCpu), loss.losses.to(kCpu), gradient(x).to(kCpu), only.losses.to(kCpu)};
}

}  // namespace

TEST_CASE("cuda: the CTC loss and its gradient equal the CPU and are bit-identical in every run") {
  for (const Device device : list_cuda_devices())
    for (const auto& size : {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 2, 1},
                             {7, 40, 5, 17},
                             {3, 33, 131, 0},
                             {3, 700, 31, 280}})
      for (const DType dtype : {DType::float64, DType::float32})
        for (const CtcReduction reduction : {CtcReduction::per_utterance, CtcReduction::per_label}) {
          const int64_t batch = std::get<0>(size), frames = std::get<1>(size), classes = std::get<2>(size),
                        longest = std::get<3>(size);
          CAPTURE(frames);
          CAPTURE(name_of(dtype));
          const Case c = random_case(batch, frames, classes, longest, static_cast<int>(frames));
          const std::vector<Tensor> expected = compute_result_and_gradients(c, dtype, kCpu, reduction),
                                    found = compute_result_and_gradients(c, dtype, device, reduction);
          const std::vector<Tensor> again = compute_result_and_gradients(c, dtype, device, reduction);
          const double losses = static_cast<double>(frames) * 10,
                       error = dtype == DType::float64 ? 1e-12 : 3e-6;
          CHECK(max_difference(found[0], expected[0]) < error * losses);
          CHECK(max_difference(found[1], expected[1]) < error * losses);
          CHECK(max_difference(found[2], expected[2]) < 10 * error);
          CHECK(max_difference(found[1], found[3]) == 0);
          for (size_t i = 0; i < found.size(); ++i) CHECK(max_difference(found[i], again[i]) == 0);
        }
}

TEST_CASE("cuda: CTC with infeasible labels and with logits that are not finite equals the CPU") {
  for (const Device device : list_cuda_devices()) {
    Case c = random_case(4, 12, 5, 3, 1);
    for (int64_t b = 0; b < 4; ++b)
      c.frame_lengths.data<int64_t>()[b] = 12, c.label_lengths.data<int64_t>()[b] = 2;
    double* const logits = c.logits.data<double>();
    logits[3] = NAN;                  // frame 0 of utterance 0
    for (int64_t t = 0; t < 12; ++t)  // the first label of utterance 1 has probability 0 in all frames
      logits[60 + 5 * t + c.labels.data<int64_t>()[3]] = -INFINITY;
    c.frame_lengths.data<int64_t>()[2] = 1;  // utterance 2 has too few frames for its labels
    logits[2 * 60 + 5] = NAN;                // frame 1 of utterance 2 is padding
    const std::vector<Tensor> expected =
        compute_result_and_gradients(c, DType::float64, kCpu, CtcReduction::per_utterance);
    const std::vector<Tensor> found =
        compute_result_and_gradients(c, DType::float64, device, CtcReduction::per_utterance);
    for (const size_t i : {1, 2}) {
      const auto a = expected[i].to_vector(), b = found[i].to_vector();
      for (size_t k = 0; k < a.size(); ++k)
        CHECK((std::isnan(a[k]) ? std::isnan(b[k]) : a[k] == b[k] || std::abs(a[k] - b[k]) < 1e-12));
    }
    CHECK_THROWS_AS(ctc_loss(c.logits.to(device), c.frame_lengths.to(device), c.labels, c.label_lengths),
                    ShapeError);
  }
}
