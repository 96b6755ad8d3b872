#include "core/cuda/transfers.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/memory.h"
#ifdef TAPEFORMER_CUDA_EMULATED
#include "core/emulation/events.h"
#endif

namespace tapeformer::cuda {
// A pinned buffer for copies between the host and one device, with an event that is recorded after the last
// copy. Slots are reused and never destroyed.
struct Slot {
  int device;
  std::unique_ptr<PinnedBuffer> memory;
  cudaEvent_t copy_done{};

  explicit Slot(int64_t bytes) : device(get_context().device), memory(std::make_unique<PinnedBuffer>(bytes)) {
    check_status(cudaEventCreateWithFlags(&copy_done, cudaEventDisableTiming));
  }
  void copy(void* to, const void* from, int64_t bytes) const {
    check_status(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, get_context().stream));
    check_status(cudaEventRecord(copy_done, get_context().stream));
  }
  void wait() const { check_status(cudaEventSynchronize(copy_done)); }
};

namespace {

// Number of staging buffers per device, enough for the copies of about two training steps.
constexpr size_t kMaxStages = 16;
constexpr int64_t kMinStageBytes = 64 << 10;

// The pinned buffers of one device, for copies between host and device.
struct DeviceSlots {
  std::vector<std::unique_ptr<Slot>> stages;  // staging buffers, which copy_to_device_async() uses in turn
  size_t next_stage = 0;
  std::vector<Slot*> free_slots;  // slots that no DeviceToHostCopy uses
};

std::mutex& slots_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

DeviceSlots& get_slots(int device) {
  static auto& slots = *new std::map<int, DeviceSlots>;
  return slots[device];
}

std::atomic<int64_t> wait_count{0};

void synchronize_stream(cudaStream_t stream) {
  check_not_capturing("waits for the device");
  ++wait_count;
  check_status(cudaStreamSynchronize(stream));
}

// Work that is added to `later` after this call runs after the work that `earlier` has now.
void order_streams(cudaStream_t earlier, cudaStream_t later) {
  cudaEvent_t reached{};
  check_status(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming));
  cudaError_t status = cudaEventRecord(reached, earlier);
  if (status == cudaSuccess) status = cudaStreamWaitEvent(later, reached, 0);
  cudaEventDestroy(reached);  // does not end the wait
  check_status(status);
}

void check_not_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  check_status(cudaStreamIsCapturing(stream, &status));
  if (status != cudaStreamCaptureStatusNone)
    throw CudaGraphError("the current stream records a CUDA graph, which cannot contain this operator");
}

}  // namespace

void copy_to_device_async(void* to, const void* from, int64_t bytes) {
  check_not_capturing("copies from the host's memory");
  const std::scoped_lock lock(slots_mutex());
  DeviceSlots& slots = get_slots(get_context().device);
  if (slots.stages.size() < kMaxStages) slots.stages.push_back(std::make_unique<Slot>(kMinStageBytes));
  Slot& slot = *slots.stages[slots.next_stage % slots.stages.size()];
  slots.next_stage = (slots.next_stage + 1) % kMaxStages;
  slot.wait();
  if (slot.memory->bytes() < bytes)
    slot.memory =
        std::make_unique<PinnedBuffer>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
  std::memcpy(slot.memory->data(), from, static_cast<size_t>(bytes));
  slot.copy(to, slot.memory->data(), bytes);
}

DeviceToHostCopy::DeviceToHostCopy(const void* from, int64_t bytes) {
  check_not_capturing("copies to the host's memory");
  const std::scoped_lock lock(slots_mutex());
  std::vector<Slot*>& free_slots = get_slots(get_context().device).free_slots;
  if (free_slots.empty()) free_slots.push_back(new Slot(kMaxBytes));
  slot_ = free_slots.back();
  free_slots.pop_back();
  slot_->copy(slot_->memory->data(), from, bytes);
}

