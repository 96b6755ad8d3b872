#include "train/distributed/mpi_communicator.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/base/environment.h"
#include "core/base/errors.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxCount = 1 << 30;  // maximum number of elements per MPI call, because counts are int

// MPI handles of this process. The worker thread creates the handles in initialize().
struct MpiState {
  MPI_Comm shutdown = MPI_COMM_NULL;  // communicator of all_reduce_with_timeout()
  MPI_Datatype bfloat16 = MPI_DATATYPE_NULL;
  MPI_Op add_bfloat16 = MPI_OP_NULL;
};

MpiState& get_mpi_state() {
  static auto* const state = new MpiState;
  return *state;
}

// Returns whether MPI reports that a process has ended. Versions of MPI without the class
// MPIX_ERR_PROC_FAILED, such as Open MPI 4, do not report the end of a process.
bool is_process_loss([[maybe_unused]] int status) {
#ifdef MPIX_ERR_PROC_FAILED
  int error_class = MPI_SUCCESS;
  MPI_Error_class(status, &error_class);
  return error_class == MPIX_ERR_PROC_FAILED;
#else
  return false;
#endif
}

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  const std::string message = concat_text(call, ": ", std::string(text, static_cast<size_t>(length)));
  if (is_process_loss(status)) throw ProcessLostError(message);
  throw std::runtime_error(message);
}

void add_bfloat16(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* const from = static_cast<const BFloat16*>(in);
  auto* const to = static_cast<BFloat16*>(inout);
  for (int i = 0; i < *count; ++i) to[i] = BFloat16(static_cast<float>(to[i]) + static_cast<float>(from[i]));
}

MPI_Datatype to_mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::bfloat16:
      return get_mpi_state().bfloat16;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
      return MPI_UINT8_T;
    default:
      break;
  }
  throw ShapeError(concat_text("Communicator: unsupported dtype ", name_of(dtype)));
}

// Calls f(data, count) for consecutive parts of a tensor in host memory, each with at most kMaxCount
// elements.
template <class F>
void for_each_part(const Tensor& values, F&& f) {
  auto* const bytes = static_cast<uint8_t*>(values.raw_data());
  for (int64_t first = 0; first < values.numel(); first += kMaxCount)
    f(bytes + first * size_of(values.dtype()), static_cast<int>(std::min(kMaxCount, values.numel() - first)));
}

// Waits until all processes have called the function. Sleeps between checks, because blocking functions of
// MPI poll and would take processor time from other threads.
void wait_for_processes(MPI_Comm communicator) {
  constexpr int kChecksWithoutSleep = 100;
  constexpr std::chrono::microseconds kSleep{50};
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(communicator, &request), "MPI_Ibarrier");
  for (int check = 0, reached = 0;; ++check) {
    check_mpi(MPI_Test(&request, &reached, MPI_STATUS_IGNORE), "MPI_Test");
    if (reached) return;
    if (check >= kChecksWithoutSleep) std::this_thread::sleep_for(kSleep);
  }
}

void reduce_in(MPI_Comm communicator, const Tensor& values) {
  wait_for_processes(communicator);
  const MPI_Datatype type = to_mpi_type(values.dtype());
  const MPI_Op op = values.dtype() == DType::bfloat16 ? get_mpi_state().add_bfloat16 : MPI_SUM;
  for_each_part(values, [&](void* data, int count) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, data, count, type, op, communicator), "MPI_Allreduce");
  });
}

void initialize() {
  // Makes Open MPI yield the processor while it waits, because other threads of this process may need it.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &get_mpi_state().shutdown), "MPI_Comm_dup");
  check_mpi(MPI_Type_contiguous(2, MPI_BYTE, &get_mpi_state().bfloat16), "MPI_Type_contiguous");
  check_mpi(MPI_Type_commit(&get_mpi_state().bfloat16), "MPI_Type_commit");
  check_mpi(MPI_Op_create(add_bfloat16, 1, &get_mpi_state().add_bfloat16), "MPI_Op_create");
}

}  // namespace

std::unique_ptr<MpiCommunicator> MpiCommunicator::start(const LaunchInfo& launch) {
#ifdef OPEN_MPI
  require_pmix(launch, get_environment_variable);
#endif
  auto worker = std::make_unique<Worker>();
  int rank = 0, size = 1;
  worker->enqueue([&] {
    initialize();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  });
  worker->wait();
  check_mpi_world(launch, rank, size);
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(rank, size, std::move(worker)));
}

MpiCommunicator::MpiCommunicator(int rank, int size, std::unique_ptr<Worker> worker)
    : Communicator(rank, size), worker_(std::move(worker)) {}

MpiCommunicator::~MpiCommunicator() {
  worker_->enqueue([] { MPI_Finalize(); });
}

// Runs `job` on the worker thread, and waits until `job` and all earlier jobs are complete.
void MpiCommunicator::run(Worker::Job job) {
  worker_->enqueue(std::move(job));
  worker_->wait(wait_check_);
}

void MpiCommunicator::start_all_reduce(const Tensor& values) {
  check(values.is_contiguous(), "Communicator", "the tensor is not contiguous");
  to_mpi_type(values.dtype());  // throws for unsupported dtypes
  const Tensor on_host = values.alias().to(kCpu);
  if (!values.device().is_cpu()) staged_reductions_.emplace_back(values, on_host);
  worker_->enqueue([on_host] { reduce_in(MPI_COMM_WORLD, on_host); });
}

void MpiCommunicator::wait() {
  worker_->wait(wait_check_);
  for (const auto& [run_on_device, on_host] : std::exchange(staged_reductions_, {}))
    run_on_device.copy_from(on_host);
}

void MpiCommunicator::broadcast(const Tensor& values) {
  check(values.is_contiguous(), "Communicator", "the tensor is not contiguous");
  const Tensor on_host = values.alias().to(kCpu);
  run([on_host] {
    for_each_part(on_host, [&](void* data, int count) {
      const auto bytes = static_cast<int64_t>(count) * size_of(on_host.dtype());
      for (int64_t first = 0; first < bytes; first += kMaxCount)
        check_mpi(
            MPI_Bcast(static_cast<uint8_t*>(data) + first,
                      static_cast<int>(std::min(kMaxCount, bytes - first)), MPI_BYTE, 0, MPI_COMM_WORLD),
            "MPI_Bcast");
    });
  });
  if (!values.device().is_cpu()) values.copy_from(on_host);
}

void MpiCommunicator::barrier() {
  run([] { wait_for_processes(MPI_COMM_WORLD); });
}

bool MpiCommunicator::all_reduce_with_timeout(const Tensor& values, double timeout_seconds,
                                              std::string& error_message) {
  struct Timeout {};
  const auto start = std::chrono::steady_clock::now();
  worker_->enqueue([values] { reduce_in(get_mpi_state().shutdown, values); });
  try {
    worker_->wait([&] {
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > timeout_seconds)
        throw Timeout{};
      if (wait_check_) wait_check_();
    });
    return true;
  } catch (const Timeout&) {
  } catch (const std::runtime_error& error) {
    error_message = error.what();
  }
  return false;
}

void MpiCommunicator::abort(int exit_status) {
  MPI_Abort(MPI_COMM_WORLD, exit_status);
  _exit(exit_status);
}

}  // namespace tapeformer
