#include "models/decoder.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "core/cuda/transfers.h"
#include "core/device_control.h"
#include "models/generation.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

double parallel_against_recurrent(AutoregressiveModel& model, int64_t batch) {
  const Tensor tokens = random_tokens(batch, 11, model.options().vocabulary_size);
  const NoGradScope no_grad;
  const Tensor parallel = model.forward(tokens, {});
  Decoder decoder(model, batch);
  double worst = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second repeat follows reset()
    for (int64_t t = 0; t < 11; ++t) {
      const Tensor column = tokens.view({batch}, {11}, t).clone();
      const Tensor& outputs = decoder.step(column);
      const Tensor expected =
          parallel.alias({batch, parallel.size(2)}, {parallel.strides()[0], 1}, t * parallel.size(2));
      worst = std::max(worst, max_difference(outputs, expected));
    }
    decoder.reset();
  }
  return worst;
}

// Returns the largest difference between two decoders, of which one reads some of the tokens in the parallel
// form.
double read_against_steps(AutoregressiveModel& model, int64_t batch) {
  const Tensor tokens = random_tokens(batch, 11, model.options().vocabulary_size);
  const NoGradScope no_grad;
  Decoder steps(model, batch), reads(model, batch);
  double worst = 0;
  for (const auto& [first, second] : {std::pair(6, 8), {1, 11}, {11, 11}, {2, 9}}) {
    steps.reset();
    reads.reset();
    std::vector<Tensor> expected;
    for (int64_t t = 0; t < 11; ++t)
      expected.push_back(steps.step(tokens.view({batch}, {11}, t).clone()).clone());
    const auto compare = [&](const Tensor& outputs, int64_t t) {
      worst = std::max(worst, max_difference(outputs, expected[static_cast<size_t>(t)]));
    };
    const auto read = [&](int64_t begin, int64_t end) {
      const Tensor encoded = reads.read(slice(tokens, 1, begin, end));
      CHECK(encoded.shape() == Shape{batch, end - begin, model.predictor.weight.size(1)});
      for (int64_t t = begin; t < end; ++t)
        compare(model.predictor.forward(
                    reshape(slice(encoded, 1, t - begin, t - begin + 1), {batch, encoded.size(2)})),
                t);
      CHECK(reads.position() == end);
    };
    read(0, first);
    if (second > first) read(first, second);
    for (int64_t t = second; t < 11; ++t) compare(reads.step(tokens.view({batch}, {11}, t).clone()), t);
  }
  return worst;
}

// Returns the options of small models for each output head: one model of every recurrent attention kind, and
// a reversible model with axial positions.
std::vector<AutoregressiveModelOptions> recurrent_models() {
  std::vector<AutoregressiveModelOptions> models;
  for (const OutputHead head : {OutputHead::logistic_mixture, OutputHead::categorical}) {
    for (const std::string& attention : recurrent_kinds()) models.push_back(small_options(attention, head));
    models.push_back(reformer_options("linear", head));
  }
  return models;
}

}  // namespace

TEST_CASE("recurrent decoding of the whole model equals its parallel form") {
  for (const std::string& attention : recurrent_kinds())
    for (const bool pre_norm : {false, true})
      for (const Activation activation : {Activation::relu, Activation::gelu}) {
        CAPTURE(attention);
        AutoregressiveModelOptions options = small_options(attention);
        options.encoder.pre_norm = pre_norm;
        options.encoder.activation = activation;
        AutoregressiveModel model(options);
        model.initialize(4);
        for (const int64_t batch : {1, 3, 9}) CHECK(parallel_against_recurrent(model, batch) < 1e-5);
        model.convert(DType::float64);
        for (const int64_t batch : {1, 3, 9}) CHECK(parallel_against_recurrent(model, batch) < 1e-12);
      }
}

