// Tests of the number of launches of small training steps and decoded tokens: kernels and matrix products.
// After an improvement, lower the number.
#include <doctest/doctest.h>

#include "core/cuda/devices.h"
#include "core/cuda/launch_count.h"
#include "core/device_control.h"
#include "models/autoregressive_model.h"
#include "models/generation.h"
#include "models/model_kind.h"
#include "ops/gated_linear_attention.h"
#include "tests/models/small_model.h"
#include "train/optimization/optimizer.h"

using namespace tapeformer;

namespace {

constexpr int64_t kLength = 128;

// gated_attention: a forward and a backward pass of gated_linear_attention() with erase keys and one decay
// per head.
enum class Counted { training_step, token, gated_attention };

struct Workload {
  const char* name;
  const char* attention;
  Precision precision;
  Counted counted;
  int64_t batch;
  int64_t launches;  // kernels and matrix products
};

constexpr Workload kWorkloads[] = {
    {"linear, training", "linear", Precision::bfloat16, Counted::training_step, 2, 60},
    {"linear, float32", "linear", Precision::float32, Counted::training_step, 2, 55},
    {"softmax, training", "softmax", Precision::bfloat16, Counted::training_step, 2, 58},
    {"lsh, training", "lsh", Precision::bfloat16, Counted::training_step, 2, 82},
    {"linear, token", "linear", Precision::bfloat16, Counted::token, 32, 16},
    {"softmax, token", "softmax", Precision::bfloat16, Counted::token, 32, 17},
    {"gated", "linear", Precision::bfloat16, Counted::gated_attention, 2, 10},
    {"gated, float32", "linear", Precision::float32, Counted::gated_attention, 2, 10},
    {"gated, token", "gated-delta", Precision::bfloat16, Counted::token, 32, 29},
};

// Returns the options of the MNIST model of "Transformers are RNNs" with one layer and a shorter length.
AutoregressiveModelOptions options_of(const Workload& workload) {
  OptionValues values(find_model_kind("image").options);
  values.set("layers", int64_t{1});
  auto options = read_model_options<AutoregressiveModelOptions>(
      values, {{workload.attention, find_attention_kind(workload.attention).default_options()}});
  options.max_length = kLength;
  return options;
}

// Counts the launches of the second call of `step`, because the first call includes work that is not
// repeated.
template <class F>
int64_t count_second_call(const F& step) {
  step();
  const int64_t before = cuda::launch_count;
  step();
  return cuda::launch_count - before;
}

int64_t count_token(const Workload& workload, Device device) {
  const NoGradScope no_grad;
  const AutoregressiveModelOptions options = options_of(workload);
  AutoregressiveModel model(options);
  model.initialize(1);
  model.move(device);
  const Tensor columns = Tensor::zeros({kLength + 1, workload.batch}, DType::uint8, device);
  const Tensor tokens = Tensor::zeros({workload.batch}, DType::uint8, device);
  const Sampler sampler(options, {.seed = 1}, device);
  Decoder decoder(model, workload.batch);
  int64_t position = 0;
  const auto step = [&] {
    sampler.draw(decoder.step(tokens), position, tokens);
    copy_tokens_at_position(columns, ++position, 1, tokens);
  };
  return count_second_call(step);
}

int64_t count_training_step(const Workload& workload, Device device) {
  AutoregressiveModel model(options_of(workload));
  model.initialize(1);
  model.move(device);
  Optimizer optimizer({}, model.parameters(), model.undecayed_parameters());
  const Batch batch{.tokens = test::random_tokens(workload.batch, kLength + 1, 256).to(device)};
  const auto step = [&] {
    optimizer.prepare_step(1e-4);
    const RoundedWeights::Scope rounded(optimizer.round_weights());
    backward(model.compute_loss(batch, {.training = true, .seed = 1}));
    optimizer.update_parameters();
  };
  return count_second_call(step);
}

int64_t count_gated_attention(const Workload& workload, Device device) {
  const DType dtype = workload.precision == Precision::bfloat16 ? DType::bfloat16 : DType::float32;
  const Shape shape{workload.batch, kLength, 8, 64}, decays{workload.batch, kLength, 8};
  const auto make_input = [&](double value, const Shape& size, DType as) {
    return set_requires_grad(Tensor::full(size, value, as, device));
  };
  const Tensor q = make_input(0.1, shape, dtype), k = make_input(0.1, shape, dtype),
               v = make_input(1, shape, dtype), g = Tensor::full(shape, 1, dtype, device);
  const GatedLinearAttentionOptions options{.log_decay = make_input(-0.1, decays, DType::float32),
                                            .erase = make_input(0.1, shape, dtype)};
  Tensor out;
  const auto step = [&] {
    out = gated_linear_attention(q, k, v, options).out;
    backward(out, g);
  };
  return count_second_call(step);
}

int64_t count_launches(const Workload& workload) {
  const Device device = choose_device("cuda-emulated").device;
  set_precision(device, workload.precision);
  int64_t launches = 0;
  if (workload.counted == Counted::token) {
    launches = count_token(workload, device);
  } else if (workload.counted == Counted::gated_attention) {
    launches = count_gated_attention(workload, device);
  } else {
    launches = count_training_step(workload, device);
  }
  set_precision(device, Precision::float32);
  return launches;
}

}  // namespace

TEST_CASE("cuda: training steps and decoded tokens keep their budgets of launches") {
  for (const Workload& workload : kWorkloads) {
    CAPTURE(workload.name);
    CHECK(count_launches(workload) == workload.launches);
  }
}
