#include "train/bench/device_cost.h"

#include <optional>

#include "core/allocator.h"
#include "core/cuda/devices.h"
#include "models/generation.h"
#include "train/bench/training_step.h"

namespace tapeformer {
namespace {

// Settings of the device during a count. An emulated device skips the work and has a memory limit.
class Counting {
 public:
  Counting(Device device, int64_t memory_bytes)
      : memory_(device_allocator(device)), previous_limit_(memory_.limit()) {
    if (!cuda::emulated()) return;
    skipped_.emplace();
    memory_.trim();
    memory_.set_limit(memory_bytes);
  }
  ~Counting() {
    memory_.set_limit(previous_limit_);
    memory_.trim();
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  // Returns the work of a call of f.
  template <class F>
  DeviceWork work_of(F&& f) const {
    memory_.reset_peak();
    const cuda::WorkLog log;
    f();
    return {log.records(), 0, memory_.stats().peak};
  }

 private:
  CachingAllocator& memory_;
  int64_t previous_limit_;
  BlockRecording recording_;
  std::optional<cuda::SkippedWork> skipped_;
};

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
    const Counting counting(device, memory_bytes);
    TrainingStep step(choice, device);
    step.run_launches();
    work = counting.work_of([&] { step.run_launches(); });
    work.parameters = parameter_count(step.model());
  }
  return work;
}

DeviceWork decoding_work(const ModelChoice& choice, int64_t batch, Device device, int64_t memory_bytes) {
  check_device(device);
  DeviceWork work;
  if constexpr (kHasCuda) {
    const Counting counting(device, memory_bytes);
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
    work = counting.work_of([&] { step(1); });
    work.parameters = parameter_count(model);
  }
  return work;
}

}  // namespace tapeformer
