// Tests of the choice of an algorithm for each matrix product, with an emulation of cuBLASLt. The tests cover
// the timing of algorithms, the file in which the choices are stored, and algorithms that fail. Each emulated
// algorithm adds the terms of a product in a different order, so the bits of a result show which algorithm
// was used.
#include <doctest/doctest.h>

#include "core/cuda/devices.h"
#include "core/cuda/graph.h"
#include "core/cuda/product_algorithms.h"
#include "core/emulation/product_algorithms.h"
#include "core/system/log.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

#ifdef TAPEFORMER_CUDA

namespace {

using cuda::ProductTuningScope;
using cuda::emulation::product_algorithms;

// Collects warnings during the lifetime of the object. The destructor restores the initial algorithms and
// library version of the emulation.
class Emulated {
 public:
  Emulated() {
    warnings.clear();
    set_log_sink([](LogLevel level, const std::string& text) {
      if (level == LogLevel::warning) warnings.push_back(text);
    });
  }
  ~Emulated() {
    set_log_sink(nullptr);
    product_algorithms = cuda::emulation::kDefaultProductAlgorithms;
    cuda::emulation::cublas_lt_version = 1;
  }
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;

  static inline std::vector<std::string> warnings;
};

void make_fastest(size_t number) {
  for (size_t i = 0; i < product_algorithms.size(); ++i) product_algorithms[i].seconds = i == number ? 0 : 1;
}

std::vector<Device> emulated_devices() {
  if (cuda::is_emulated()) return list_cuda_devices();
  MESSAGE("skipped: only the emulation has a list of algorithms");
  return {};
}

struct ProductInputs {
  Tensor x, weight, bias;
  explicit ProductInputs(Device device, int64_t rows = 7)
      : x(normal({rows, 1000}, 1, DType::float32).to(device)),
        weight(normal({5, 1000}, 2, DType::float32).to(device)),
        bias(normal({5}, 3, DType::float32).to(device)) {}
  std::vector<double> product() const { return linear(x, weight, bias).to_vector(); }
};

// Returns the product that algorithm `number` computes.
std::vector<double> product_by(size_t number, const ProductInputs& inputs) {
  const auto kept = product_algorithms;
  make_fastest(number);
  std::vector<double> product;
  {
    const ProductTuningScope timed(inputs.x.device(), "");
    product = inputs.product();
  }
  product_algorithms = kept;
  return product;
}

std::string get_token_text(const std::filesystem::path& path) {
  return read_file(path.string());
}

// The changes of ProductTuningCounts since the construction of the object.
class Counted {
 public:
  int64_t timed() const { return cuda::get_product_tuning_counts().timed_plans - before_.timed_plans; }
  int64_t reused() const { return cuda::get_product_tuning_counts().reused_choices - before_.reused_choices; }
  int64_t failed() const {
    return cuda::get_product_tuning_counts().failed_algorithms - before_.failed_algorithms;
  }
  int64_t unfused() const {
    return cuda::get_product_tuning_counts().unfused_products - before_.unfused_products;
  }

 private:
  cuda::ProductTuningCounts before_ = cuda::get_product_tuning_counts();
};

}  // namespace

TEST_CASE("cuda: a product uses the fastest algorithm if products are timed, and else the first") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const ProductInputs inputs(device);
    const std::vector<double> first = inputs.product();
    CHECK(first == product_by(0, inputs));
    // Control: each algorithm gives different bits.
    CHECK(product_by(1, inputs) != first);
    CHECK(product_by(2, inputs) != first);
    CHECK(product_by(2, inputs) != product_by(1, inputs));
    CHECK(inputs.product() == first);
    make_fastest(1);
    const ProductTuningScope timed(device, "");
    const Counted counted;
    const std::vector<double> fastest = inputs.product();
    CHECK(counted.timed() == 1);
    make_fastest(2);
    CHECK(inputs.product() == fastest);  // a product is measured once
    CHECK(counted.timed() == 1);
    CHECK(ProductInputs(device, 9).product().size() == 45);  // another shape is timed separately
    matmul(inputs.x, inputs.weight, {.transpose_b = true});  // a product without a bias is timed separately
    CHECK(counted.timed() == 3);
    linear(inputs.x.to(DType::bfloat16), inputs.weight, inputs.bias);
    CHECK(counted.timed() == 4);
  }
}

TEST_CASE("cuda: an algorithm replaces the first one only if it is clearly faster") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const ProductInputs inputs(device);
    const std::vector<double> first = product_by(0, inputs), second = product_by(1, inputs);
    product_algorithms = {{{100}, {99}, {200}}};
    for (const double seconds : {99, 90}) {
      product_algorithms[1].seconds = seconds;
      const ProductTuningScope timed(device, "");
      CHECK(inputs.product() == (seconds < 97 ? second : first));
    }
  }
}

