// The extension module tapeformer._core.
#include <nanobind/nanobind.h>

#include "core/base/errors.h"
#include "python/src/tensor_access.h"

namespace tapeformer::python {
namespace {

void bind_errors(nb::module_& m) {
  nb::exception<OutOfMemoryError>(m, "OutOfMemoryError", PyExc_MemoryError);
  nb::exception<ShapeError>(m, "ShapeError", PyExc_ValueError);
  nb::exception<ConfigError>(m, "ConfigError", PyExc_ValueError);
  nb::exception<DataError>(m, "DataError", PyExc_RuntimeError);
  nb::exception<DeviceError>(m, "DeviceError", PyExc_RuntimeError);
  nb::exception<DivergenceError>(m, "DivergenceError", PyExc_ArithmeticError);
  nb::exception<CheckpointError>(m, "CheckpointError", PyExc_RuntimeError);
}

}  // namespace
}  // namespace tapeformer::python

NB_MODULE(_core, m) {
  using namespace tapeformer::python;
  bind_errors(m);
  bind_attention(m);
  bind_steps(m);
}
