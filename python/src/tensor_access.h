// Access to the memory of torch tensors without a dependency on the libraries of PyTorch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "core/base/interruption.h"
#include "core/tensor.h"
#include "python/src/gil.h"

namespace tapeformer::python {

namespace nb = nanobind;

// Registers the objects torch.float32, torch.float64, … by which read_tensor() recognises dtypes, and a
// function that returns the address of the current CUDA stream of PyTorch for the index of a device.
void register_torch(nb::dict dtypes, nb::callable get_stream);

// Returns a tensor over the memory of the torch tensor x, which must outlive it, or an undefined tensor if x
// is None. Throws nb::type_error if x is no tensor or has another dtype, and ValueError if x is neither on
// the CPU nor on a CUDA device of this build, or if its elements are not in its storage. `name` is the name
// of the argument in error messages. read_new_tensor() is for tensors that the caller has just allocated, and
// does not check the storage.
Tensor read_tensor(nb::handle x, const char* name);
Tensor read_new_tensor(nb::handle x, const char* name);
using OptionalObject = std::optional<nb::object>;
inline Tensor read_tensor(const OptionalObject& x, const char* name) {
  return x ? read_tensor(nb::handle(*x), name) : Tensor();
}

// The name of an argument in error messages, and its tensor, which can be undefined.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};
// Throws nb::type_error unless q has the dtype float32, float64 or bfloat16, the defined tensors of `inputs`
// have the dtype of q, and the defined tensors of `gates` have the compute dtype of q, which is float32 for
// bfloat16.
void check_dtypes(const Tensor& q, std::initializer_list<NamedTensor> inputs,
                  std::initializer_list<NamedTensor> gates = {});

template <class Argument>
auto make_annotation() {
  if constexpr (std::is_same_v<Argument, const OptionalObject&>)
    return nb::arg().none();
  else
    return nb::arg();
}
template <class Function, class... Arguments>
void add_function(nb::module_& m, const char* name, Function function, std::function<void(Arguments...)>*) {
  m.def(name, function, make_annotation<Arguments>()...);
}
// Adds a function to the module. Its arguments of type OptionalObject can be None, which nanobind 2 otherwise
// refuses.
template <class Function>
void add_function(nb::module_& m, const char* name, Function function) {
  add_function(m, name, function, static_cast<decltype(std::function(function))*>(nullptr));
}

// While an object exists, the GIL is released, and only its Python thread computes, because the number of
// threads belongs to the process. Ops run with `count` threads of OpenMP, which PyTorch uses, too, or with
// the current number of own threads if it is 0. In a process that was forked, the number is always 1, because
// the threads of the parent do not exist in the child. Models throw the exception of a signal of Python, such
// as KeyboardInterrupt. If `input` is on a CUDA device, the ops run after the work in the current stream of
// PyTorch for the device, and later work in this stream after them.
class ComputeScope {
 public:
  explicit ComputeScope(int count = 0, const Tensor& input = {});
  ~ComputeScope();
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  Device device_;
  void* torch_stream_;  // null for the CPU, and for the default stream of a CUDA device
  GilRelease release_;  // before the lock, so that the holder of the lock can take the GIL
  std::unique_lock<std::recursive_mutex> lock_;
  InterruptionScope interruption_;
  int openmp_threads_;  // of PyTorch, which tapeformer changes, too
  bool used_openmp_;
  std::shared_ptr<void> stream_order_;  // a cuda::ForeignStreamScope, which builds without CUDA lack
};

// Throws the exception of a pending signal.
void throw_pending_signal();

// Functions for the tests, in builds that emulate CUDA (emulated_device.cpp). is_emulated_memory() returns
// whether `data` is in the memory of the emulated device.
bool is_emulated_memory(const void* data);
void bind_emulated_device(nb::module_& m);

void bind_attention(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_steps(nb::module_& m);

}  // namespace tapeformer::python
