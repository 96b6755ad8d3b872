// The extension module tapeformer._core.
#include <nanobind/nanobind.h>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "python/src/arrays.h"
#include "python/src/tensor_access.h"
#include "train/cli/data_advice.h"
#include "train/config/option_names.h"

namespace tapeformer::python {
namespace {

void bind_errors(nb::module_& m) {
  nb::exception<OutOfMemoryError>(m, "OutOfMemoryError", PyExc_MemoryError);
  nb::exception<ShapeError>(m, "ShapeError", PyExc_ValueError);
  nb::exception<ConfigError>(m, "ConfigError", PyExc_ValueError);
  const nb::object data_error = nb::exception<DataError>(m, "DataError", PyExc_RuntimeError);
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void* type) {
        try {
          std::rethrow_exception(error);
        } catch (const MissingDatasetError& missing) {
          PyErr_SetString(static_cast<PyObject*>(type), format_missing_dataset_error(missing).c_str());
        }
      },
      data_error.ptr());
  nb::exception<DeviceError>(m, "DeviceError", PyExc_RuntimeError);
  nb::exception<DivergenceError>(m, "DivergenceError", PyExc_ArithmeticError);
  nb::exception<CheckpointError>(m, "CheckpointError", PyExc_RuntimeError);
}

}  // namespace
}  // namespace tapeformer::python

NB_MODULE(_core, m) {
  using namespace tapeformer::python;
  nb::set_leak_warnings(false);  // PyTorch and caches of modules keep objects until the interpreter ends
  bind_errors(m);
  tapeformer::use_keys_in_messages();
  tapeformer::set_log_level(tapeformer::LogLevel::warning);
  bind_attention(m);
  bind_layers(m);
  bind_steps(m);
  bind_runs(m);
  bind_training(m);
#ifdef TAPEFORMER_CUDA_EMULATED
  bind_emulated_device(m);
#endif
  m.attr("has_cuda") = tapeformer::kHasCuda;
  m.attr("version") = TAPEFORMER_VERSION;
  m.def("set_log_level",
        [](int level) { tapeformer::set_log_level(static_cast<tapeformer::LogLevel>(level)); });
}