TEST_CASE("tokens that are read in the parallel form leave the states of steps") {
  std::vector<AutoregressiveModelOptions> models = recurrent_models();
  for (const std::string kind : {"softmax", "linear", "gated-delta", "local", "window-linear"})
    for (const int64_t conv : {1, 3}) {
      AutoregressiveModelOptions options = small_options(kind);
      options.encoder.attention[0].options.set("conv", conv);
      if (kind != "gated-delta")
        options.encoder.attention[0].options.set("conv_activation", std::string("silu"));
      options.encoder.rotary = true;
      options.position_kind = PositionKind::none;
      options.encoder.kv_heads = 1;
      options.encoder.qk_norm = options.encoder.pre_norm = kind != "gated-delta";
      models.push_back(options);
    }
  AutoregressiveModelOptions learned = small_options("softmax");
  learned.position_kind = PositionKind::learned;
  learned.encoder.pre_norm = learned.encoder.parallel_residual = true;
  models.push_back(learned);
  for (const AutoregressiveModelOptions& options : models) {
    CAPTURE(options.encoder.attention[0].kind);
    AutoregressiveModel model(options);
    model.initialize(4);
    for (const int64_t batch : {1, 3}) CHECK(read_against_steps(model, batch) < 1e-4);
    set_precision(kCpu, Precision::bfloat16);
    CHECK(read_against_steps(model, 2) < 0.2);
    set_precision(kCpu, Precision::float32);
    model.convert(DType::float64);
    CHECK(read_against_steps(model, 2) < 1e-12);
  }
}

TEST_CASE("a decoder does not read tokens beyond its capacity") {
  AutoregressiveModel model(small_options("linear"));
  Decoder decoder(model, 2, 4);
  CHECK_THROWS_AS(decoder.read(Tensor::zeros({2, 5}, DType::uint8)), ShapeError);
  CHECK_THROWS_AS(decoder.read(Tensor::zeros({3, 2}, DType::uint8)), ShapeError);
  decoder.read(Tensor::zeros({2, 3}, DType::uint8));
  CHECK_THROWS_AS(decoder.read(Tensor::zeros({2, 2}, DType::uint8)), ShapeError);
}

TEST_CASE("recurrent decoding in bfloat16 equals the parallel form up to the rounding of activations") {
  for (const std::string& attention : recurrent_kinds()) {
    CAPTURE(attention);
    AutoregressiveModel model(small_options(attention));
    model.initialize(4);
    const double exact = parallel_against_recurrent(model, 5);
    set_precision(kCpu, Precision::bfloat16);
    const double rounded = parallel_against_recurrent(model, 5);
    set_precision(kCpu, Precision::float32);
    CHECK(rounded < 0.1);
    CHECK(rounded > 10 * exact);
  }
}

TEST_CASE("recurrent decoding of a reversible model with axial positions equals its parallel form") {
  for (const std::string& attention : recurrent_kinds())
    for (const bool doubled : {true, false}) {
      AutoregressiveModelOptions options = reformer_options(attention);
      options.encoder.doubled_input = doubled;
      AutoregressiveModel model(options);
      model.initialize(4);
      for (const int64_t batch : {1, 3}) CHECK(parallel_against_recurrent(model, batch) < 1e-5);
      model.convert(DType::float64);
      for (const int64_t batch : {1, 3}) CHECK(parallel_against_recurrent(model, batch) < 1e-12);
    }
}

TEST_CASE("a decoding step allocates no memory") {
  std::vector<AutoregressiveModelOptions> models;
  for (const std::string& attention : recurrent_kinds()) {
    models.push_back(small_options(attention));
    models.push_back(reformer_options(attention));
  }
  AutoregressiveModelOptions rotary = small_options("linear");
  rotary.encoder.rotary = true;
  rotary.position_kind = PositionKind::none;
  rotary.encoder.attention[0].options.set("rotation", std::string("features"));
  models.push_back(rotary);
  for (const Precision kind : {Precision::float32, Precision::bfloat16})
    for (const auto& options : models) {
      set_precision(kCpu, kind);
      AutoregressiveModel model(options);
      model.initialize(1);
      Decoder decoder(model, 5);
      const Tensor tokens = Tensor::zeros({5}, DType::uint8);
      decoder.step(tokens);
      const int64_t before = get_device_allocator().stats().allocation_count;
      for (int i = 0; i < 5; ++i) decoder.step(tokens);
      CHECK(get_device_allocator().stats().allocation_count == before);
    }
  set_precision(kCpu, Precision::float32);
}

