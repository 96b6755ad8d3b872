// Translation on a CUDA device.
#include <doctest/doctest.h>

#include "models/translation/beam_search.h"
#include "tests/models/translation/small_translation.h"
#include "tests/support/devices.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("cuda: a device has the loss, the gradients and the translations of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const StackForm form : kStackForms)
      for (const char* kind : {"softmax", "linear", "lsh"}) {
        CAPTURE(kind);
        CAPTURE(static_cast<int>(form));
        const std::string cross = std::string(kind) == "linear" ? "linear" : "softmax";
        const Batch batch = translation_batch({3, 5, 1}, {4, 2, 5}, 7);
        std::vector<double> losses;
        std::vector<Tensor> gradients;
        std::vector<std::vector<std::vector<TranslationHypothesis>>> results;
        for (const Device place : {kCpu, device}) {
          TranslationModel model(small_translation(form, kind, cross));
          model.initialize(3);
          model.move(place);
          const Tensor loss = model.compute_loss(batch, {.training = true, .seed = 5, .step = 2});
          backward(loss);
          losses.push_back(detach(loss).to(kCpu).item());
          gradients.push_back(gradient(model.source_embedding.weight).to(kCpu));
          TranslationDecoder decoder(model);
          results.push_back(translate(decoder, batch.source, batch.source_lengths, {.hypotheses = 4}));
        }
        CHECK(losses[0] == doctest::Approx(losses[1]).epsilon(1e-5));
        CHECK(max_difference(gradients[0], gradients[1]) < 1e-5);
        for (size_t b = 0; b < 3; ++b)
          for (size_t i = 0; i < results[0][b].size(); ++i) {
            CHECK(results[0][b][i].tokens == results[1][b][i].tokens);
            CHECK(results[0][b][i].score == doctest::Approx(results[1][b][i].score).epsilon(1e-4));
          }
      }
}
