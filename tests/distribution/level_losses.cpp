// A program for the test of the instruction set levels. The program prints the level of the CPU kernels and
// the extensions of the level. Then it trains several small models and prints a line with the losses of each
// model.
#include <cstdio>

#include "core/system/machine.h"
#include "models/autoregressive_model.h"
#include "tests/models/small_model.h"

using namespace tapeformer;

int main() {
  constexpr int64_t kSequences = 3, kLength = 12, kVocabulary = 7;
  constexpr double kLearningRate = 0.1;
  const BuildInfo build = get_build_info();
  std::printf("%s\n%s\n", build.kernel_architecture.c_str(), build.instruction_set.c_str());
  for (const std::string& kind : test::causal_kinds()) {
    AutoregressiveModel model(test::small_options(kind, OutputHead::categorical));
    model.initialize(1);
    const Batch batch{test::random_tokens(kSequences, kLength, kVocabulary), {}, {}};
    std::printf("%s", kind.c_str());
    for (int step = 0; step < 10; ++step) {
      const Tensor loss = model.compute_loss(batch, {});
      std::printf(" %.9g", loss.item());
      backward(loss);
      for (const auto& [name, weight] : model.parameters()) {
        weight.add_scaled(gradient(weight), -kLearningRate);
        set_gradient(weight, {});
      }
    }
    std::printf("\n");
  }
}
