#include "python/src/tensor_access.h"

#include <omp.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <string>

#include "core/cuda/transfers.h"
#include "core/threads/openmp_loops.h"
#include "core/threads/threads.h"

namespace tapeformer::python {
namespace {

struct TorchDType {
  PyObject* object = nullptr;
  DType dtype = DType::float32;
};

constexpr std::array<std::pair<const char*, DType>, 5> kDTypes{{{"float32", DType::float32},
                                                                {"float64", DType::float64},
                                                                {"bfloat16", DType::bfloat16},
                                                                {"int64", DType::int64},
                                                                {"int32", DType::int32}}};
std::array<TorchDType, kDTypes.size()> torch_dtypes;
PyObject* get_torch_stream = nullptr;

std::atomic<bool> is_forked = false;

std::recursive_mutex& get_compute_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

// The names of the attributes of a torch tensor, as interned strings.
struct AttributeNames {
  PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* const stride = PyUnicode_InternFromString("stride");
  PyObject* const shape = PyUnicode_InternFromString("shape");
  PyObject* const dtype = PyUnicode_InternFromString("dtype");
  PyObject* const is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* const is_cuda = PyUnicode_InternFromString("is_cuda");
  PyObject* const get_device = PyUnicode_InternFromString("get_device");
  PyObject* const untyped_storage = PyUnicode_InternFromString("untyped_storage");
  PyObject* const nbytes = PyUnicode_InternFromString("nbytes");
  PyObject* const storage_offset = PyUnicode_InternFromString("storage_offset");
};

const AttributeNames& names() {
  static const auto* const result = new AttributeNames;
  return *result;
}

nb::object get_attribute(nb::handle x, PyObject* name) {
  PyObject* const value = PyObject_GetAttr(x.ptr(), name);
  if (!value) throw nb::python_error();
  return nb::steal(value);
}

nb::object call_method(nb::handle x, PyObject* name) {
  PyObject* const value = PyObject_CallMethodObjArgs(x.ptr(), name, nullptr);
  if (!value) throw nb::python_error();
  return nb::steal(value);
}

DType read_dtype(nb::handle x, const char* name) {
  const nb::object dtype = get_attribute(x, names().dtype);
  for (const TorchDType& known : torch_dtypes)
    if (known.object == dtype.ptr()) return known.dtype;
  const std::string message = std::string(name) + " is " + nb::str(dtype).c_str() +
                              "; supported are torch.float32, torch.float64 and torch.bfloat16, and integers "
                              "where the function says so";
  throw nb::type_error(message.c_str());
}

// Calls a method that sparse tensors do not have.
nb::object call_dense_method(nb::handle x, PyObject* method, const char* name) {
  PyObject* const value = PyObject_CallMethodObjArgs(x.ptr(), method, nullptr);
  if (value) return nb::steal(value);
  const nb::python_error error;
  const std::string layout = nb::str(nb::getattr(x, "layout")).c_str();
  if (layout == "torch.strided") throw error;
  throw nb::type_error(concat_text(name, " is ", layout, ", expected a dense tensor").c_str());
}

Shape read_sizes(const nb::object& tuple, const char* name) {
  const Py_ssize_t rank = PyTuple_Check(tuple.ptr()) ? PyTuple_Size(tuple.ptr()) : -1;
  check(rank >= 0 && rank <= Shape::kMaxRank, name, "expected at most ", Shape::kMaxRank, " dimensions, not ",
        rank);
  Shape sizes;
  for (Py_ssize_t i = 0; i < rank; ++i) {
    const long long size = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
    if (size == -1 && PyErr_Occurred()) throw nb::python_error();
    sizes.append(size);
  }
  return sizes;
}

int64_t call_integer(nb::handle x, PyObject* name) {
  const long long value = PyLong_AsLongLong(call_method(x, name).ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

void check_dtype(const NamedTensor& x, DType expected, const char* reason) {
  if (!x.tensor.defined() || x.tensor.dtype() == expected) return;
  throw nb::type_error(concat_text(x.name, " is torch.", name_of(x.tensor.dtype()), ", expected torch.",
                                   name_of(expected), reason)
                           .c_str());
}

// Returns the device of a tensor x that is not on the CPU.
Device read_cuda_device(nb::handle x, const char* name) {
  const std::string place = nb::str(nb::getattr(x, "device")).c_str();
  check(get_attribute(x, names().is_cuda).ptr() == Py_True, name,
        "expected a tensor on the CPU or on a CUDA device, not on ", place);
  check(kHasCuda, name, "the tensor is on ", place,
        ", and this build of tapeformer has no CUDA backend; build it with -DTAPEFORMER_CUDA=ON, or move the "
        "tensors to the CPU");
  return {DeviceType::cuda, static_cast<int>(call_integer(x, names().get_device))};
}

void check_device_memory([[maybe_unused]] const void* data, [[maybe_unused]] const char* name) {
#ifdef TAPEFORMER_CUDA_EMULATED
  check(
      is_emulated_memory(data), name,
      "the tensor is on a CUDA device, and this build of tapeformer only emulates CUDA for its tests; build "
      "it with -DTAPEFORMER_CUDA=ON, or move the tensors to the CPU");
#endif
}

// Returns the current stream of PyTorch for `device`. Null is the default stream.
void* read_torch_stream(Device device) {
  if (device.is_cpu()) return nullptr;
  const nb::object stream = nb::handle(get_torch_stream)(device.index);
  void* const address = PyLong_AsVoidPtr(stream.ptr());
  if (!address && PyErr_Occurred()) throw nb::python_error();
  return address;
}

// Throws ShapeError if elements are not in the storage. Storages shrink by resize_().
void check_bounds(nb::handle x, const Tensor& tensor, const char* name) {
  if (tensor.numel() == 0) return;
  int64_t end = call_integer(x, names().storage_offset) + 1;
  for (int i = 0; i < tensor.rank(); ++i) end += (tensor.size(i) - 1) * tensor.strides()[i];
  end *= size_of(tensor.dtype());
  const int64_t bytes = call_integer(call_method(x, names().untyped_storage), names().nbytes);
  check(end <= bytes, name, "the storage has ", bytes, " bytes, and the tensor needs ", end);
}

// Calls throw_pending_signal() if the last call was some time ago, because it waits for the GIL.
void throw_pending_signal_sometimes() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kInterval = std::chrono::milliseconds(50);
  thread_local Clock::time_point last;
  const auto now = Clock::now();
  if (now - last < kInterval) return;
  last = now;
  throw_pending_signal();
}

}  // namespace

void register_torch(nb::dict dtypes, nb::callable get_stream) {
  get_torch_stream = get_stream.release().ptr();
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    nb::object object = dtypes[kDTypes[i].first];
    torch_dtypes[i] = {object.release().ptr(), kDTypes[i].second};
  }
}

Tensor read_tensor(nb::handle x, const char* name) {
  Tensor tensor = read_new_tensor(x, name);
  if (tensor.defined()) check_bounds(x, tensor, name);
  return tensor;
}

Tensor read_new_tensor(nb::handle x, const char* name) {
  if (x.is_none()) return {};
  PyObject* const is_cpu = PyObject_GetAttr(x.ptr(), names().is_cpu);
  if (!is_cpu) {
    PyErr_Clear();
    const std::string message =
        std::string(name) + " must be a torch.Tensor, not " + nb::str(x.type()).c_str();
    throw nb::type_error(message.c_str());
  }
  const bool is_on_cpu = nb::steal(is_cpu).ptr() == Py_True;
  const DType dtype = read_dtype(x, name);
  const Device device = is_on_cpu ? kCpu : read_cuda_device(x, name);
  const Shape shape = read_sizes(get_attribute(x, names().shape), name);
  const Shape strides = read_sizes(call_dense_method(x, names().stride, name), name);
  void* const data = PyLong_AsVoidPtr(call_dense_method(x, names().data_ptr, name).ptr());
  if (!data && PyErr_Occurred()) throw nb::python_error();
  check(data || shape.numel() == 0, name, "the tensor has no memory");
  if (!is_on_cpu && data) check_device_memory(data, name);
  return Tensor::borrow(data, shape, strides, dtype, device);
}

void check_dtypes(const Tensor& q, std::initializer_list<NamedTensor> inputs,
                  std::initializer_list<NamedTensor> gates) {
  const DType dtype = q.dtype(), compute_dtype = get_compute_dtype(dtype);
  if (dtype != DType::float32 && dtype != DType::float64 && dtype != DType::bfloat16)
    throw nb::type_error(concat_text("q is torch.", name_of(dtype),
                                     "; supported are torch.float32, torch.float64 and torch.bfloat16")
                             .c_str());
  for (const NamedTensor& x : inputs) check_dtype(x, dtype, " like q");
  for (const NamedTensor& x : gates)
    check_dtype(x, compute_dtype, dtype == compute_dtype ? " like q" : " for torch.bfloat16 queries");
}

void throw_pending_signal() {
  const GilAcquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

ComputeScope::ComputeScope(int count, const Tensor& input)
    : device_(input.defined() ? input.device() : kCpu),
      torch_stream_(read_torch_stream(device_)),
      interruption_(throw_pending_signal_sometimes) {
  static const bool registered = [] {
    pthread_atfork(nullptr, nullptr, [] {
      is_forked = true;
      new (&get_compute_mutex()) std::recursive_mutex;  // a thread of the parent may hold it
    });
    return true;
  }();
  static_cast<void>(registered);
  lock_ = std::unique_lock(get_compute_mutex());
  if constexpr (kHasCuda)
    if (!device_.is_cpu()) stream_order_ = std::make_shared<cuda::ForeignStreamScope>(device_, torch_stream_);
  openmp_threads_ = omp_get_max_threads();
  const int allowed = is_forked ? 1 : count;
  if (allowed > 0 && get_thread_count() != allowed) set_thread_count(allowed);
  used_openmp_ = set_loops_use_openmp(count > 0);
}

ComputeScope::~ComputeScope() {
  set_loops_use_openmp(used_openmp_);
  if (omp_get_max_threads() != openmp_threads_) omp_set_num_threads(openmp_threads_);
}

}  // namespace tapeformer::python
