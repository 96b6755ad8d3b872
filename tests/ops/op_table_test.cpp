#include "tests/support/op_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "autograd/gradcheck.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<double> joined(const std::vector<Tensor>& tensors) {
  std::vector<double> all;
  for (const Tensor& tensor : tensors) {
    const auto values = tensor.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double largest(const Tensor& tensor) {
  double magnitude = 1;
  for (const double value : tensor.to_vector()) magnitude = std::max(magnitude, std::abs(value));
  return magnitude;
}

// Returns a part of the op table. For example, "2/16" selects every 16th case, starting with the second case.
// An empty text selects all cases. Throws std::invalid_argument for other texts.
std::vector<OpCase> table_part(const std::string& text) {
  std::vector<OpCase> table = make_op_table();
  if (text.empty()) return table;
  size_t part = 0, parts = 0;
  char slash = 0;
  std::istringstream stream(text);
  if (!(stream >> part >> slash >> parts) || slash != '/' || part < 1 || part > parts || !stream.eof())
    throw std::invalid_argument("expected a part of the op table such as 2/16, not \"" + text + "\"");
  std::vector<OpCase> selected;
  for (size_t i = part - 1; i < table.size(); i += parts) selected.push_back(std::move(table[i]));
  return selected;
}

// Returns the part of the op table that the environment variable TAPEFORMER_OP_PART selects, for example
// "2/16". If the variable is not set, returns the whole table. scripts/gpu-check.sh sets the variable to test
// the table in parts, because compute-sanitizer is slow.
std::vector<OpCase> table_part_of_environment() {
  const char* const text = std::getenv("TAPEFORMER_OP_PART");
  return table_part(text ? text : "");
}

}  // namespace

TEST_CASE("every op passes the gradient check in float64") {
  for (const OpCase& op : make_op_table()) {
    if (op.is_large) continue;
    CAPTURE(op.name);
    const GradcheckResult result = gradcheck(op.function, op.inputs, {.step = 1e-4});
    CHECK(result.message == "");
    CHECK(result.max_relative_error < 1e-6);
  }
}

TEST_CASE("float32 results and gradients of every op are near float64") {
  for (const OpCase& op : make_op_table()) {
    CAPTURE(op.name);
    std::vector<Tensor> singles;
    for (const Tensor& input : op.inputs)
      singles.push_back(is_floating(input.dtype()) ? input.to(DType::float32) : input);
    const Tensor exact = op.function(op.inputs), single = op.function(singles);
    CHECK(single.dtype() == DType::float32);
    double largest = 1;
    for (const double value : exact.to_vector()) largest = std::max(largest, std::abs(value));
    CHECK(max_difference(exact, single.to(DType::float64)) < op.tolerance_factor * 32 * 1.2e-7 * largest);
  }
}

TEST_CASE("results and gradients of every op are bit-identical in every run") {
  for (const OpCase& op : make_op_table()) {
    CAPTURE(op.name);
    CHECK(joined(compute_result_and_gradients(op, kCpu, DType::float64)) ==
          joined(compute_result_and_gradients(op, kCpu, DType::float64)));
  }
}

TEST_CASE("cuda: every op gives the results and gradients of the CPU and is bit-identical in every run") {
  if (list_cuda_devices().empty()) MESSAGE("skipped: " << explain_missing_device());
  for (const Device device : list_cuda_devices())
    for (const OpCase& op : table_part_of_environment()) {
      CAPTURE(op.name);
      for (const DType dtype : {DType::float64, DType::float32}) {
        CAPTURE(name_of(dtype));
        const std::vector<Tensor> expected = compute_result_and_gradients(op, kCpu, dtype),
                                  found = compute_result_and_gradients(op, device, dtype);
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          CAPTURE(i);  // 0 is the result, and the other indices are gradients of inputs
          CHECK(found[i].dtype() == dtype);
          CHECK(max_difference(found[i], expected[i]) <
                (dtype == DType::float64 ? 1e-12 : op.tolerance_factor * 32 * 1.2e-7) * largest(expected[i]));
        }
        CHECK(joined(found) == joined(compute_result_and_gradients(op, device, dtype)));
      }
    }
}

TEST_CASE("the parts of the op table contain each case once") {
  std::vector<std::string> all, found;
  for (const OpCase& op : make_op_table()) all.push_back(op.name);
  for (int part = 1; part <= 7; ++part)
    for (const OpCase& op : table_part(std::to_string(part) + "/7")) found.push_back(op.name);
  CHECK(found != all);  // the parts are interleaved
  std::sort(all.begin(), all.end());
  std::sort(found.begin(), found.end());
  CHECK(found == all);
  for (const char* text : {"0/7", "8/7", "3", "3/x", "3/7x"})
    CHECK_THROWS_AS(table_part(text), std::invalid_argument);
}

TEST_CASE("an undefined required input of any op throws an error with the name of the op") {
  for (const OpCase& op : make_op_table()) {
    CAPTURE(op.name);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      CAPTURE(i);
      std::vector<Tensor> inputs = op.inputs;
      inputs[i] = {};
      std::string message = "is undefined";
      try {
        op.function(inputs);  // optional inputs, such as a bias or lengths, may be undefined
      } catch (const ShapeError& error) {
        message = error.what();
      }
      CHECK(message.find("undefined") != std::string::npos);
      // An error message with this text comes from Tensor, so the op has not checked its inputs.
      CHECK(message.find("an undefined tensor has") == std::string::npos);
    }
  }
}
