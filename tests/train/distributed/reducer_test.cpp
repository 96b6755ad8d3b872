#include "train/distributed/gradient_reducer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/reversible.h"
#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/random.h"
#include "train/loop/step_status.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// A communicator that behaves as if all other processes had the values of this process. It records the number
// of elements of each reduction.
class Echo final : public Communicator {
 public:
  explicit Echo(int size) : Communicator(0, size) {}
  void start_all_reduce(const Tensor& values) override {
    started.push_back(values.numel());
    values.copy_from(scaled(values));
  }
  void wait() override { ++waits; }
  void broadcast(const Tensor&) override {}
  void barrier() override {}

  std::vector<int64_t> started;
  int waits = 0;

 private:
  Tensor scaled(const Tensor& values) const {
    const Tensor result = values.to(DType::float64);
    for (int64_t i = 0; i < result.numel(); ++i) result.data<double>()[i] *= size();
    return result.to(values.dtype());
  }
};

Tensor parameter(int64_t elements, DType dtype = DType::float32) {
  return set_requires_grad(Tensor::full({elements}, 2, dtype));
}

}  // namespace

TEST_CASE("gradients are reduced in buckets from the last parameter to the first") {
  Echo processes(3);
  const std::vector<Tensor> parameters = {parameter(10), parameter(20), parameter(30), parameter(5)};
  GradientReducer reducer(processes, parameters, {.max_bucket_bytes = 35 * 4});
  CHECK(reducer.bucket_count() == 2);
  CHECK(reducer.count_bytes_per_step() == 65 * 4);
  reducer.begin_step();
  // backward() completes the bucket of the parameters 0 and 1 first. The reducer still starts with the bucket
  // of the parameters 2 and 3, which has 35 elements.
  Tensor loss = sum(square(parameters[3]));
  for (const int i : {2, 1, 0}) loss = add(loss, sum(square(parameters[static_cast<size_t>(i)])));
  backward(loss, {}, {.on_complete = [&](const Tensor& leaf) { reducer.mark_complete(leaf); }});
  CHECK(processes.started == std::vector<int64_t>{35, 30});
  const Tensor other = Tensor::full({2}, 5);
  reducer.finish_step({other});
  CHECK(processes.started.at(2) == 2);
  CHECK(other.to_vector() == std::vector<double>(2, 3 * 5));
  for (const Tensor& p : parameters) CHECK(gradient(p).to_vector()[0] == 3 * 4);
  CHECK(gradient(parameters[0]).is_contiguous());
}

TEST_CASE("the gradients of a reversible block are reduced while backward() replays earlier blocks") {
  Echo processes(2);
  std::vector<Tensor> parameters;
  std::vector<ReversibleBlock> blocks;
  std::vector<size_t> reductions;  // number of started reductions at each replay of a branch
  for (int i = 0; i < 3; ++i) {
    const Tensor weight = set_requires_grad(Tensor::full({2, 4}, 0.5));
    const auto branch = [&processes, &reductions, weight](const Tensor& rows, int64_t) {
      if (is_recording()) reductions.push_back(processes.started.size());
      return mul(rows, weight);
    };
    parameters.push_back(weight);
    blocks.push_back({{{branch}, {branch}}, {weight}});
  }
  GradientReducer reducer(processes, parameters, {.max_bucket_bytes = 8 * 4});
  const Tensor x = Tensor::full({2, 4}, 1);
  const Tensor loss = sum(run_reversible(blocks, x, x));
  reductions.clear();
  reducer.begin_step();
  backward(loss, {}, {.on_complete = [&](const Tensor& leaf) { reducer.mark_complete(leaf); }});
  CHECK(reductions == std::vector<size_t>{0, 0, 1, 1, 2, 2});
  CHECK(processes.started == std::vector<int64_t>{8, 8, 8});
  reducer.finish_step();
}

TEST_CASE("a missing gradient is reduced as 0, and a parameter without a gradient on any process gets none") {
  Echo processes(2);
  const std::vector<Tensor> parameters = {parameter(4), parameter(4)};
  GradientReducer reducer(processes, parameters, {});
  reducer.begin_step();
  backward(sum(square(parameters[0])), {},
           {.on_complete = [&](const Tensor& leaf) { reducer.mark_complete(leaf); }});
  CHECK(processes.started.empty());
  reducer.finish_step();
  CHECK(gradient(parameters[0]).to_vector() == std::vector<double>(4, 8));
  CHECK_FALSE(gradient(parameters[1]).defined());
}

TEST_CASE("a parameter that gets its first gradient in the second step is reduced in this step") {
  Echo processes(2);
  const std::vector<Tensor> parameters = {parameter(4), parameter(4)};
  GradientReducer reducer(processes, parameters, {});
  for (const size_t used : {size_t{0}, size_t{1}}) {
    for (const Tensor& p : parameters) set_gradient(p, {});
    reducer.begin_step();
    backward(sum(square(parameters[used])), {},
             {.on_complete = [&](const Tensor& leaf) { reducer.mark_complete(leaf); }});
    reducer.finish_step();
    CHECK(gradient(parameters[used]).to_vector() == std::vector<double>(4, 8));
    CHECK_FALSE(gradient(parameters[1 - used]).defined());
  }
}

TEST_CASE("float32 gradients are rounded to bfloat16 for the reduction, and float64 gradients are not") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    Echo processes(2);
    const std::vector<Tensor> parameters = {parameter(3, dtype)};
    GradientReducer reducer(processes, parameters, {.use_bfloat16 = true});
    CHECK(reducer.count_bytes_per_step() == 3 * (dtype == DType::float32 ? 2 : 8));
    reducer.begin_step();
    set_gradient(parameters[0], Tensor::full({3}, 1.0 / 3, dtype));
    reducer.finish_step();
    const double found = gradient(parameters[0]).to_vector()[0];
    if (dtype == DType::float64)
      CHECK(found == 2.0 / 3);
    else
      CHECK(found == doctest::Approx(2.0 / 3).epsilon(1.0 / 256));
    CHECK(gradient(parameters[0]).dtype() == dtype);
  }
}

TEST_CASE("the status of a step holds the loss, the tokens, requests to stop and the first non-finite loss") {
  const Echo processes(1);
  const StepStatus good(processes, {2, 4}, {8, 4}, {0.25, 0.75}, 7, {.signal = 15, .is_time_up = true});
  CHECK(good.loss() == 3.5);
  CHECK(good.loss_terms() == 5);
  CHECK(good.processed_unit_count() == 7);
  CHECK(good.get_stop_request().signal == 15);
  CHECK(good.get_stop_request().is_time_up);
  CHECK_FALSE(good.find_non_finite_loss());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const StepStatus bad(processes, {1, nan, nan}, {0, 0, 0}, {0.2, 0.4, 0.4}, 7, {});
  REQUIRE(bad.find_non_finite_loss());
  CHECK(bad.find_non_finite_loss()->rank == 0);
  CHECK(bad.find_non_finite_loss()->micro_batch == 1);
  CHECK(std::isnan(bad.find_non_finite_loss()->loss));
}
