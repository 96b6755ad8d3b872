// Tests that training steps and decoded tokens stay within a budget of work on a device. A test fails if a
// config needs over 5 % more launches or bytes than its budget. After an improvement, lower the budget to the
// numbers that `tapeformer bench device-cost` prints, for example:
//   tapeformer bench device-cost --config configs/mnist/linear.toml --batch 256 --precision bfloat16
#include <doctest/doctest.h>

#include "core/cuda/devices.h"
#include "core/device_control.h"
#include "tests/support/devices.h"
#include "train/bench/device_cost.h"
#include "train/bench/device_model.h"

using namespace tapeformer;

namespace {

constexpr double kTolerance = 1.05;
constexpr int64_t kMemory = int64_t{141} * 1'000'000'000;

enum class Counted { training_step, token };

struct Budget {
  const char* config;
  Counted counted;
  int64_t batch;
  int64_t launches;
  double gigabytes;
};

constexpr Budget kBudgets[] = {
    {"mnist/linear", Counted::training_step, 10, 255, 4.74},
    {"mnist/linear", Counted::training_step, 256, 231, 103.7},
    {"cifar10/linear", Counted::training_step, 4, 471, 14.72},
    {"cifar10/linear", Counted::training_step, 64, 423, 198.9},
    {"mnist/linear", Counted::token, 4096, 58, 2.90},
    {"cifar10/linear", Counted::token, 4096, 106, 5.77},
};

BenchmarkedModel choice_of(const char* config) {
  BenchmarkArguments arguments{
      .options = OptionValues(make_model_option_specs()), .device = kCpu, .overrides = {}, .data_access = ""};
  arguments.options.set("config", concat_text(SOURCE_DIR "/configs/", config, ".toml"));
  arguments.options.set("precision", std::string("bfloat16"));
  return choose_model(arguments, 0);
}

DeviceWork work_of(BenchmarkedModel choice, Counted counted, int64_t batch) {
  const Device device = find_cuda_device();
  set_precision(device, Precision::bfloat16);
  choice.batch_size = batch;
  DeviceWork work = counted == Counted::token ? count_decoding_step_work(choice, batch, device, kMemory)
                                              : count_training_step_work(choice, device, kMemory);
  set_precision(device, Precision::float32);
  return work;
}

bool exceeds(const DeviceWork& work, const Budget& budget) {
  return static_cast<double>(work.launch_count()) > kTolerance * static_cast<double>(budget.launches) ||
         static_cast<double>(work.byte_count()) > kTolerance * budget.gigabytes * 1e9;
}

// Returns whether this build has the emulation of CUDA, which counts work without a device. Otherwise, prints
// a message and returns false.
bool counts_without_device() {
  if constexpr (kHasCuda)
    if (cuda::is_emulated()) return true;
  MESSAGE("skipped: this build has no emulation of CUDA");
  return false;
}

}  // namespace

TEST_CASE("training steps and tokens keep their budgets of launches and bytes") {
  if (!counts_without_device()) return;
  for (const Budget& budget : kBudgets) {
    const DeviceWork work = work_of(choice_of(budget.config), budget.counted, budget.batch);
    CAPTURE(budget.config);
    CAPTURE(budget.batch);
    CAPTURE(work.launch_count());
    CAPTURE(work.byte_count());
    CHECK(!exceeds(work, budget));
  }
}

TEST_CASE("a budget is exceeded if layers are computed twice or feed-forward layers are wider") {
  if (!counts_without_device()) return;
  const Budget& budget = kBudgets[0];
  BenchmarkedModel recomputed = choice_of(budget.config);
  recomputed.model.encoder.recompute = true;
  CHECK(exceeds(work_of(recomputed, budget.counted, budget.batch), budget));
  BenchmarkedModel wider = choice_of(budget.config);
  wider.model.encoder.feedforward += wider.model.encoder.feedforward / 2;
  const DeviceWork more_bytes = work_of(wider, budget.counted, budget.batch);
  CHECK(more_bytes.launch_count() ==
        work_of(choice_of(budget.config), budget.counted, budget.batch).launch_count());
  CHECK(exceeds(more_bytes, budget));
}

TEST_CASE("work beyond the memory of the device is refused") {
  if (!counts_without_device()) return;
  BenchmarkedModel choice = choice_of("mnist/linear");
  choice.batch_size = 64;
  CHECK_THROWS_AS(count_training_step_work(choice, find_cuda_device(), 1 << 30), OutOfMemoryError);
  CHECK_THROWS_AS(count_training_step_work(choice, kCpu, kMemory), DeviceError);
  // After the exception, the emulation computes the results of kernels again.
  const Tensor x = Tensor::full({3}, 2, DType::float32, find_cuda_device());
  CHECK(x.to_vector() == std::vector<double>(3, 2));
}

TEST_CASE("the estimated time is the largest of four limits plus the time between launches") {
  const DeviceModel& h200 = find_device_model("h200");
  constexpr double kLaunch = 2.2e-6;
  // The estimate for a copy assumes 90 % of the memory bandwidth.
  const cuda::WorkRecord copy{.kind = cuda::WorkKind::copy, .op = {}, .where = {}, .bytes = 4'800'000'000};
  CHECK(estimate_seconds(copy, h200) == doctest::Approx(1e-3 / 0.9 + kLaunch));
  // The estimate for a product that uses all multiprocessors assumes 70 % of the matrix rate.
  cuda::WorkRecord product{.kind = cuda::WorkKind::product,
                           .op = {},
                           .where = {},
                           .flop = 989.4e9,
                           .operand_type = cuda::OperandType::bfloat16,
                           .product = {.m = 1 << 14, .n = 1 << 14, .k = 64}};
  CHECK(estimate_seconds(product, h200) == doctest::Approx(1e-3 / 0.7 + kLaunch));
  // A result of 256 x 256 has 4 tiles. If k is not divided into parts, only 4 of 132 multiprocessors work.
  product.product = {.m = 256, .n = 256, .k = 1 << 18, .can_split_k = false};
  CHECK(count_gemm_thread_blocks(product.product, h200) == 4);
  CHECK(estimate_seconds(product, h200) == doctest::Approx(33e-3 / 0.7 + kLaunch));
  product.product.can_split_k = true;
  CHECK(count_gemm_thread_blocks(product.product, h200) == 132);
  // The device runs 264 blocks of 1,024 threads at the same time. Twice as many blocks need twice the time.
  cuda::WorkRecord kernel{
      .kind = cuda::WorkKind::kernel, .op = {}, .where = {}, .block_count = 264, .thread_count = 1024};
  CHECK(estimate_seconds(kernel, h200) == doctest::Approx(1e-6 + kLaunch));
  kernel.block_count *= 2;
  CHECK(estimate_seconds(kernel, h200) == doctest::Approx(2e-6 + kLaunch));
  // The 528 warp schedulers of an H200 issue instructions in 70 % of their 1.83 billion cycles per second.
  kernel.warp_instructions = 528 * 1.83e9;
  CHECK(estimate_seconds(kernel, h200) == doctest::Approx(1 / 0.7 + kLaunch));
  CHECK_THROWS_AS(find_device_model("h20"), ConfigError);
}
