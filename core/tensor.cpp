#include "core/tensor.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/allocator.h"
#include "core/cuda/transfers.h"
#include "core/tensor_kernels.h"

namespace tapeformer {
namespace {

Tensor flatten(const Tensor& tensor) {
  return tensor.alias({tensor.numel()}, {1});
}

}  // namespace

Storage::Storage(int64_t bytes, Device device)
    : data_(get_device_allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() {
  if (!is_borrowed_) get_device_allocator(device_).release(data_, bytes_);
}

Tensor Tensor::make(Storage* storage, const Shape& shape, const Shape& strides, DType dtype) {
  IntrusivePtr<Storage> owner(storage);
  auto body = std::make_unique<Body>();
  body->storage = std::move(owner);
  body->dtype = dtype;
  body->shape = shape;
  body->strides = strides;
  body->numel = shape.numel();
  return Tensor(body.release());
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  return make(new Storage(shape.numel() * size_of(dtype), device), shape, shape.contiguous_strides(), dtype);
}

Tensor Tensor::borrow(void* data, const Shape& shape, const Shape& strides, DType dtype, Device device) {
  return make(new Storage(data, shape.numel() * size_of(dtype), device), shape, strides, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  run_on_device(device, "zeros",
                [&](auto backend) { fill_zero(backend, tensor.raw_data(), tensor.bytes()); });
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int dim = rank() - 1; dim >= 0; --dim) {
    if (size(dim) != 1 && strides()[dim] != expected) return numel() == 0;
    expected *= size(dim);
  }
  return true;
}

double Tensor::item() const {
  check(numel() == 1, "item", "needs one element, not shape ", shape());
  return to_vector()[0];
}

std::vector<double> Tensor::to_vector() const {
  const Tensor plain = alias().to(kCpu).to(DType::float64);
  return {plain.data<double>(), plain.data<double>() + numel()};
}

Tensor Tensor::alias(const Shape& shape, const Shape& strides, int64_t offset) const {
  const Body& own = this->body();
  auto body = std::make_unique<Body>();
  body->storage = own.storage;
  body->dtype = dtype();
  body->shape = shape;
  body->strides = strides;
  body->offset = own.offset + offset;
  body->numel = shape.numel();
  return Tensor(body.release());
}

Tensor Tensor::view(const Shape& shape, const Shape& strides, int64_t offset) const {
  check_can_copy("view");
  return alias(shape, strides, offset);
}

Tensor Tensor::view(const Shape& shape) const {
  check(shape.numel() == numel(), "view", "shape ", this->shape(), " cannot become ", shape);
  check(is_contiguous(), "view", "the tensor of shape ", this->shape(), " is not contiguous");
  return view(shape, shape.contiguous_strides());
}

Tensor Tensor::copy_as(DType dtype, Device device) const {
  Tensor out = empty(shape(), dtype, device);
  out.copy_from(*this);
  return out;
}

Tensor Tensor::clone() const {
  check_can_copy("clone");
  return copy_as(dtype(), device());
}

Tensor Tensor::to(DType dtype) const {
  check_can_copy("to");
  return copy_as(dtype, device());
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  check_can_copy("to");
  return copy_as(dtype(), device);
}

void Tensor::copy_from(const Tensor& source) const {
  check(shape() == source.shape(), "copy_from", "the source has shape ", source.shape(), ", the target ",
        shape());
  if (numel() == 0) return;
  if (device() != source.device()) {
    if constexpr (kHasCuda) {
      // copy_bytes() needs contiguous tensors of the same dtype. If the target is not contiguous, the source
      // is first copied to a contiguous tensor on the device of the target. If the source is not contiguous
      // or has another dtype, the source is first converted to a contiguous tensor on its own device.
      if (!is_contiguous()) return copy_from(source.copy_as(source.dtype(), device()));
      const bool same = source.is_contiguous() && source.dtype() == dtype();
      const Tensor plain = same ? source : source.copy_as(dtype(), source.device());
      cuda::copy_bytes(raw_data(), device(), plain.raw_data(), plain.device(), bytes());
    }
    return;
  }
  const bool plain = is_contiguous() && source.is_contiguous();
  const Tensor to = plain ? flatten(*this) : *this;
  const Tensor from = plain ? flatten(source) : source;
  run_on_device(device(), "copy_from", [&](auto backend) { copy_elements(backend, to, from); });
}

void Tensor::add_scaled(const Tensor& source, double scale) const {
  check(shape() == source.shape() && dtype() == source.dtype(), "add_scaled", "the source is ",
        name_of(source.dtype()), " ", source.shape(), ", the target ", name_of(dtype()), " ", shape());
  check(device() == source.device(), "add_scaled", "the source is on ", source.device().to_string(),
        ", the target on ", device().to_string());
  if (numel() == 0) return;
  const bool plain = is_contiguous() && source.is_contiguous();
  const Tensor to = plain ? flatten(*this) : *this;
  const Tensor from = plain ? flatten(source) : source;
  run_on_device(device(), "add_scaled", [&](auto backend) { add_elements(backend, to, from, scale); });
}

void Tensor::fill(double value) const {
  run_on_device(device(), "fill", [&](auto backend) { fill_elements(backend, *this, value); });
}

void Tensor::throw_undefined() {
  throw ShapeError("an undefined tensor has no shape, dtype, device or data");
}

void throw_undefined_argument(const char* op, const char* name) {
  throw ShapeError(concat_text(op, ": ", name, " is undefined"));
}

void Tensor::throw_wrong_dtype(DType asked) const {
  throw ShapeError(
      concat_text("tensor of shape ", shape(), " holds ", name_of(dtype()), ", not ", name_of(asked)));
}

void Tensor::throw_wrong_device() const {
  throw ShapeError(concat_text("tensor of shape ", shape(), " is on ", device().to_string(),
                               ", but the op runs on ", current_device.to_string(),
                               "; copy it with to(device)"));
}

}  // namespace tapeformer