TEST_CASE("the state of linear attention has a fixed size, and steps after the maximum length are errors") {
  AutoregressiveModel model(small_options("linear"));
  model.initialize(1);
  Decoder decoder(model, 2);
  CHECK(decoder.state_bytes() == 2 * 2 * 2 * (4 * 4 + 4) * 4);
  const Tensor tokens = Tensor::zeros({2}, DType::uint8);
  for (int i = 0; i < 11; ++i) decoder.step(tokens);
  CHECK_THROWS_WITH_AS(decoder.step(tokens), "Decoder: position 11 is beyond the capacity", ShapeError);
}

TEST_CASE("the cache of softmax attention has the dtype of the operands of matrix products") {
  AutoregressiveModel model(small_options("softmax"));
  model.initialize(1);
  const int64_t exact = Decoder(model, 2).state_bytes();
  set_precision(kCpu, Precision::bfloat16);
  const int64_t rounded = Decoder(model, 2).state_bytes();
  set_precision(kCpu, Precision::float32);
  CHECK(exact == 2 * rounded);
}

TEST_CASE("both modes of generation draw the same tokens, which do not depend on the batch") {
  for (const std::string& attention : recurrent_kinds()) {
    AutoregressiveModel model(small_options(attention));
    model.initialize(4);
    model.convert(DType::float64);  // float32 rounding errors could change a sampled token
    const Tensor prefix = random_tokens(4, 3, 256);
    const Tensor recurrent = generate(model, prefix, 12, {.seed = 9});
    const Tensor recompute = generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9});
    CHECK(recurrent.to_vector() == recompute.to_vector());
    const Tensor second_half = prefix.view({2, 3}, {3, 1}, 6);
    const Tensor cut = generate(model, second_half, 12, {.seed = 9, .first_sequence_index = 2});
    CHECK(cut.to_vector() == recurrent.view({2, 12}, {12, 1}, 24).to_vector());
    CHECK(generate(model, prefix, 12, {.seed = 10}).to_vector() != recurrent.to_vector());
    CHECK(recurrent.view({4, 3}, {12, 1}).to_vector() == prefix.to_vector());
  }
}

TEST_CASE("a token stream holds capacity + 1 tokens in both modes, and its tokens are those of generate()") {
  AutoregressiveModel model(small_options("linear", OutputHead::categorical));
  model.initialize(3);
  const Tensor prefix = random_tokens(1, 1, 7);
  for (const GenerationMode mode : {GenerationMode::recurrent, GenerationMode::recompute}) {
    const GenerationOptions options{.mode = mode, .seed = 9};
    const Tensor expected = generate(model, prefix, 6, options);
    TokenStream stream(model, options, 1, 5);
    CHECK_THROWS_WITH_AS(stream.draw(), "TokenStream: the stream has no token", ShapeError);
    CHECK_THROWS_AS(stream.append(7), ShapeError);
    stream.append(prefix.data<uint8_t>()[0]);
    for (int64_t t = 1; t < 6; ++t) CHECK(stream.draw().front() == expected.data<uint8_t>()[t]);
    CHECK(stream.size() == 6);
    CHECK_THROWS_WITH_AS(stream.draw(), "TokenStream: more than 6 tokens", ShapeError);
    CHECK_THROWS_WITH_AS(stream.append(0), "TokenStream: more than 6 tokens", ShapeError);
    CHECK(stream.size() == 6);
  }
}

