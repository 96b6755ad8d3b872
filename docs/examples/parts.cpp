// The command line of Tapeformer with one more data set, "reversal", and one more optimizer, "lion".
// docs/extending.md explains this file.
//
// Usage: parts train parts.toml
#include <tapeformer/core/random/rng.h>
#include <tapeformer/data/dataset_kind.h>
#include <tapeformer/tapeformer.h>
#include <tapeformer/train/cli/run.h>
#include <tapeformer/train/optimization/optimizer_kind.h>

#include <cstdint>
#include <memory>
#include <span>

using namespace tapeformer;

// A data set of random symbols, followed by the same symbols in reverse order. Only the second half is
// predicted.
class Reversal : public Dataset {
 public:
  Reversal(int64_t half, int64_t symbols, const DatasetRequest& request)
      : half_(half),
        size_(request.limit > 0 ? request.limit : 10000),
        info_{"reversal", request.split, symbols, 2 * half - 1},
        stream_(request.seed, "reversal " + request.split) {}

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }

  Batch batch(std::span<const int64_t> indices) const override {
    check_indices(indices);
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{.tokens = Tensor::empty({count, 2 * half_}, DType::uint8),
                .mask = Tensor::zeros({count, 2 * half_ - 1}, DType::uint8)};
    for (int64_t row = 0; row < count; ++row)
      for (int64_t i = 0; i < half_; ++i) {
        const auto draw = static_cast<uint64_t>(indices[static_cast<size_t>(row)] * half_ + i);
        const auto symbol =
            static_cast<uint8_t>(stream_.uniform_below(draw, static_cast<uint64_t>(info_.vocabulary)));
        batch.tokens.data<uint8_t>()[row * 2 * half_ + i] = symbol;
        batch.tokens.data<uint8_t>()[row * 2 * half_ + 2 * half_ - 1 - i] = symbol;
        // Prediction t is the prediction of token t + 1.
        batch.mask.data<uint8_t>()[row * (2 * half_ - 1) + half_ + i - 1] = 1;
      }
    return batch;
  }

 private:
  int64_t half_, size_;
  DatasetInfo info_;
  RandomStream stream_;
};

// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): steps by the sign of a momentum.
class Lion : public UpdateMethod {
 public:
  Lion(double beta1, double beta2, double weight_decay, const NamedParameters& parameters)
      : beta1_(beta1), beta2_(beta2), weight_decay_(weight_decay) {
    for (const auto& [name, parameter] : parameters) momenta_.push_back(Tensor::zeros_like(parameter));
  }

  UpdateRule prepare_step(double lr, int64_t) override {
    lr_ = lr;
    return {};
  }

  Tensor update(const std::vector<ParameterUpdate>& updates, const Tensor&,
                const Clipping& clipping) override {
    const NoGradScope no_grad;
    std::vector<Tensor> gradients;
    for (const ParameterUpdate& one : updates) gradients.push_back(one.gradient);
    const auto [scales, norm] = compute_gradient_scales(gradients, clipping);
    for (size_t i = 0; i < updates.size(); ++i) {
      const Tensor p = detach(updates[i].parameter), momentum = momenta_[updates[i].index];
      const Tensor g = mul(gradients[i], scales.view({}, {}, static_cast<int64_t>(i)).to(p.dtype()));
      const Tensor mixed = add(mul(momentum, beta1_), mul(g, 1 - beta1_));
      const Tensor sign = div(mixed, sqrt(add(square(mixed), kTiny)));
      const double shrink = updates[i].decays ? 1 - lr_ * weight_decay_ : 1;
      updates[i].parameter.copy_from(sub(mul(p, shrink), mul(sign, lr_)));
      momentum.copy_from(add(mul(momentum, beta2_), mul(g, 1 - beta2_)));
    }
    return norm;
  }

  std::vector<std::pair<std::string, Tensor>> state(size_t index) const override {
    return {{"momentum", momenta_[index]}};
  }

 private:
  static constexpr double kTiny = 1e-20;  // avoids 0 / 0
  double beta1_, beta2_, weight_decay_, lr_ = 0;
  std::vector<Tensor> momenta_;
};

void register_reversal() {
  const auto make = [](const OptionValues& options, const DatasetRequest& request) {
    return std::make_shared<Reversal>(options.get<int64_t>("half"), options.get<int64_t>("symbols"), request);
  };
  register_dataset_kind(
      {.name = "reversal",
       .help = "random symbols and their reversal",
       .options = {{.name = "half",
                    .default_value = int64_t{8},
                    .help = "number of symbols before the reversal",
                    .min = 1,
                    .max = 1000,
                    .use = OptionUse::model},
                   {.name = "symbols",
                    .default_value = int64_t{10},
                    .help = "symbols besides the separator",
                    .min = 1,
                    .max = 65535,
                    .use = OptionUse::model}},
       .model_types = {"sequence"},
       .get_info = [make](const OptionValues& options,
                          const DatasetRequest& request) { return make(options, request)->info(); },
       .make = make});
}

void register_lion() {
  register_optimizer_kind(
      {.name = "lion",
       .help = "steps by the sign of a momentum",
       .options =
           {{.name = "keep", .default_value = 0.99, .help = "decay of the momentum", .min = 0, .max = 1}},
       .make = [](const OptimizerConfig& config, const OptionValues& options,
                  const NamedParameters& parameters) {
         return std::make_unique<Lion>(0.9, options.get<double>("keep"), config.weight_decay, parameters);
       }});
}

int main(int argc, char** argv) {
  register_reversal();
  register_lion();
  return cli::run(argc, argv);
}
