#include "train/distributed/nccl_communicator.h"

#include <nccl.h>

#include <cstring>
#include <utility>

#include "core/base/errors.h"
#include "core/cuda/context.h"

namespace tapeformer {
namespace {

void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw DeviceError(concat_text(call, ": ", ncclGetErrorString(result)));
}

ncclDataType_t get_nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::int64:
      return ncclInt64;
    case DType::uint8:
      return ncclUint8;
    default:
      break;
  }
  throw ShapeError(concat_text("Communicator: unsupported dtype ", name_of(dtype)));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> host_communicator, Device device)
      : Communicator(host_communicator->rank(), host_communicator->size()),
        hosts_(std::move(host_communicator)),
        device_(device) {
    const Tensor bytes = Tensor::zeros({sizeof(ncclUniqueId)}, DType::uint8);
    ncclUniqueId id;
    if (is_first()) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (is_first()) std::memcpy(bytes.raw_data(), &id, sizeof id);
    hosts_->broadcast(bytes);
    std::memcpy(&id, bytes.raw_data(), sizeof id);
    const DeviceScope scope(device_);
    cuda::get_context();
    check_nccl(ncclCommInitRank(&nccl_, size(), id, rank()), "ncclCommInitRank");
    cuda::check_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&computed_, &reduced_})
      cuda::check_status(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  ~NcclCommunicator() override {
    cudaStreamSynchronize(stream_);
    ncclCommDestroy(nccl_);
    for (const cudaEvent_t event : {computed_, reduced_}) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  void start_all_reduce(const Tensor& values) override {
    if (values.device().is_cpu()) return hosts_->start_all_reduce(values);
    enqueue([&] {
      check_nccl(ncclAllReduce(values.raw_data(), values.raw_data(), static_cast<size_t>(values.numel()),
                               get_nccl_type(values.dtype()), ncclSum, nccl_, stream_),
                 "ncclAllReduce");
    });
  }
  void wait() override {
    if (std::exchange(started_, false)) {
      const DeviceScope scope(device_);
      cuda::check_status(cudaEventRecord(reduced_, stream_));
      cuda::check_status(cudaStreamWaitEvent(cuda::get_context().stream, reduced_, 0));
    }
    hosts_->wait();
  }
  void broadcast(const Tensor& values) override {
    if (values.device().is_cpu()) return hosts_->broadcast(values);
    enqueue([&] {
      check_nccl(ncclBroadcast(values.raw_data(), values.raw_data(), static_cast<size_t>(values.bytes()),
                               ncclUint8, 0, nccl_, stream_),
                 "ncclBroadcast");
    });
    wait();
  }
  bool is_stream_ordered() const override { return true; }
  void barrier() override { hosts_->barrier(); }

 private:
  // Calls `launch`, which enqueues an NCCL operation in `stream_`. The operation waits for all earlier work
  // in the compute stream.
  template <class F>
  void enqueue(F&& launch) {
    const DeviceScope scope(device_);
    cuda::check_status(cudaEventRecord(computed_, cuda::get_context().stream));
    cuda::check_status(cudaStreamWaitEvent(stream_, computed_, 0));
    launch();
    started_ = true;
  }

  std::shared_ptr<Communicator> hosts_;
  Device device_;
  ncclComm_t nccl_{};
  cudaStream_t stream_{};
  cudaEvent_t computed_{}, reduced_{};
  bool started_ = false;
};

}  // namespace

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> host_communicator,
                                                     Device device) {
  return std::make_shared<NcclCommunicator>(std::move(host_communicator), device);
}

}  // namespace tapeformer
