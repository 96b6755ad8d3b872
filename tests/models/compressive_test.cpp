// Tests of the compressed segment memory of the attention kind "compressive".
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>

#include "models/decoder.h"
#include "models/layers/loss_terms.h"
#include "models/layers/option_error.h"
#include "ops/reduce.h"
#include "tests/models/segments.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr const char* kCompressive = "compressive";
constexpr int64_t kLongText = 5 * kSegment;

KindOptions compressive_values(int64_t memory, int64_t compressed, int64_t rate,
                               const std::string& compression = "convolution") {
  return {
      {"memory", memory}, {"compressed_memory", compressed}, {"rate", rate}, {"compression", compression}};
}

AutoregressiveModelOptions compressive_options(const KindOptions& values) {
  return segment_options(kCompressive, values, kSegment);
}

Tensor xl_outputs(int64_t memory, const Tensor& tokens) {
  return by_segments(*segment_model(segment_options("transformer-xl", {{"memory", memory}}, kSegment)),
                     tokens);
}

// Runs a forward and a backward pass for each segment of a text. Returns the gradient of each parameter under
// the name of the parameter, and the final tensors of the segment memory under "memory NAME". If `with_terms`
// is true, the loss includes the loss terms of the attention layers, and the element "terms" of the result
// contains the sum of these terms for each segment.
std::map<std::string, std::vector<double>> gradients(const AutoregressiveModelOptions& options,
                                                     bool with_terms) {
  const Tensor tokens = random_tokens(2, kLongText + 1, 2 * kText);
  const auto model = segment_model(options);
  const auto memory = model->encoder.make_segment_memory(2);
  std::map<std::string, std::vector<double>> result;
  for (int64_t first = 0; first < kLongText; first += kSegment) {
    memory->start_segment(first);
    LossTerms terms;
    const Batch batch{.tokens = slice(tokens, 1, first, first + kSegment + 1), .mask = {}, .labels = {}};
    const Tensor loss = model->compute_loss(
        batch, {.training = true, .memory = memory.get(), .loss_terms = with_terms ? &terms : nullptr});
    backward(terms.sum().defined() ? add(loss, terms.sum()) : loss);
    if (terms.sum().defined()) result["terms"].push_back(terms.sum().item());
  }
  for (const auto& [name, parameter] : model->parameters())
    result[name] = gradient(parameter).defined() ? gradient(parameter).to_vector() : std::vector<double>();
  for (const auto& [name, state] : memory->state()) result["memory " + name] = state.to_vector();
  return result;
}

bool is_compression(const std::string& name) {
  return name.find(".compression.") != std::string::npos;
}

}  // namespace

TEST_CASE("tokens that leave the memory are compressed in order, and the oldest rows are dropped") {
  const Tensor x = normal({2, kLongText, 3}, 1);
  constexpr int64_t kTokens = 6, kRows = 3, kRate = 2;
  SegmentMemory memory(2, x);
  memory.add_layer("layer", {kTokens, kRows, kRate}, 3);
  for (int64_t first = 0; first < kLongText; first += kSegment) {
    CAPTURE(first);
    memory.start_segment(first);
    const Tensor found = memory.read("layer", 2);
    const int64_t tokens = std::min(first, kTokens), rows = std::min((first - tokens) / kRate, kRows);
    REQUIRE(found.defined() == (first > 0));
    if (first > 0) {
      REQUIRE(found.size(1) == rows + tokens);
      CHECK(max_difference(slice(found, 1, rows, rows + tokens), slice(x, 1, first - tokens, first)) == 0);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = first - tokens - (rows - row) * kRate;
      CHECK(max_difference(slice(found, 1, row, row + 1), mean(slice(x, 1, start, start + kRate), 1, true)) ==
            0);
    }
    const Tensor evicted = memory.write("layer", slice(x, 1, first, first + kSegment));
    const int64_t count = tokens + kSegment - kTokens;
    REQUIRE(evicted.defined() == (count > 0));
    if (evicted.defined()) {
      const int64_t oldest = first - tokens;
      CHECK(max_difference(evicted, slice(x, 1, oldest, oldest + count)) == 0);
      memory.write_compressed("layer", mean(reshape(evicted, {2, count / kRate, kRate, 3}), 2));
    }
    // A replay of a forward pass does not change the memory.
    CHECK(!memory.write("layer", Tensor::zeros({2, kSegment, 3}, DType::float64)).defined());
  }
}

