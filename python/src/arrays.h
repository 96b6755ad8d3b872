// Conversion between NumPy arrays and tensors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "core/tensor.h"
#include "train/metrics.h"
#include "train/report.h"

namespace tapeformer::python {

namespace nb = nanobind;

using IntegerArray = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;
using FloatArray = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// Return copies.
Tensor copy_array(const IntegerArray& array);
Tensor copy_array(const FloatArray& array);

// Returns a NumPy array over the memory of the tensor, which it keeps alive. bfloat16 becomes float32.
nb::object to_numpy(const Tensor& tensor);

nb::dict to_dict(const MetricRecord& record);
nb::dict to_dict(const Report& report);

void bind_runs(nb::module_& m);
void bind_training(nb::module_& m);

}  // namespace tapeformer::python
