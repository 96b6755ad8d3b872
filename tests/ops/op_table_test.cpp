#include "tests/support/op_table.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "core/threads.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("every op passes the gradient check in float64") {
  for (const OpCase& op : op_table()) {
    CAPTURE(op.name);
    const GradcheckResult result = gradcheck(op.function, op.inputs, 1e-4);
    CHECK(result.message == "");
    CHECK(result.relative_error < 1e-6);
  }
}

TEST_CASE("float32 results follow float64") {
  for (const OpCase& op : op_table()) {
    CAPTURE(op.name);
    std::vector<Tensor> singles;
    for (const Tensor& input : op.inputs)
      singles.push_back(is_floating(input.dtype()) ? input.to(DType::float32) : input);
    const Tensor exact = op.function(op.inputs), single = op.function(singles);
    CHECK(single.dtype() == DType::float32);
    double largest = 1;
    for (const double value : exact.to_vector()) largest = std::max(largest, std::abs(value));
    CHECK(max_difference(exact, single.to(DType::float64)) < 32 * 1.2e-7 * largest);
  }
}

TEST_CASE("results and gradients repeat to the bit") {
  for (const OpCase& op : op_table()) {
    CAPTURE(op.name);
    auto run = [&] {
      std::vector<Tensor> leaves;
      for (const Tensor& input : op.inputs) leaves.push_back(require_grad(input.clone()));
      const Tensor result = op.function(leaves);
      backward(result, Tensor::full(result.shape(), 0.7, DType::float64));
      std::vector<double> all = result.to_vector();
      for (const Tensor& leaf : leaves) {
        const auto values = gradient(leaf).to_vector();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    CHECK(run() == run());
  }
}
