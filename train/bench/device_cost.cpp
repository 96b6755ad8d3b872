#include "train/bench/device_cost.h"

#include "core/cuda/devices.h"
#include "models/generation.h"
#include "train/bench/training_step.h"

namespace tapeformer {
namespace {

void require_cuda_device(Device device) {
  if (!kHasCuda || device.is_cpu())
    throw DeviceError(
        "this benchmark counts the work of a CUDA device: use a build with CUDA or its emulation "
        "(-DTAPEFORMER_CUDA=EMULATED), and select the device with --device");
}

}  // namespace

int64_t DeviceWork::byte_count() const {
  int64_t total = 0;
  for (const cuda::WorkRecord& record : records) total += record.bytes;
  return total;
}

double DeviceWork::flop_count() const {
  double total = 0;
  for (const cuda::WorkRecord& record : records) total += record.flop;
  return total;
}

OptionSpec make_work_option() {
  return {.name = "work",
          .default_value = std::string("training"),
          .help = "work to count: a training step, or a decoded token of each sequence",
          .choices = {"training", "token"}};
}

void check_decodable(const AutoregressiveModelOptions& model) {
  const std::string problem =
      describe_unsupported(model.encoder.attention, "recurrent form", &AttentionCapabilities::recurrent);
  if (!problem.empty()) throw ConfigError("--work token: " + problem);
  if (model.max_length < 2)
    throw ConfigError(
        concat_text("--work token: expected sequences of at least 2 tokens, got ", model.max_length));
}

Device find_cuda_device() {
  if constexpr (kHasCuda)
    return choose_device(cuda::is_emulated() ? "cuda-emulated" : "cuda").device;
  else
    require_cuda_device(kCpu);
  return kCpu;
}

void call_with_training_step(const BenchmarkedModel& choice, Device device, const StepVisitor& visitor) {
  require_cuda_device(device);
  TrainingStep step(choice, device);
  step.run_without_graph();
  visitor([&] { step.run_without_graph(); }, step.model());
}

void call_with_decoding_step(const BenchmarkedModel& choice, int64_t batch, Device device,
                             const StepVisitor& visitor) {
  require_cuda_device(device);
  const NoGradScope no_grad;
  AutoregressiveModel model(choice.model);
  model.initialize(choice.seed);
  model.move(device);
  const Tensor columns = Tensor::zeros({choice.model.max_length + 1, batch}, DType::uint8, device);
  const Tensor tokens = Tensor::zeros({batch}, DType::uint8, device);
  const Sampler sampler(choice.model, {.seed = choice.seed}, device);
  Decoder decoder(model, batch);
  const auto step = [&](int64_t position) {
    sampler.draw(decoder.step(tokens), position, tokens);
    copy_tokens_at_position(columns, position + 1, 1, tokens);
  };
  step(0);
  visitor([&] { step(1); }, model);
}

DeviceWork count_training_step_work(const BenchmarkedModel& choice, Device device, int64_t memory_bytes) {
  require_cuda_device(device);
  DeviceWork work;
  if constexpr (kHasCuda) {
    const WorkCounter counter(device, memory_bytes);
    call_with_training_step(choice, device, [&](const std::function<void()>& step, const Module& model) {
      work = counter.count_work(step);
      work.parameter_count = count_parameters(model);
    });
  }
  return work;
}

DeviceWork count_decoding_step_work(const BenchmarkedModel& choice, int64_t batch, Device device,
                                    int64_t memory_bytes) {
  require_cuda_device(device);
  DeviceWork work;
  if constexpr (kHasCuda) {
    const WorkCounter counter(device, memory_bytes);
    call_with_decoding_step(choice, batch, device,
                            [&](const std::function<void()>& step, const Module& model) {
                              work = counter.count_work(step);
                              work.parameter_count = count_parameters(model);
                            });
  }
  return work;
}

}  // namespace tapeformer