TEST_CASE("tokens that must not be drawn are never drawn, with any options of sampling") {
  AutoregressiveModelOptions options = small_options("linear", OutputHead::categorical);
  const AutoregressiveModel model(options);
  model.initialize(3);
  std::vector<int64_t> undrawn;
  for (int64_t token = 0; token < options.vocabulary_size; ++token)
    if (token != 3 && token != 7) undrawn.push_back(token);
  for (const ClassSamplingOptions& sampling :
       {ClassSamplingOptions{}, ClassSamplingOptions{.greedy = true}, ClassSamplingOptions{.temperature = 5},
        ClassSamplingOptions{.top_k = 4}, ClassSamplingOptions{.top_p = 0.9}})
    for (const GenerationMode mode : {GenerationMode::recurrent, GenerationMode::recompute}) {
      TokenStream stream(model, {.mode = mode, .seed = 5, .sampling = sampling, .undrawn_tokens = undrawn}, 1,
                         10);
      stream.append(1);
      for (int i = 0; i < 8; ++i) {
        const int64_t token = stream.draw().front();
        CHECK((token == 3 || token == 7));
      }
    }
}

TEST_CASE("a token stream with a window continues with the newer half of a full window in both modes") {
  const Tensor prompt = random_tokens(1, 9, 7);
  for (const std::string attention : {"linear", "softmax"}) {
    AutoregressiveModel model(small_options(attention, OutputHead::categorical));
    model.initialize(3);
    model.convert(DType::float64);  // float32 rounding errors could change a sampled token
    const auto drawn = [&](GenerationMode mode, int64_t window) {
      TokenStream stream(model, {.mode = mode, .seed = 9}, 1, 40, window);
      for (int64_t i = 0; i < 9; ++i) stream.append(prompt.data<uint8_t>()[i]);
      std::vector<int64_t> tokens;
      while (stream.size() <= 40) tokens.push_back(stream.draw().front());
      CHECK_THROWS_WITH_AS(stream.draw(), "TokenStream: more than 41 tokens", ShapeError);
      return tokens;
    };
    for (const int64_t window : {1, 2, 5, 11}) {
      CAPTURE(window);
      const auto recurrent = drawn(GenerationMode::recurrent, window);
      CHECK(recurrent == drawn(GenerationMode::recompute, window));
    }
    CHECK(drawn(GenerationMode::recurrent, 5) != drawn(GenerationMode::recurrent, 11));
    CHECK_THROWS_AS(TokenStream(model, {.mode = GenerationMode::recompute}, 1, 40, 12), ShapeError);
    CHECK_THROWS_AS(TokenStream(model, {}, 1, 40, 12), ShapeError);
  }
}

TEST_CASE("a token stream of several sequences draws the tokens of streams of one sequence") {
  for (const std::string attention : {"linear", "softmax"}) {
    AutoregressiveModel model(small_options(attention, OutputHead::categorical));
    model.initialize(3);
    model.convert(DType::float64);  // float32 rounding errors could change a sampled token
    for (const GenerationMode mode : {GenerationMode::recurrent, GenerationMode::recompute})
      for (const int64_t window : {0, 5}) {
        GenerationOptions options{.mode = mode, .seed = 9, .first_sequence_index = 4};
        const auto draw = [&](int64_t batch) {
          TokenStream stream(model, options, batch, 11, window);
          for (const int64_t token : {1, 2, 3}) stream.append(token);
          std::vector<std::vector<int64_t>> drawn;
          while (stream.size() <= 11) drawn.push_back(stream.draw());
          return drawn;
        };
        const auto together = draw(3);
        for (size_t row = 0; row < 3; ++row, ++options.first_sequence_index) {
          const auto alone = draw(1);
          for (size_t t = 0; t < alone.size(); ++t) CHECK(alone[t].front() == together[t][row]);
        }
      }
  }
}

