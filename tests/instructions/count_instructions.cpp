// Runs training steps and decoding steps whose instructions instructions_test.py counts. One thread, one case
// after another: a training step (forward and backward pass) of a layer of each attention kind and of layers
// with other options, and the decoding of one token by each kind with a recurrent form. Prints the name of
// each case.
#include <valgrind/callgrind.h>

#include <functional>
#include <iostream>

#include "core/device_control.h"
#include "core/threads/threads.h"
#include "models/decoder.h"
#include "ops/view.h"
#include "tests/models/small_model.h"

namespace tapeformer::test {
namespace {

// The default options of all kinds accept kLength. In shorter sequences, activations and norms weigh more.
constexpr int64_t kBatch = 1, kLength = 768, kFewTokens = 64;

// Runs the step twice: the first step allocates memory and computes tables of constants, and callgrind counts
// the instructions of the second.
void count(const std::string& name, const std::function<void()>& step) {
  step();
  CALLGRIND_START_INSTRUMENTATION;
  step();
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS;
  std::cout << name << '\n';
}

AutoregressiveModelOptions make_options(const std::string& attention, int64_t length) {
  AutoregressiveModelOptions options;
  options.encoder.layers = 1;
  options.encoder.heads = 2;
  options.encoder.head_dim = 32;
  options.encoder.feedforward = 128;
  options.encoder.attention = {{attention, find_attention_kind(attention).default_options()}};
  options.encoder.pre_norm = true;
  options.encoder.activation = Activation::gelu;
  options.head = OutputHead::categorical;
  options.position_kind = PositionKind::none;
  options.max_length = length;
  return options;
}

void count_training(const std::string& name, const AutoregressiveModelOptions& options) {
  AutoregressiveModel model(options);
  model.initialize(1);
  const Batch batch{random_tokens(kBatch, options.max_length + 1, options.vocabulary_size), {}, {}};
  count("train " + name, [&] { backward(model.compute_loss(batch, {.training = true, .seed = 1})); });
}

void count_decoding(const std::string& name, const AutoregressiveModelOptions& options) {
  AutoregressiveModel model(options);
  model.initialize(1);
  Decoder decoder(model, kBatch);
  const Tensor tokens = random_tokens(kBatch, options.max_length, options.vocabulary_size);
  decoder.read(slice(tokens, 1, 0, options.max_length - 2));
  const Tensor token = reshape(random_tokens(kBatch, 1, options.vocabulary_size), {kBatch});
  count("decode " + name, [&] { decoder.step(token); });
}

// The options that select other kernels of a layer.
std::vector<std::pair<std::string, AutoregressiveModelOptions>> list_layers() {
  const AutoregressiveModelOptions base = make_options("softmax", kFewTokens);
  AutoregressiveModelOptions modern = base, gelu_tanh = base, mixture = base, dropout = base, relu = base;
  modern.encoder.norm.kind = NormKind::rms;
  modern.encoder.gated_feedforward = true;
  modern.encoder.activation = Activation::silu;
  modern.encoder.kv_heads = 1;
  modern.encoder.rotary = true;
  modern.encoder.qk_norm = true;
  gelu_tanh.encoder.activation = Activation::gelu_tanh;
  relu.encoder.activation = Activation::relu;
  mixture.head = OutputHead::logistic_mixture;
  dropout.encoder.dropout = 0.1;
  return {{"modern", modern}, {"gelu", base},       {"gelu-tanh", gelu_tanh},
          {"relu", relu},     {"mixture", mixture}, {"dropout", dropout}};
}

void count_all(const std::string& precision) {
  for (const std::string& kind : causal_kinds()) {
    const AutoregressiveModelOptions options = make_options(kind, kLength);
    count_training(kind + precision, options);
    if (find_attention_kind(kind).capabilities.recurrent) count_decoding(kind + precision, options);
  }
  for (const auto& [name, options] : list_layers()) {
    count_training(name + precision, options);
    count_decoding(name + precision, options);
  }
}

}  // namespace
}  // namespace tapeformer::test

int main() {
  using namespace tapeformer;
  set_thread_count(1);
  test::count_all("");
  set_precision(kCpu, Precision::bfloat16);
  test::count_all(" bfloat16");
}
