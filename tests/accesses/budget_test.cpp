// Tests that the launches and the memory accesses of small training steps and decoded tokens stay within
// budgets. A workload has a budget of kernels and matrix products. The kernels
// of a source file have three budgets: for requests to global memory, for sectors of global memory, and for
// cycles of shared memory. A test fails if a count exceeds its budget by more than 5 %. The failure message
// contains the current counts. After an improvement, lower the budgets to the new counts.
#include <doctest/doctest.h>

#include "core/access_log.h"
#include "core/cuda/devices.h"
#include "core/cuda/launch_count.h"
#include "core/device_control.h"
#include "models/generation.h"
#include "ops/gated_linear_attention.h"
#include "train/bench/bench.h"
#include "train/bench/model_choice.h"
#include "train/bench/training_step.h"

using namespace tapeformer;

namespace {

constexpr double kTolerance = 1.05;
constexpr int64_t kLength = 128;

// gated_attention: a forward and a backward pass of gated_linear_attention() with erase keys and one decay
// per head.
enum class Counted { training_step, token, gated_attention };

struct Workload {
  const char* name;
  const char* attention;
  Precision precision;
  Counted counted;
  int64_t batch;
  int64_t launches;   // budget of kernels and matrix products
  const char* files;  // only the accesses of files whose names contain this text are counted
};

constexpr Workload kWorkloads[] = {
    {"linear, training", "linear", Precision::bfloat16, Counted::training_step, 2, 60, ""},
    {"linear, float32", "linear", Precision::float32, Counted::training_step, 2, 55, "linear"},
    {"softmax, training", "softmax", Precision::bfloat16, Counted::training_step, 2, 58, "softmax_attention"},
    {"lsh, training", "lsh", Precision::bfloat16, Counted::training_step, 2, 82, "lsh_"},
    {"linear, token", "linear", Precision::bfloat16, Counted::token, 32, 16, ""},
    {"softmax, token", "softmax", Precision::bfloat16, Counted::token, 32, 17, "softmax_attention"},
    {"gated", "linear", Precision::bfloat16, Counted::gated_attention, 2, 10, "gated_"},
    {"gated, float32", "linear", Precision::float32, Counted::gated_attention, 2, 10, "gated_"},
    {"gated, token", "gated-delta", Precision::bfloat16, Counted::token, 32, 29, "gated_"},
    {"convolution, token", "gated-delta", Precision::bfloat16, Counted::token, 32, 29, "short_conv"},
};

struct Figures {
  int64_t requests = 0, sectors = 0, shared_cycles = 0;
};
struct Budget {
  const char* workload;
  const char* file;
  Figures figures;
};

constexpr Budget kBudgets[] = {
    {"linear, training", "index.cu", {21447, 35602, 961}},
    {"linear, training", "linear.cu", {12594, 93249, 18810}},
    {"linear, training", "linear_attention.cu", {15040, 164096, 64256}},
    {"linear, training", "logistic_mixture.cu", {504, 2048, 2520}},
    {"linear, training", "norm.cu", {22367, 264751, 94686}},
    {"linear, training", "optimizer_step.cu", {80684, 840070, 16396}},
    {"linear, training", "rounded_weights.cu", {15032, 180344, 0}},
    {"linear, training", "row_loss.cu", {747, 2259, 272}},
    {"linear, training", "tensor_kernels.cu", {5681, 82093, 0}},
    {"linear, float32", "linear.cu", {11976, 172968, 18000}},
    {"linear, float32", "linear_attention.cu", {82720, 365312, 1200576}},
    {"softmax, training", "softmax_attention.cu", {12736, 124416, 41024}},
    {"lsh, training", "lsh_attention.cu", {61728, 361877, 539685}},
    {"lsh, training", "lsh_attention_backward.cu", {119328, 908769, 1190431}},
    {"lsh, training", "lsh_hash.cu", {16512, 43008, 278528}},
    {"lsh, training", "lsh_order.cu", {9228, 66772, 247296}},
    {"linear, token", "class_sampling.cu", {2, 2, 0}},
    {"linear, token", "index.cu", {544, 2080, 0}},
    {"linear, token", "linear_attention_step.cu", {5632, 71168, 4864}},
    {"linear, token", "linear_norm.cu", {1056, 8064, 1200}},
    {"linear, token", "logistic_mixture.cu", {31, 121, 95}},
    {"linear, token", "norm.cu", {640, 9728, 0}},
    {"linear, token", "optimizer_step.cu", {33, 123, 172}},
    {"linear, token", "rounded_weights.cu", {128, 1536, 0}},
    {"linear, token", "tensor_kernels.cu", {131, 1539, 0}},
    {"softmax, token", "softmax_attention_step.cu", {2816, 11264, 48384}},
    {"gated", "gated_linear_attention.cu", {74016, 414464, 2318336}},
    {"gated, float32", "gated_linear_attention.cu", {98592, 742144, 2318336}},
    {"gated, token", "gated_linear_attention_step.cu", {61696, 117760, 55296}},
    {"convolution, token", "short_conv.cu", {11520, 82944, 0}},
};

BenchmarkedModel choice_of(const Workload& workload) {
  BenchmarkArguments arguments{
      .options = OptionValues(make_model_option_specs()), .device = kCpu, .overrides = {}, .data_access = ""};
  arguments.options.set("attention", std::string(workload.attention));
  arguments.options.set("layers", int64_t{1});
  arguments.options.set("length", kLength);
  return choose_model(arguments, workload.batch);
}

struct Work {
  int64_t launches = 0;
  std::map<std::string, Figures> files;  // total memory accesses of the kernels in each source file
};

// Counts the work of the second call of `step`, because the first call includes work that is not repeated.
template <class F>
Work count_second_call(const F& step, const char* files) {
  step();
  const AccessLog log;
  const int64_t before = cuda::launch_count;
  step();
  Work work{.launches = cuda::launch_count - before, .files = {}};
  for (const auto& [key, launch] : log.launches()) {
    const std::string path = std::get<0>(key), file = path.substr(path.rfind('/') + 1);
    if (file.find(files) == std::string::npos) continue;
    const AccessCounts total = launch.total();
    Figures& sum = work.files[file];
    sum.requests += total.requests;
    sum.sectors += total.sectors;
    sum.shared_cycles += total.shared_cycles;
  }
  return work;
}

Work count_token(const Workload& workload, const BenchmarkedModel& choice, Device device) {
  const NoGradScope no_grad;
  AutoregressiveModel model(choice.model);
  model.initialize(choice.seed);
  model.move(device);
  const Tensor columns = Tensor::zeros({choice.model.max_length + 1, workload.batch}, DType::uint8, device);
  const Tensor tokens = Tensor::zeros({workload.batch}, DType::uint8, device);
  const Sampler sampler(choice.model, {.seed = choice.seed}, device);
  Decoder decoder(model, workload.batch);
  int64_t position = 0;
  const auto step = [&] {
    sampler.draw(decoder.step(tokens), position, tokens);
    copy_tokens_at_position(columns, ++position, 1, tokens);
  };
  return count_second_call(step, workload.files);
}

Work count_gated_attention(const Workload& workload, Device device) {
  const DType dtype = workload.precision == Precision::bfloat16 ? DType::bfloat16 : DType::float32;
  const Shape shape{workload.batch, kLength, 8, 64}, decays{workload.batch, kLength, 8};
  const auto make_input = [&](double value, const Shape& size, DType as) {
    return set_requires_grad(Tensor::full(size, value, as, device));
  };
  const Tensor q = make_input(0.1, shape, dtype), k = make_input(0.1, shape, dtype),
               v = make_input(1, shape, dtype), g = Tensor::full(shape, 1, dtype, device);
  const GatedLinearAttentionOptions options{.log_decay = make_input(-0.1, decays, DType::float32),
                                            .erase = make_input(0.1, shape, dtype)};
  Tensor out;
  const auto step = [&] {
    out = gated_linear_attention(q, k, v, options).out;
    backward(out, g);
  };
  return count_second_call(step, workload.files);
}

Work work_of(const Workload& workload, const BenchmarkedModel& choice) {
  const Device device = choose_device("cuda-emulated").device;
  set_precision(device, workload.precision);
  Work work;
  if (workload.counted == Counted::token) {
    work = count_token(workload, choice, device);
  } else if (workload.counted == Counted::gated_attention) {
    work = count_gated_attention(workload, device);
  } else {
    TrainingStep step(choice, device);
    work = count_second_call([&] { step.run_without_graph(); }, workload.files);
  }
  set_precision(device, Precision::float32);
  return work;
}

bool exceeds(int64_t found, int64_t budget) {
  return static_cast<double>(found) > kTolerance * static_cast<double>(budget);
}

bool exceeds(const Figures& found, const Figures& budget) {
  return exceeds(found.requests, budget.requests) || exceeds(found.sectors, budget.sectors) ||
         exceeds(found.shared_cycles, budget.shared_cycles);
}

Figures budget_of(const Workload& workload, const std::string& file) {
  for (const Budget& budget : kBudgets)
    if (budget.workload == std::string(workload.name) && budget.file == file) return budget.figures;
  return {};
}

// Returns the number of launches if it exceeds the budget of the workload, and one line for each file that
// exceeds its budget or has no budget. Each line is the C++ code of an element of kBudgets that has the
// current counts.
std::string exceeded(const Workload& workload, const BenchmarkedModel& choice) {
  const Work work = work_of(workload, choice);
  std::string lines;
  if (exceeds(work.launches, workload.launches))
    lines = concat_text(workload.name, ": ", work.launches, " launches\n");
  for (const auto& [file, found] : work.files)
    if (exceeds(found, budget_of(workload, file)))
      lines += concat_text("    {\"", workload.name, "\", \"", file, "\", {", found.requests, ", ",
                           found.sectors, ", ", found.shared_cycles, "}},\n");
  return lines;
}

}  // namespace

TEST_CASE("cuda: kernels keep their budgets of memory accesses") {
  for (const Workload& workload : kWorkloads) CHECK(exceeded(workload, choice_of(workload)) == "");
}

TEST_CASE("cuda: control: rows that are not aligned to 16 bytes exceed the budgets") {
  BenchmarkedModel choice = choice_of(kWorkloads[0]);
  --choice.model.encoder.feedforward;
  CHECK(exceeded(kWorkloads[0], choice).find("linear.cu") != std::string::npos);
}

TEST_CASE("control: figures exceed a budget if one of them is over 5 % larger") {
  const Figures budget{1000, 2000, 3000};
  CHECK(!exceeds(budget, budget));
  CHECK(!exceeds({1050, 2100, 3150}, budget));
  CHECK(exceeds({1051, 2000, 3000}, budget));
  CHECK(exceeds({1000, 2101, 3000}, budget));
  CHECK(exceeds({1000, 2000, 3151}, budget));
}