TEST_CASE("without a compressed memory, and with means of one token, the model equals transformer-xl") {
  const Tensor tokens = random_tokens(3, kLongText, 2 * kText);
  const auto outputs = [&](const KindOptions& values) {
    return by_segments(*segment_model(compressive_options(values)), tokens);
  };
  const Tensor expected = xl_outputs(9, tokens);
  CHECK(max_difference(outputs({{"memory", int64_t{9}}, {"compressed_memory", int64_t{0}}}), expected) == 0);
  CHECK(max_difference(outputs(compressive_values(4, 5, 1, "mean")), expected) == 0);
  CHECK(max_difference(outputs(compressive_values(4, 5, 1, "max")), expected) == 0);
  CHECK(max_difference(outputs(compressive_values(4, 5, 2, "mean")), expected) > 1e-3);
  CHECK(max_difference(outputs(compressive_values(4, 4, 1, "mean")), expected) > 1e-3);
}

TEST_CASE("compression functions compute the mean, the maximum and a convolution of each span") {
  const AttentionSetup setup{.heads = 2, .dim = 2, .max_length = 6};
  const Tensor x = normal({2, 6, 4}, 1);
  for (const std::string compression : {"mean", "max", "convolution"}) {
    CAPTURE(compression);
    const auto attention = make_attention(
        kCompressive,
        find_attention_kind(kCompressive).make_options(compressive_values(6, 2, 3, compression)), setup);
    attention->initialize(1);
    attention->convert(DType::float64);
    SegmentMemory memory(2, x);
    memory.add_layer("layer", {.tokens = 6, .compressed_rows = 2, .compression_rate = 3}, 4);
    for (const int64_t first : {0, 6}) {
      memory.start_segment(first);
      attention->prepend_memory(x, {.memory = &memory}, "layer");
    }
    memory.start_segment(12);
    const Tensor y = slice(memory.read("layer", 2), 1, 0, 2);
    REQUIRE(y.shape() == Shape{2, 2, 4});
    const auto weight =
        compression == "convolution" ? attention->parameters()[3].second.to_vector() : std::vector<double>();
    double worst = 0;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t c = 0; c < 4; ++c) {
          const auto at = [&](int64_t t, int64_t f) {
            return x.data<double>()[(b * 6 + 3 * row + t) * 4 + f];
          };
          double expected = (at(0, c) + at(1, c) + at(2, c)) / 3;
          if (compression == "max") expected = std::max({at(0, c), at(1, c), at(2, c)});
          if (!weight.empty()) {
            expected = attention->parameters()[4].second.data<double>()[c];
            for (int64_t i = 0; i < 12; ++i)
              expected += weight[static_cast<size_t>(12 * c + i)] * at(i / 4, i % 4);
          }
          worst = std::max(worst, std::abs(y.data<double>()[b * y.strides()[0] + row * 4 + c] - expected));
        }
    CHECK(worst < 1e-14);
  }
}

TEST_CASE("the gradient of the reconstruction loss reaches only the compression") {
  const AutoregressiveModelOptions options = compressive_options(compressive_values(4, 3, 2));
  const auto with = gradients(options, true), without = gradients(options, false);
  int compressions = 0;
  for (const auto& [name_bound, values] : without) {
    const auto& name = name_bound;  // clang 14 cannot capture structured bindings
    CAPTURE(name);
    if (!is_compression(name)) {
      CHECK(values == with.at(name));
      continue;
    }
    ++compressions;
    CHECK(values.empty());
    REQUIRE(!with.at(name).empty());
    CHECK(std::any_of(with.at(name).begin(), with.at(name).end(), [](double g) { return g != 0; }));
  }
  CHECK(compressions == 2 * options.encoder.layers);
  // A segment has loss terms if it moves tokens out of the memory. The first of the five segments only fills
  // the memory, and the other four segments move tokens out of the memory.
  CHECK(with.at("terms").size() == 4);
}

