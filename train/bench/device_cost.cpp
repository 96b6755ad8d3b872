#include "train/bench/device_cost.h"

#include "core/cuda/devices.h"
#include "models/generation.h"
#include "train/bench/training_step.h"

namespace tapeformer {
namespace {

// Throws DeviceError unless the device is a CUDA device of this build.
void check_device(Device device) {
  if (!kHasCuda || device.is_cpu())
    throw DeviceError(
        "device-cost counts the work of a CUDA device: use a build with CUDA or its emulation "
        "(-DTAPEFORMER_CUDA=EMULATED)");
}

}  // namespace

int64_t DeviceWork::bytes() const {
  int64_t total = 0;
  for (const cuda::WorkRecord& record : records) total += record.bytes;
  return total;
}

double DeviceWork::flop() const {
  double total = 0;
  for (const cuda::WorkRecord& record : records) total += record.flop;
  return total;
}

Device counted_device() {
  if constexpr (kHasCuda)
    return choose_device(cuda::emulated() ? "cuda-emulated" : "cuda").device;
  else
    check_device(kCpu);
  return kCpu;
}

DeviceWork training_work(const ModelChoice& choice, Device device, int64_t memory_bytes) {
  check_device(device);
  DeviceWork work;
  if constexpr (kHasCuda) {
    const WorkCounter counter(device, memory_bytes);
    TrainingStep step(choice, device);
    step.run_launches();
    work = counter.work_of([&] { step.run_launches(); });
    work.parameters = parameter_count(step.model());
  }
  return work;
}

DeviceWork decoding_work(const ModelChoice& choice, int64_t batch, Device device, int64_t memory_bytes) {
  check_device(device);
  DeviceWork work;
  if constexpr (kHasCuda) {
    const WorkCounter counter(device, memory_bytes);
    const NoGrad no_grad;
    AutoregressiveModel model(choice.model);
    model.initialize(choice.seed);
    model.move(device);
    const Tensor columns = Tensor::zeros({choice.model.max_length + 1, batch}, DType::uint8, device);
    const Tensor tokens = Tensor::zeros({batch}, DType::uint8, device);
    const Sampler sampler(choice.model, {.seed = choice.seed}, device);
    Decoder decoder(model, batch);
    const auto step = [&](int64_t position) {
      sampler.draw(decoder.step(tokens), position, tokens);
      advance_tokens(columns, position + 1, 1, tokens);
    };
    step(0);
    work = counter.work_of([&] { step(1); });
    work.parameters = parameter_count(model);
  }
  return work;
}

}  // namespace tapeformer
