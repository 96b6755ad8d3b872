// Tests that compare the results and gradients of attention kinds with public packages, in float64.
// tests/golden/README.md describes the keys of packages.safetensors, and docs/survey-parity.md describes the
// packages.
#include <doctest/doctest.h>

#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/sparse_pattern.h"
#include "ops/elementwise.h"
#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/random_features.h"
#include "tests/support/random.h"
#include "tests/train/golden.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using NamedOptions = std::vector<std::pair<std::string, OptionValue>>;

// Returns the largest difference between the tensors, divided by the largest magnitude in `expected`.
double share_of_largest(const Tensor& actual, const Tensor& expected) {
  return max_difference(actual, expected) / max_difference(expected, Tensor::zeros_like(expected));
}

// A case of packages.safetensors: inputs, the result of a package, and the gradients of the inputs.
class PackageCase {
 public:
  explicit PackageCase(const std::string& name) : name_(name), file_(open_golden_file("packages")) {}

  // Returns an input that requires a gradient. compare() checks the gradient of the input.
  Tensor input(const std::string& key) {
    inputs_.emplace_back(key, set_requires_grad(constant(key)));
    return inputs_.back().second;
  }
  Tensor constant(const std::string& key) const { return file_.read(name_ + "." + key); }
  // Checks a result and the gradients of all inputs. `bound` is the maximum relative difference that is
  // allowed.
  void compare(const Tensor& out, double bound) {
    CAPTURE(name_);
    backward(out, constant("cotangent"));
    CHECK(share_of_largest(out, constant("out")) < bound);
    for (const auto& [key_bound, tensor] : inputs_) {
      const auto& key = key_bound;  // clang 14 cannot capture structured bindings
      CAPTURE(key);
      CHECK(share_of_largest(gradient(tensor), constant("gradient." + key)) < bound);
    }
  }
  // Checks the result and the gradients of `attention` for the inputs q, k and v of the case.
  void compare_attention(const Attention& attention, bool causal, double bound) {
    const Tensor q = input("q"), k = input("k"), v = input("v");
    compare(attention.forward(q, k, v, {.causal = causal, .key_lengths = {}}, {}, "layer"), bound);
  }

 private:
  std::string name_;
  SafetensorsFile file_;
  NamedTensors inputs_;
};

std::unique_ptr<Attention> make_package_kind(const std::string& kind, const NamedOptions& options) {
  auto attention = make_attention(kind, find_attention_kind(kind).make_options(options),
                                  {.heads = 2, .dim = 4, .max_length = 24});
  attention->convert(DType::float64);
  return attention;
}

std::string form_name(bool causal) {
  return causal ? ".causal" : ".full";
}

}  // namespace

TEST_CASE("linformer equals the package linformer, also for sequences below the maximum length") {
  for (const char* name : {"linformer", "linformer.short"}) {
    PackageCase package(name);
    const auto attention = make_package_kind("linformer", {{"rank", int64_t{5}}});
    for (const auto& [parameter_name, parameter] : attention->parameters())
      parameter.copy_from(package.constant(parameter_name));
    package.compare_attention(*attention, false, 1e-12);
    for (const auto& [parameter_name_bound, parameter] : attention->parameters()) {
      const auto& parameter_name = parameter_name_bound;
      CAPTURE(parameter_name);
      CHECK(share_of_largest(gradient(parameter), package.constant("gradient." + parameter_name)) < 1e-12);
    }
  }
}

TEST_CASE("axial-row and axial-column equal the package axial-attention") {
  for (const std::string axis : {"row", "column"})
    PackageCase("axial." + axis)
        .compare_attention(*make_package_kind("axial-" + axis, {{"image_width", int64_t{6}}}), false, 1e-12);
}

TEST_CASE("image and local equal the package local-attention") {
  const auto image = make_package_kind("image", {{"block", int64_t{6}}, {"memory", int64_t{6}}});
  const auto blocks = make_package_kind("local", {{"form", std::string("blocks")}, {"window", int64_t{6}}});
  for (const char* name : {"local.blocks", "local.blocks.short"})
    for (const Attention* attention : {image.get(), blocks.get()})
      PackageCase(name).compare_attention(*attention, true, 1e-12);
  // In the package local-attention, the window size does not include the query itself.
  PackageCase("local.sliding")
      .compare_attention(*make_package_kind("local", {{"window", int64_t{7}}}), true, 1e-12);
}

