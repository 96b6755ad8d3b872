// A program that tests run with mpirun in 1, 2 and 4 processes. It trains several models for 20 steps in
// float32 and float64, and prints the losses and a sum of each state tensor. The first argument is a folder
// that contains a corpus in the layout of AN4 and the data set "mnist". The second argument is optional and
// names a fault:
// - "nan" sets a weight of process 1 to NaN.
// - "drift" changes a weight of process 1.
// - "throw" throws an exception in process 1.
// - "mismatch" starts a reduction whose size differs between the processes.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/system/log.h"
#include "core/threads/threads.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/distributed/processes.h"
#include "train/distributed/replicas.h"
#include "train/loop/step_runner.h"
#include "train/tasks/registry/make_task.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kSteps = 20;

struct Case {
  std::string name;
  Config config;
};

void set_attention(Config& config, const std::string& kind) {
  config.model.attention = {kind};
  config.attention = {{kind, find_attention_kind(kind).make_options(find_attention_kind(kind).test_options)}};
}

std::vector<Case> cases(const std::string& folder) {
  std::vector<Case> list;
  Config lsh = make_tiny_sequence_config();
  lsh.data.batch_size = 8;
  lsh.model.options.set("dropout", 0.1);
  set_attention(lsh, "lsh");
  list.push_back({"copy-lsh", lsh});
  Config reversible = lsh;
  reversible.model.options.set("layers", 2);
  reversible.model.options.set("norm", "pre");
  reversible.model.options.set("reversible", true);
  list.push_back({"copy-lsh-reversible", reversible});
  Config routing = lsh;
  set_attention(routing, "routing");
  routing.attention.at("routing").set("decay", 0.5);  // so that the centroids change in each step
  list.push_back({"copy-routing", routing});
  Config image = make_tiny_image_config("mnist");
  image.data.batch_size = 8;
  image.model.options.set("dropout", 0.2);
  list.push_back({"image-dropout", image});
  Config ctc = make_tiny_speech_config(folder, "transformer");
  ctc.model.options.set("ctc_mean", "label");
  ctc.data.options.set("spec_augment", true);
  ctc.data.options.set("time_width", 4);
  list.push_back({"ctc-buckets", ctc});
  Config lstm = make_tiny_speech_config(folder);
  lstm.model.options.set("layers", 2);
  list.push_back({"ctc-lstm", lstm});
  const size_t count = list.size();
  for (size_t i = 0; i < count; ++i) {
    Config& config = list[i].config;
    config.train.steps = kSteps;
    config.train.epochs = 0;
    config.optimizer.lr = 1e-3;
    config.optimizer.clip_norm = 0.5;
    config.optimizer.clip = "global";
    Case accumulated = list[i];
    accumulated.name += "-accumulated";
    accumulated.config.train.accumulate = 2;
    list.push_back(accumulated);
  }
  return list;
}

// Causes the named fault. If `fault` is empty, does nothing.
void apply_fault(const std::string& fault, Communicator& processes, const Module& model) {
  if (fault == "mismatch") processes.all_reduce(Tensor::zeros({processes.is_first() ? 10 : 100}));
  if (processes.rank() != 1 || fault.empty()) return;
  if (fault == "throw") throw std::runtime_error("a fault of the test");
  const Tensor weight = model.parameters().front().second;
  weight.fill(fault == "nan" ? NAN : 0.25);
}

void append_number(std::string& line, double value) {
  char text[32];
  std::snprintf(text, sizeof text, " %.17g", value);
  line += text;
}

// Appends the sum of the absolute values of each state tensor, such as the centroids of routing attention.
void append_state(std::string& line, const Module& model) {
  const NamedTensors parameters = model.parameters();
  for (const auto& [name_bound, tensor] : model.saved_tensors()) {
    const auto& name = name_bound;  // clang 14 cannot capture structured bindings
    const auto is_same = [&](const auto& parameter) { return parameter.first == name; };
    if (std::any_of(parameters.begin(), parameters.end(), is_same)) continue;
    double sum = 0;
    for (const double value : tensor.to_vector()) sum += std::abs(value);
    append_number(line, sum);
  }
}

void print_losses(const Case& test, const std::string& folder, DType dtype, Communicator& processes,
                  const std::string& fault) {
  RunState state{.total_steps = kSteps};
  const auto task = make_task(test.config, {folder, kCpu, processes});
  task->model().convert(dtype);
  Optimizer optimizer(test.config.optimizer, task->model().parameters(),
                      task->model().undecayed_parameters());
  Schedule schedule(test.config.schedule, kSteps);
  StepRunner runner(test.config, kCpu, state, *task, optimizer, schedule, processes);
  std::string line = test.name + " " + name_of(dtype);
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == kSteps / 2) apply_fault(fault, processes, task->model());
    runner.run();
    ++state.step;
    runner.wait_for_losses(state.step);
    append_number(line, *runner.last_loss());
    if (!fault.empty()) require_equal_tensors(processes, task->model().parameters(), state.step);
  }
  require_equal_tensors(processes, task->model().saved_tensors(), state.step);
  append_state(line, task->model());
  if (processes.is_first()) std::printf("%s\n", line.c_str());
}

int run(int argc, char** argv) {
  set_thread_count(1);
  set_log_level(LogLevel::error);
  Communicator& processes = *init_process_group().communicator;
  const std::string folder = argv[1], fault = argc > 2 ? argv[2] : "";
  for (const Case& test : cases(folder))
    for (const DType dtype : {DType::float32, DType::float64})
      print_losses(test, folder, dtype, processes, fault);
  return 0;
}

void print_error(const std::string& error) {
  std::fprintf(stderr, "error: %s\n", error.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return destroy_process_group(run(argc, argv));
  } catch (const DivergenceError& error) {
    return destroy_process_group(5, error.what(), print_error);
  } catch (const ProcessLostError& error) {
    return destroy_process_group(1, std::string("process lost: ") + error.what(), print_error);
  } catch (const std::exception& error) {
    return destroy_process_group(1, error.what(), print_error);
  }
}
