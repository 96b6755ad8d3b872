// Access to the memory of torch tensors without a dependency on the libraries of PyTorch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "core/tensor.h"

namespace tapeformer::python {

namespace nb = nanobind;

// Registers the objects torch.float32, torch.float64, … by which read_tensor() recognises dtypes.
void register_torch_dtypes(nb::dict dtypes);

// Returns a tensor over the memory of the torch tensor x, which must outlive it, or an undefined tensor if x
// is None. Throws nb::type_error if x is no tensor or has another dtype, and ValueError if x is not on the
// CPU. `name` is the name of the argument in error messages.
Tensor read_tensor(nb::handle x, const char* name);
using OptionalObject = std::optional<nb::object>;
inline Tensor read_tensor(const OptionalObject& x, const char* name) {
  return x ? read_tensor(nb::handle(*x), name) : Tensor();
}

// Sets the number of threads of the next op. In a process that was forked, the number is always 1, because
// the threads of the parent do not exist in the child.
void use_threads(int count);

void bind_attention(nb::module_& m);
void bind_steps(nb::module_& m);

}  // namespace tapeformer::python