TEST_CASE("performer equals the package performer-pytorch without its eps, for the same projection") {
  for (const bool causal : {false, true})
    for (const bool relu : {false, true}) {
      PackageCase package((relu ? "performer.relu" : "performer.softmax") + form_name(causal));
      const Tensor projection = package.constant("projection");
      // The package adds 1e-3 to relu features. random_features() divides relu features by sqrt(features), so
      // the offset is divided too.
      const double offset = 1e-3 / std::sqrt(static_cast<double>(projection.size(0)));
      const auto features = [&](const Tensor& x, RandomFeatureMap map) {
        return random_features(x, projection, relu ? RandomFeatureMap::relu : map, relu ? offset : 0);
      };
      const Tensor q = package.input("q"), k = package.input("k"), v = package.input("v");
      package.compare(linear_attention(features(q, RandomFeatureMap::softmax_query),
                                       features(k, RandomFeatureMap::softmax_key), v,
                                       {.causal = causal, .feature_map = FeatureMap::relu, .eps = 1e-30}),
                      1e-10);
    }
}

TEST_CASE("memory-compressed equals memory-compressed-attention, which divides scores by sqrt(width)") {
  for (const bool causal : {false, true}) {
    PackageCase package("memory_compressed" + form_name(causal));
    const auto attention = make_package_kind("memory-compressed", {});
    for (const auto& [name, parameter] : attention->parameters()) {
      const bool convolution = name.find("convolution") != std::string::npos;
      parameter.copy_from(package.constant(convolution ? name.substr(name.find('.') + 1) : name));
    }
    const Tensor q = package.input("q"), k = package.input("k"), v = package.input("v");
    package.compare(attention->forward(mul(q, 1 / std::sqrt(2.0)), k, v,
                                       {.causal = causal, .key_lengths = {}}, {}, "layer"),
                    1e-12);
  }
}

TEST_CASE("lsh equals the package reformer-pytorch for the same buckets") {
  for (const bool causal : {false, true}) {
    PackageCase package("lsh" + form_name(causal));
    LshOptions options = make_lsh_preset("trax");
    options.scale = LshOptions::Scale::rsqrt_dim;
    options.rounds = 3;
    options.chunk_length = 4;
    options.buckets = 6;
    options.causal = causal;
    const Tensor q = package.input("q"), v = package.input("v");
    // The keys are q / sqrt(|q|² + 1e-6 * dim). The package does not add 1e-6 * dim, so the bound is 1e-5.
    package.compare(lsh_attention(q, v, package.constant("buckets"), options), 1e-5);
  }
}

TEST_CASE("routing equals the package routing-transformer for the same centroids") {
  for (const bool causal : {false, true}) {
    PackageCase package("routing" + form_name(causal));
    const auto attention = make_package_kind(
        "routing", {{"clusters", int64_t{3}}, {"cluster_size", int64_t{8}}, {"local_share", 0.0}});
    for (const auto& [name, state] : attention->saved_tensors()) state.copy_from(package.constant(name));
    const Tensor q = package.input("q"), v = package.input("v");
    // The package adds 1e-5 to the number of clusters of a token before it divides by this number. The
    // resulting relative difference is at most 1e-5.
    package.compare(attention->forward(q, q, v, {.causal = causal, .key_lengths = {}}, {}, "layer"), 2e-5);
  }
}

TEST_CASE("longformer equals the package transformers, with one projection for all tokens") {
  // The package computes the softmax in float32.
  PackageCase("longformer")
      .compare_attention(
          *make_package_kind("longformer", {{"window", int64_t{6}}, {"global_tokens", int64_t{2}}}), false,
          1e-5);
}

TEST_CASE("the pattern of big-bird equals the package transformers for the same random blocks") {
  PackageCase package("big_bird");
  SparsePattern sparse;
  sparse.pattern.window = {.block_size = 2, .before = 2, .after = 2};
  sparse.pattern.table.block_size = 2;
  sparse.pattern.global = {.prefix_end = 2, .suffix_begin = 22};
  sparse.key_blocks = package.constant("key_blocks");
  const auto attention = make_softmax_attention([&](const PatternContext&) { return sparse; }, 0);
  package.compare_attention(*attention, false, 1e-12);
}
