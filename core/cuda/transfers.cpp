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
#include "core/cuda/work_log.h"
#ifdef TAPEFORMER_CUDA_EMULATED
#include "core/emulation/events.h"
#endif

namespace tapeformer::cuda {
namespace {

// Adds a copy or a fill that moves `bytes` of device memory to the log of this thread, if there is one.
void log_copy(int64_t bytes, SourceLocation where = SourceLocation::current()) {
  if (WorkLog* const log = WorkLog::current()) log->add_copy(bytes, where);
}

}  // namespace

// Pinned memory, and the event that is recorded after its last copy. Never destroyed.
struct Slot {
  int device;
  std::unique_ptr<PinnedBuffer> memory;
  cudaEvent_t done{};

  explicit Slot(int64_t bytes) : device(context().device), memory(std::make_unique<PinnedBuffer>(bytes)) {
    check_status(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  }
  void copy(void* to, const void* from, int64_t bytes) const {
    log_copy(bytes);
    check_status(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, context().stream));
    check_status(cudaEventRecord(done, context().stream));
  }
  void wait() const { check_status(cudaEventSynchronize(done)); }
};

namespace {

constexpr size_t kStages = 16;  // buffers per device, enough for the copies of about two training steps
constexpr int64_t kSmallestStage = 64 << 10;  // in bytes

struct Slots {  // the slots of one device
  std::vector<std::unique_ptr<Slot>> stages;
  size_t next_stage = 0;
  std::vector<Slot*> idle;  // slots that no HostCopy uses
};

std::mutex& guard() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

Slots& slots_of(int device) {
  static auto& all = *new std::map<int, Slots>;
  return all[device];
}

std::atomic<int64_t> waits{0};

void wait_for(cudaStream_t stream) {
  refuse_in_graph("waits for the device");
  ++waits;
  check_status(cudaStreamSynchronize(stream));
}

}  // namespace

void stage(void* to, const void* from, int64_t bytes) {
  refuse_in_graph("copies from the host's memory");
  const std::scoped_lock lock(guard());
  Slots& slots = slots_of(context().device);
  if (slots.stages.size() < kStages) slots.stages.push_back(std::make_unique<Slot>(kSmallestStage));
  Slot& slot = *slots.stages[slots.next_stage % slots.stages.size()];
  slots.next_stage = (slots.next_stage + 1) % kStages;
  slot.wait();
  if (slot.memory->bytes() < bytes)
    slot.memory =
        std::make_unique<PinnedBuffer>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
  std::memcpy(slot.memory->data(), from, static_cast<size_t>(bytes));
  slot.copy(to, slot.memory->data(), bytes);
}

HostCopy::HostCopy(const void* from, int64_t bytes) {
  refuse_in_graph("copies to the host's memory");
  const std::scoped_lock lock(guard());
  std::vector<Slot*>& idle = slots_of(context().device).idle;
  if (idle.empty()) idle.push_back(new Slot(kMaxBytes));
  slot_ = idle.back();
  idle.pop_back();
  slot_->copy(slot_->memory->data(), from, bytes);
}

HostCopy::~HostCopy() {
  const std::scoped_lock lock(guard());
  slots_of(slot_->device).idle.push_back(slot_);
}

struct Events {
  cudaEvent_t start{}, end{};
};

EventTimer::EventTimer() : events_(new Events) {
  refuse_in_graph("measures time");
  check_status(cudaEventCreateWithFlags(&events_->start, cudaEventDefault));
  check_status(cudaEventCreateWithFlags(&events_->end, cudaEventDefault));
  check_status(cudaEventRecord(events_->start, context().stream));
}

EventTimer::~EventTimer() {
  cudaEventDestroy(events_->start);
  cudaEventDestroy(events_->end);
  delete events_;
}

double EventTimer::seconds() const {
  check_status(cudaEventRecord(events_->end, context().stream));
  check_status(cudaEventSynchronize(events_->end));
  float milliseconds = 0;
  check_status(cudaEventElapsedTime(&milliseconds, events_->start, events_->end));
  return static_cast<double>(milliseconds) / 1000;
}

const void* HostCopy::wait() const {
  slot_->wait();
  return slot_->memory->data();
}

int64_t host_waits() {
  return waits;
}

void synchronize(Device device) {
  const DeviceScope scope(device);
  wait_for(context().stream);
}

void fill_zero(void* data, int64_t bytes) {
  if (bytes == 0) return;
  log_copy(bytes);
  check_status(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), context().stream));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  // The copy runs in the stream of the source, after the kernels that write its values.
  const DeviceScope scope(from_device.is_cpu() ? to_device : from_device);
  const cudaStream_t stream = context().stream;
  if (from_device.is_cpu()) refuse_in_graph("copies from the host's memory");
  if (to_device.is_cpu()) refuse_in_graph("copies to the host's memory");
  if (from_device.is_cpu()) {
    // CUDA may read pageable memory after the call has returned, so the bytes go through pinned memory.
    for (int64_t done = 0; done < bytes; done += kMaxStaged)
      stage(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
            std::min(bytes - done, kMaxStaged));
    return;
  }
  if (!from_device.is_cpu() && !to_device.is_cpu() && from_device != to_device) synchronize(to_device);
  log_copy(to_device.is_cpu() ? bytes : 2 * bytes);
  check_status(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream));
  if (to_device.is_cpu() || (!from_device.is_cpu() && from_device != to_device)) wait_for(stream);
}

}  // namespace tapeformer::cuda
