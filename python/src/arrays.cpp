#include "python/src/arrays.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "autograd/tape.h"

namespace tapeformer::python {
namespace {

template <class T>
Tensor copy_elements(const nb::ndarray<const T, nb::c_contig, nb::device::cpu>& array) {
  check(array.ndim() <= Shape::kMaxRank, "array", "expected at most ", Shape::kMaxRank, " dimensions, not ",
        array.ndim());
  Shape shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.append(static_cast<int64_t>(array.shape(i)));
  const Tensor tensor = Tensor::empty(shape, kDTypeOf<T>);
  std::copy(array.data(), array.data() + array.size(), tensor.data<T>());
  return tensor;
}

template <class T>
nb::object wrap(const Tensor& tensor) {
  auto owner = std::make_unique<Tensor>(tensor);
  T* const data = owner->data<T>();
  size_t shape[Shape::kMaxRank] = {};
  for (int i = 0; i < tensor.rank(); ++i) shape[i] = static_cast<size_t>(tensor.size(i));
  const nb::capsule capsule(owner.release(), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(data, static_cast<size_t>(tensor.rank()), shape, capsule));
}

template <class Variant>
nb::object to_object(const Variant& value) {
  return std::visit([](const auto& x) { return nb::cast(x); }, value);
}

nb::object to_object(const Report::Value& value) {
  return std::visit(
      []<class T>(const T& x) -> nb::object {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<T, std::vector<Report>>) {
          nb::list list;
          for (const Report& row : x) list.append(to_dict(row));
          return list;
        } else {
          return nb::cast(x);
        }
      },
      value);
}

}  // namespace

Tensor copy_array(const IntegerArray& array) {
  return copy_elements(array);
}
Tensor copy_array(const FloatArray& array) {
  return copy_elements(array);
}

nb::object to_numpy(const Tensor& tensor) {
  const Tensor plain = tensor.dtype() == DType::bfloat16 ? detach(tensor).to(DType::float32)
                       : tensor.is_contiguous()          ? detach(tensor)
                                                         : detach(tensor).clone();
  switch (plain.dtype()) {
    case DType::float32:
      return wrap<float>(plain);
    case DType::float64:
      return wrap<double>(plain);
    case DType::int32:
      return wrap<int32_t>(plain);
    case DType::int64:
      return wrap<int64_t>(plain);
    default:
      return wrap<uint8_t>(plain);
  }
}

nb::dict to_dict(const MetricRecord& record) {
  nb::dict result;
  for (const auto& [name, value] : record) result[name.c_str()] = to_object(value);
  return result;
}

nb::dict to_dict(const Report& report) {
  nb::dict result;
  for (const auto& [name, value] : report.fields()) result[name.c_str()] = to_object(value);
  return result;
}

}  // namespace tapeformer::python
