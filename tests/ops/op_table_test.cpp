#include "tests/support/op_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "autograd/gradcheck.h"
#include "core/threads/threads.h"
#include "ops/elementwise.h"
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

// Returns "" if an op throws an error about each undefined input that is not optional, and no error about
// optional inputs. Otherwise returns a description of the first fault.
std::string find_undefined_input_problem(const OpCase& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    std::vector<Tensor> inputs = op.inputs;
    inputs[i] = {};
    std::string message;
    try {
      op.function(inputs);
    } catch (const ShapeError& error) {
      message = error.what();
    }
    const bool is_optional = std::count(op.optional_inputs.begin(), op.optional_inputs.end(), i) > 0;
    // The error message of Tensor contains "an undefined tensor has", so the op has not checked its inputs.
    const bool is_checked = message.find("undefined") != std::string::npos &&
                            message.find("an undefined tensor has") == std::string::npos;
    if (is_optional ? !message.empty() : !is_checked)
      return concat_text(op.name, ", input ", i, ": expected ", is_optional ? "no" : "an", " error, got \"",
                         message, "\"");
  }
  return "";
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

TEST_CASE("results and gradients of every op are bit-identical in every run and for any number of threads") {
  const int before = get_thread_count();
  for (const OpCase& op : make_op_table()) {
    CAPTURE(op.name);
    std::vector<double> expected;
    for (const int threads : {1, 2, 3}) {
      CAPTURE(threads);
      set_thread_count(threads);
      const auto run = [&] {
        std::vector<double> values = joined(compute_result_and_gradients(op, kCpu, DType::float64));
        for (const double value : joined(compute_result_and_gradients(op, kCpu, DType::float32)))
          values.push_back(value);
        return values;
      };
      const std::vector<double> found = run();
      CHECK(run() == found);
      if (!op.depends_on_threads && threads > 1) CHECK(found == expected);
      expected = found;
    }
  }
  set_thread_count(before);
}

TEST_CASE("cuda: every op gives the results and gradients of the CPU and is bit-identical in every run") {
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

TEST_CASE("the gradient of an input of any op does not depend on whether the other inputs need gradients") {
  for (const Device device : list_devices())
    for (const OpCase& op : table_part_of_environment()) {
      if (op.is_large) continue;
      CAPTURE(op.name);
      const std::vector<Tensor> expected = compute_result_and_gradients(op, device, DType::float64);
      size_t gradient_index = 0;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (!is_floating(op.inputs[i].dtype())) continue;
        CAPTURE(i);
        const Tensor& all = expected[++gradient_index];
        const std::vector<Tensor> found = compute_result_and_gradients(op, device, DType::float64, i);
        REQUIRE(found.size() == 2);
        CHECK(max_difference(found[0], expected[0]) <= 1e-12 * largest(expected[0]));
        CHECK(max_difference(found[1], all) <= 1e-12 * largest(all));
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

TEST_CASE("an undefined required input of any op is an error, and an optional input may be undefined") {
  for (const OpCase& op : make_op_table()) CHECK(find_undefined_input_problem(op) == "");
}

TEST_CASE("control: an op that does not check its inputs is found") {
  const Tensor x = normal({3});
  const auto problem_of = [&](auto function, const std::vector<size_t>& optional_inputs) {
    return find_undefined_input_problem(
        {.name = "op", .function = function, .inputs = {x, x}, .optional_inputs = optional_inputs});
  };
  const auto checks = [](const std::vector<Tensor>& in) { return add(in[0], in[1]); };
  const auto accepts = [](const std::vector<Tensor>& in) {
    return in[1].defined() ? add(in[0], in[1]) : add(in[0], in[0]);
  };
  const auto reads = [](const std::vector<Tensor>& in) { return add(in[0], in[1].alias()); };
  CHECK(problem_of(checks, {}) == "");
  CHECK(problem_of(accepts, {1}) == "");
  CHECK(problem_of(accepts, {}) == "op, input 1: expected an error, got \"\"");
  CHECK(problem_of(reads, {}).starts_with("op, input 1: expected an error, got \"an undefined tensor has"));
  CHECK(problem_of(checks, {1}).starts_with("op, input 1: expected no error, got \"add: "));
}