TEST_CASE("the gradient of the reconstruction loss equals differences, and means and maxima have none") {
  const auto model = segment_model(compressive_options(compressive_values(4, 3, 2)));
  const Tensor tokens = random_tokens(2, 3 * kSegment, 2 * kText);
  const auto terms_of = [&](const AutoregressiveModel& m) {
    const auto memory = m.encoder.make_segment_memory(2);
    LossTerms terms;
    for (int64_t first = 0; first < tokens.size(1); first += kSegment) {
      memory->start_segment(first);
      m.forward(slice(tokens, 1, first, first + kSegment), {.memory = memory.get(), .loss_terms = &terms});
    }
    return terms.sum();
  };
  backward(terms_of(*model));
  // Only the compression in the last layer is tested. The compression in the first layer also changes the
  // loss term of the last layer, but backward() ignores this effect.
  constexpr double kStep = 1e-5;
  int parameters = 0;
  for (const auto& [name, parameter] : model->parameters()) {
    if (!name.starts_with("layers.1.") || !is_compression(name)) continue;
    ++parameters;
    const auto found = gradient(parameter).to_vector();
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      double& value = parameter.data<double>()[i];
      const double before = value;
      const auto at = [&](double x) {
        value = x;
        return terms_of(*model).item();
      };
      const double difference = (at(before + kStep) - at(before - kStep)) / (2 * kStep);
      value = before;
      largest = std::max(largest, std::abs(difference));
      worst = std::max(worst, std::abs(difference - found[static_cast<size_t>(i)]));
    }
    CHECK(worst < 1e-7 * largest);
  }
  CHECK(parameters == 2);
  CHECK(!terms_of(*segment_model(compressive_options(compressive_values(4, 3, 2, "mean")))).defined());
}

TEST_CASE("recomputed and reversible layers with a compressed memory compute the same bits as other layers") {
  for (const bool reversible : {false, true}) {
    CAPTURE(reversible);
    AutoregressiveModelOptions options = compressive_options(compressive_values(4, 3, 2));
    options.encoder.pre_norm = true;
    const auto run = [&](bool replayed) {
      (reversible ? options.encoder.reversible : options.encoder.recompute) = replayed || reversible;
      return gradients(options, true);
    };
    CHECK(run(true) == run(false));
  }
}

TEST_CASE("decoding with a ring of tokens and a ring of compressed rows equals the parallel form") {
  const Tensor tokens = random_tokens(3, 8 * kSegment + 2, 2 * kText);
  for (const std::string compression : {"convolution", "mean", "max"})
    for (const auto& sizes :
         {std::array<int64_t, 3>{4, 3, 2}, {8, 1, 4}, {2, 5, 2}, {4, 7, 1}, {12, 40, 4}}) {
      const int64_t memory = sizes[0], compressed = sizes[1], rate = sizes[2];
      CAPTURE(compression);
      CAPTURE(memory);
      const auto model =
          segment_model(compressive_options(compressive_values(memory, compressed, rate, compression)));
      const Tensor expected = by_segments(*model, tokens);
      Decoder decoder(*model, 3, tokens.size(1));
      const int64_t rows = memory + kSegment + compressed + (memory + kSegment) / rate;
      CHECK(decoder.state_bytes() <= 2 * 2 * 3 * rows * 8 * 8);
      for (int pass = 0; pass < 2; ++pass) {
        decoder.reset();
        double worst = 0;
        for (int64_t t = 0; t < tokens.size(1); ++t) {
          const Tensor& outputs = decoder.step(slice(tokens, 1, t, t + 1).clone().view({3}));
          worst = std::max(worst,
                           max_difference(outputs, reshape(slice(expected, 1, t, t + 1), outputs.shape())));
        }
        CHECK(worst < 1e-12);
      }
    }
}

TEST_CASE("sizes of a compressed memory that the rate does not divide are errors") {
  const auto error = [](const KindOptions& values) -> std::string {
    try {
      segment_model(compressive_options(values));
    } catch (const OptionError& e) {
      return e.what();
    }
    return "";
  };
  CHECK(error(compressive_values(4, 3, 2)) == "");
  CHECK(error(compressive_values(6, 3, 3)) ==
        "attention_options.rate: expected a divisor of the segment length 4, got 3");
  CHECK(error(compressive_values(5, 3, 2)) ==
        "attention_options.memory: expected a multiple of rate = 2, got 5");
  CHECK(error(compressive_values(0, 3, 2)) ==
        "attention_options.compressed_memory: needs a memory of tokens: expected 0 with memory = 0, got 3");
  CHECK(error(compressive_values(4, 0, 2)).find("has an effect only if compressed_memory > 0") !=
        std::string::npos);
}
