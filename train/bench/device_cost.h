// The work of a training step or of a decoded token on a CUDA device. An emulated device counts the work
// without computing it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/allocator.h"
#include "core/cuda/devices.h"
#include "core/cuda/work_log.h"
#include "train/bench/model_choice.h"

namespace tapeformer {

struct DeviceWork {
  std::vector<cuda::WorkRecord> records;
  int64_t parameter_count = 0;
  int64_t peak_bytes = 0;  // peak memory of live tensors in bytes

  int64_t launch_count() const { return static_cast<int64_t>(records.size()); }
  int64_t byte_count() const;
  double flop_count() const;
};

// Counts the launches on a CUDA device and the bytes that the launches read and write. The byte count of a
// kernel includes only arrays that were allocated after the WorkCounter was constructed, because the
// allocator does not record the sizes of earlier arrays. While a WorkCounter exists, an emulated device does
// not run the launches, and the memory of the emulated device is limited to `memory_bytes`.
//
// The member functions are inline, because they call functions that builds without CUDA do not define.
class WorkCounter {
 public:
  WorkCounter(Device device, int64_t memory_bytes)
      : allocator_(get_device_allocator(device)), previous_limit_(allocator_.limit()) {
    if (!cuda::is_emulated()) return;
    skipped_work_.emplace();
    allocator_.trim();
    allocator_.set_limit(memory_bytes);
  }
  ~WorkCounter() {
    allocator_.set_limit(previous_limit_);
    allocator_.trim();
  }
  WorkCounter(const WorkCounter&) = delete;
  WorkCounter& operator=(const WorkCounter&) = delete;

  // Returns the work that f() submits to the device. DeviceWork::parameter_count of the result is 0.
  template <class F>
  DeviceWork count_work(F&& f) const {
    allocator_.reset_peak();
    const cuda::WorkLog log;
    f();
    return {log.records(), 0, allocator_.stats().peak_bytes};
  }

 private:
  CachingAllocator& allocator_;
  int64_t previous_limit_;
  BlockRecordingScope block_recording_;
  std::optional<cuda::SkippedWorkScope> skipped_work_;
};

// A callback of call_with_training_step() and call_with_decoding_step(). Each call of the argument `step`
// runs one step of the argument `model`.
using StepVisitor = std::function<void(const std::function<void()>& step, const Module& model)>;
// Makes a model, runs the first training step, and then calls `visitor` with a function that runs one more
// training step. The first training step includes work that later steps do not repeat. Throws DeviceError if
// the device is the CPU.
void call_with_training_step(const BenchmarkedModel& choice, Device device, const StepVisitor& visitor);
// Makes a model, decodes the first token of `batch` sequences, and then calls `visitor` with a function that
// decodes the second token of each sequence. Decoding the first token includes work that later tokens do not
// repeat. Throws DeviceError if the device is the CPU.
void call_with_decoding_step(const BenchmarkedModel& choice, int64_t batch, Device device,
                             const StepVisitor& visitor);

// Returns the work of the second training step. Throws OutOfMemoryError if an emulated device needs more than
// `memory_bytes`, and DeviceError if the device is the CPU.
DeviceWork count_training_step_work(const BenchmarkedModel& choice, Device device, int64_t memory_bytes);
// Returns the work of decoding the second token of `batch` sequences. Throws the same errors as
// count_training_step_work().
DeviceWork count_decoding_step_work(const BenchmarkedModel& choice, int64_t batch, Device device,
                                    int64_t memory_bytes);

// Returns the option "work" with the choices training and token.
OptionSpec make_work_option();
// Throws a ConfigError that names --work if the model has no recurrent form, or if its sequences have fewer
// than two tokens.
void check_decodable(const AutoregressiveModelOptions& model);

// Returns the first CUDA device, which may be emulated. Throws DeviceError if there is none.
Device find_cuda_device();

}  // namespace tapeformer