TEST_CASE("cuda: later processes use the algorithms in the file") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const TempDir dir;
    const std::string path = (dir / "algorithms.txt").string();
    const ProductInputs inputs(device);
    const std::vector<double> expected = product_by(1, inputs);
    const auto product = [&](const std::string& file) {
      const ProductTuningScope timed(device, file);
      return inputs.product();
    };
    make_fastest(1);
    CHECK(product(path) == expected);
    const std::string text = get_token_text(path);
    CHECK(text.find("device emulation on the CPU\n") != std::string::npos);
    make_fastest(2);
    const Counted counted;
    CHECK(product(path) == expected);
    CHECK(counted.reused() == 1);
    CHECK(counted.timed() == 0);
    CHECK(product("") != expected);  // control: without the file, the products are measured again
    CHECK(get_token_text(path) == text);
    // The choices in the file are replaced if the version of cuBLAS changes.
    cuda::emulation::cublas_lt_version = 2;
    CHECK(product(path) == product_by(2, inputs));
    CHECK(get_token_text(path) != text);
    CHECK(scope.warnings.empty());
  }
}

TEST_CASE("cuda: a damaged file of algorithms causes a warning, and the products are measured again") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const TempDir dir;
    const std::string path = (dir / "algorithms.txt").string();
    const ProductInputs inputs(device);
    make_fastest(1);
    const auto product = [&] {
      const ProductTuningScope timed(device, path);
      return inputs.product();
    };
    const std::vector<double> expected = product();
    const std::string text = get_token_text(path);
    std::string changed = text, digit = text;
    changed[text.find(" = ") + 3] ^= 1;
    digit.insert(text.find(" = ") + 3, "0");
    for (const std::string& damaged :
         {std::string(), std::string("?"), text.substr(0, text.size() / 2), text + text, changed, digit}) {
      CAPTURE(damaged);
      write_file(path, damaged);
      scope.warnings.clear();
      const Counted counted;
      CHECK(product() == expected);
      CHECK(counted.timed() == 1);
      CHECK(counted.reused() == 0);
      REQUIRE(scope.warnings.size() == 1);
      CHECK(scope.warnings[0].find("algorithms.txt: the file is damaged") != std::string::npos);
      CHECK(get_token_text(path) == text);  // the file is complete again
    }
    CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  }
}

TEST_CASE("cuda: a file of algorithms that cannot be written causes one warning") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const TempDir dir;
    const ProductTuningScope timed(device, (dir / "missing" / "algorithms.txt").string());
    for (const int64_t rows : {3, 4}) CHECK(ProductInputs(device, rows).product().size() > 0);
    CHECK(scope.warnings.size() == 1);
  }
}

TEST_CASE("cuda: an algorithm that fails is counted, and the next one is used") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const TempDir dir;
    const std::string path = (dir / "algorithms.txt").string();
    const ProductInputs inputs(device);
    const std::vector<double> second = product_by(1, inputs), third = product_by(2, inputs);
    product_algorithms[0].fails = true;
    const Counted counted;
    CHECK(inputs.product() == second);
    CHECK(counted.failed() == 1);
    make_fastest(2);
    {
      const ProductTuningScope timed(device, path);
      CHECK(inputs.product() == third);
      CHECK(counted.failed() == 2);
      // Now the algorithm that was chosen fails too.
      product_algorithms[2].fails = true;
      CHECK(inputs.product() == second);
      CHECK(counted.failed() == 3);
    }
    // The new scope reads the choice of algorithm 2 from the file, as a new process would. Algorithms 2 and 0
    // still fail, so the product uses algorithm 1 again.
    const ProductTuningScope timed(device, path);
    CHECK(inputs.product() == second);
    CHECK(counted.reused() == 1);
    CHECK(counted.failed() == 5);
    CHECK(counted.unfused() == 0);
  }
}

TEST_CASE("cuda: products of similar sizes share a choice") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const ProductTuningScope timed(device, "");
    const Counted counted;
    for (const int64_t rows : {1000, 1020, 1024}) ProductInputs(device, rows).product();
    CHECK(counted.timed() == 1);
    CHECK(counted.reused() == 2);
    ProductInputs(device, 1025).product();
    CHECK(counted.timed() == 2);
    // Products with at most 8 rows share a choice only if their numbers of rows are equal.
    for (const int64_t rows : {6, 7, 8}) ProductInputs(device, rows).product();
    CHECK(counted.timed() == 5);
  }
}

TEST_CASE("cuda: a product whose algorithms all fail is computed without a fused epilogue") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const ProductInputs inputs(device);
    const std::vector<double> first = inputs.product();
    for (auto& algorithm : product_algorithms) algorithm.fails = true;
    const ProductTuningScope timed(device, "");
    const Counted counted;
    CHECK(inputs.product() == first);
    // The three algorithms fail for the product with the epilogue, and again for the product without the
    // epilogue.
    CHECK(counted.failed() == 6);
    CHECK(counted.unfused() == 1);
  }
}

TEST_CASE("cuda: a product that begins in a graph is not measured, and keeps its algorithm") {
  for (const Device device : emulated_devices()) {
    const Emulated scope;
    const TempDir dir;
    const std::string path = (dir / "algorithms.txt").string();
    const ProductInputs inputs(device);
    const std::vector<double> first = product_by(0, inputs);
    make_fastest(1);
    const Counted counted;
    {
      const ProductTuningScope timed(device, path);
      Tensor y;
      cuda::Graph graph(device, 1, [&] { y = linear(inputs.x, inputs.weight, inputs.bias); });
      graph.launch(0);
      CHECK(y.to_vector() == first);
      CHECK(inputs.product() == first);
    }
    const ProductTuningScope timed(device, path);
    CHECK(inputs.product() == first);
    CHECK(counted.timed() == 0);
    CHECK(counted.reused() == 1);
  }
}

#endif