// If a token is appended to a full window of 4 tokens, the window keeps only this token and the token before
// it. The windows therefore begin at the tokens 0, 3 and 6.
TEST_CASE("the windows of a token stream give the distributions of their tokens alone") {
  AutoregressiveModel model(small_options("linear", OutputHead::categorical));
  model.initialize(3);
  model.convert(DType::float64);
  const GenerationOptions greedy{.sampling = {.greedy = true}};
  const Tensor prompt = random_tokens(1, 8, 7);
  const auto next = [&](int64_t first, int64_t newest) {
    TokenStream stream(model, greedy, 1, 11);
    for (int64_t i = first; i <= newest; ++i) stream.append(prompt.data<uint8_t>()[i]);
    return stream.draw();
  };
  for (const auto& [newest, first] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 0}, {4, 3}, {5, 3}, {6, 3}, {7, 6}}) {
    TokenStream stream(model, greedy, 1, 30, 4);
    for (int64_t i = 0; i <= newest; ++i) stream.append(prompt.data<uint8_t>()[i]);
    CHECK(stream.draw() == next(first, newest));
  }
}

TEST_CASE("cuda: a device draws the sequences of the CPU, and the host waits only at the end") {
  for (const Device device : list_cuda_devices())
    for (const AutoregressiveModelOptions& options : recurrent_models()) {
      CAPTURE(join_kind_names(options.encoder.attention));
      AutoregressiveModel model(options);
      model.initialize(3);
      model.convert(DType::float64);  // float32 rounding errors could change a sampled token
      const Tensor prefix = Tensor::from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {3, 2});
      const Tensor expected = generate(model, prefix, 12, {.seed = 9});
      model.move(device);
      for (const bool graphs : {false, true})
        for (const int64_t length : {12, 5, 3, 2}) {
          int64_t before = 0, after = 0;
          if constexpr (kHasCuda) before = cuda::host_wait_count();
          const Tensor found = generate(model, prefix, length, {.seed = 9, .use_cuda_graphs = graphs});
          if constexpr (kHasCuda) after = cuda::host_wait_count();
          CHECK(after - before == 2);  // one wait to check the logits, and one to copy the tokens
          CHECK(max_difference(found, expected.view({3, length}, {12, 1})) == 0);
        }
    }
}

// No other test in this file samples from float32 logits on a device, so the sampling kernels run for the
// first time in this test.
TEST_CASE("cuda: sampling kernels run before the capture of a graph, even if the first tokens are given") {
  for (const Device device : list_cuda_devices())
    for (const OutputHead head : {OutputHead::logistic_mixture, OutputHead::categorical}) {
      AutoregressiveModel model(small_options("linear", head));
      model.initialize(3);
      model.move(device);
      const Tensor prefix = Tensor::from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {2, 3});
      const Tensor drawn = generate(model, prefix, 12, {.seed = 9}),
                   expected = generate(model, prefix, 12, {.seed = 9, .use_cuda_graphs = false});
      CHECK(drawn.view({2, 3}, {12, 1}).to_vector() == prefix.to_vector());
      CHECK(drawn.to_vector() == expected.to_vector());
    }
}

TEST_CASE("cuda: replayed decoding steps continue prefixes of any length") {
  for (const Device device : list_cuda_devices())
    for (const std::string& attention : recurrent_kinds()) {
      AutoregressiveModel model(small_options(attention));
      model.initialize(3);
      model.convert(DType::float64);
      const Tensor all = generate(model, random_tokens(2, 1, 256), 12, {.seed = 5});
      model.move(device);
      // A sparse pattern keeps its tables of blocks on the device.
      int64_t bytes_after_first_round = 0;
      for (const bool is_first_round : {true, false}) {
        for (const int64_t length : {1, 2, 3, 7, 11, 12}) {
          CAPTURE(length);
          const Tensor prefix = all.view({2, length}, {12, 1}).clone();
          CHECK(max_difference(generate(model, prefix, 12, {.seed = 5}), all) == 0);
        }
        const int64_t bytes = get_device_allocator(device).stats().active_bytes;
        if (is_first_round) bytes_after_first_round = bytes;
        CHECK(bytes == bytes_after_first_round);
      }
    }
}