DeviceToHostCopy::~DeviceToHostCopy() {
  const std::scoped_lock lock(slots_mutex());
  get_slots(slot_->device).free_slots.push_back(slot_);
}

struct EventPair {
  cudaEvent_t start{}, end{};
};

EventTimer::EventTimer() : events_(new EventPair) {
  check_not_capturing("measures time");
  check_status(cudaEventCreateWithFlags(&events_->start, cudaEventDefault));
  check_status(cudaEventCreateWithFlags(&events_->end, cudaEventDefault));
  check_status(cudaEventRecord(events_->start, get_context().stream));
}

EventTimer::~EventTimer() {
  cudaEventDestroy(events_->start);
  cudaEventDestroy(events_->end);
  delete events_;
}

double EventTimer::measure_elapsed_seconds() const {
  check_status(cudaEventRecord(events_->end, get_context().stream));
  check_status(cudaEventSynchronize(events_->end));
  float milliseconds = 0;
  check_status(cudaEventElapsedTime(&milliseconds, events_->start, events_->end));
  return static_cast<double>(milliseconds) / 1000;
}

const void* DeviceToHostCopy::wait() const {
  slot_->wait();
  return slot_->memory->data();
}

int64_t host_wait_count() {
  return wait_count;
}

void synchronize(Device device) {
  const DeviceScope scope(device);
  synchronize_stream(get_context().stream);
}

ForeignStreamScope::KeepCurrentDevice::KeepCurrentDevice() {
  check_status(cudaGetDevice(&previous));
  forget_current_device();
}
ForeignStreamScope::KeepCurrentDevice::~KeepCurrentDevice() {
  if (cudaSetDevice(previous) != cudaSuccess) clear_error();
  forget_current_device();
}

ForeignStreamScope::ForeignStreamScope(Device device, void* stream) : device_(device), stream_(stream) {
  // A null stream is the default stream of the current device. The check comes before get_context(), which
  // allocates memory, and which throws if the device cannot be used.
  if (cudaSetDevice(device.index) == cudaSuccess)
    check_not_recorded(static_cast<cudaStream_t>(stream));
  else
    clear_error();
  const DeviceScope scope(device);
  const cudaStream_t own = get_context().stream;
  order_streams(static_cast<cudaStream_t>(stream), own);
}

ForeignStreamScope::~ForeignStreamScope() {
  try {
    const DeviceScope scope(device_);
    order_streams(get_context().stream, static_cast<cudaStream_t>(stream_));
  } catch (const std::exception&) {
    // If the device has failed, the next call of the other library reports the same error. Otherwise, the
    // work must end before the other library continues.
    if (cudaDeviceSynchronize() != cudaSuccess) clear_error();
  }
}

void fill_zero(void* data, int64_t bytes) {
  if (bytes == 0) return;
  check_status(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), get_context().stream));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  // The copy runs in the stream of the source device, after the kernels that write the source. If the source
  // is the CPU, the copy runs in the stream of the target device.
  const DeviceScope scope(from_device.is_cpu() ? to_device : from_device);
  const cudaStream_t stream = get_context().stream;
  if (from_device.is_cpu()) check_not_capturing("copies from the host's memory");
  if (to_device.is_cpu()) check_not_capturing("copies to the host's memory");
  if (from_device.is_cpu()) {
    // cudaMemcpyAsync may read pageable memory after it has returned, so copy_to_device_async() copies to
    // pinned memory first.
    for (int64_t done = 0; done < bytes; done += kMaxStagedBytes)
      copy_to_device_async(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                           std::min(bytes - done, kMaxStagedBytes));
    return;
  }
  if (!from_device.is_cpu() && !to_device.is_cpu() && from_device != to_device) synchronize(to_device);
  check_status(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream));
  if (to_device.is_cpu() || (!from_device.is_cpu() && from_device != to_device)) synchronize_stream(stream);
}

}  // namespace tapeformer::cuda
