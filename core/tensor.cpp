#include "core/tensor.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/allocator.h"
#include "core/cuda/backend.h"
#include "core/threads.h"

namespace tapeformer {
namespace {

constexpr int64_t kCopyGrain = 1 << 16;

// Row r of the matrix that a tensor becomes when all dimensions but the last are rows: its offset in
// elements.
int64_t row_offset(const Shape& shape, const Shape& strides, int64_t row) {
  int64_t offset = 0;
  for (int dim = shape.rank() - 2; dim >= 0; --dim) {
    offset += (row % shape[dim]) * strides[dim];
    row /= shape[dim];
  }
  return offset;
}

// Calls f(target row, source row, columns, target stride, source stride) for every row of two tensors of one
// shape.
template <class To, class From, class F>
void for_each_row(const Tensor& target, const Tensor& source, F&& f) {
  const Shape& shape = target.shape();
  const int64_t columns = shape.rank() ? shape[-1] : 1;
  const int64_t rows = columns ? target.numel() / columns : 0;
  const int64_t to_stride = shape.rank() ? target.strides()[-1] : 1;
  const int64_t from_stride = shape.rank() ? source.strides()[-1] : 1;
  To* const to = target.data<To>();
  const From* const from = source.data<From>();
  parallel_for(rows, std::max<int64_t>(kCopyGrain / std::max<int64_t>(columns, 1), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row)
                   f(to + row_offset(shape, target.strides(), row),
                     from + row_offset(shape, source.strides(), row), columns, to_stride, from_stride);
               });
}

template <class To, class From>
void copy_row(To* to, const From* from, int64_t columns, int64_t to_stride, int64_t from_stride) {
  if (std::is_same_v<To, From> && to_stride == 1 && from_stride == 1) {
    std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(columns) * sizeof(To));
  } else {
    for (int64_t i = 0; i < columns; ++i) to[i * to_stride] = convert_element<To>(from[i * from_stride]);
  }
}

template <class T>
void add_row(T* to, const T* from, Compute<T> scale, int64_t columns, int64_t to_stride,
             int64_t from_stride) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    for (int64_t i = 0; i < columns; ++i)
      to[i * to_stride] =
          BFloat16(static_cast<float>(to[i * to_stride]) + scale * static_cast<float>(from[i * from_stride]));
  } else if (to_stride == 1 && from_stride == 1) {
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] += scale * from[i];
  } else {
    for (int64_t i = 0; i < columns; ++i) to[i * to_stride] += scale * from[i * from_stride];
  }
}

// Two contiguous tensors of one shape as rows of bounded length, so that rows can be shared out among
// threads.
Tensor as_rows(const Tensor& tensor) {
  constexpr int64_t kRow = 4096;
  const int64_t numel = tensor.numel();
  const Shape shape = numel % kRow == 0 ? Shape{numel / kRow, kRow} : Shape{numel};
  return tensor.alias(shape, shape.contiguous_strides());
}

}  // namespace

Storage::Storage(int64_t bytes, Device device)
    : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() {
  allocator(device_).release(data_, bytes_);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  const int64_t numel = shape.numel();
  auto body = std::make_unique<Body>();
  body->storage = Shared<Storage>(new Storage(numel * size_of(dtype), device));
  body->dtype = dtype;
  body->shape = shape;
  body->strides = shape.contiguous_strides();
  body->numel = numel;
  return Tensor(body.release());
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  on_device(
      device, "zeros",
      [&] {
        auto* const bytes = static_cast<char*>(tensor.raw());
        parallel_for(tensor.bytes(), kCopyGrain * 4, [&](int64_t begin, int64_t end) {
          std::memset(bytes + begin, 0, static_cast<size_t>(end - begin));
        });
      },
      [&] { cuda::fill_zero(tensor.raw(), tensor.bytes()); });
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
  check_derived("view");
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
  check_derived("clone");
  return copy_as(dtype(), device());
}

Tensor Tensor::to(DType dtype) const {
  check_derived("to");
  return copy_as(dtype, device());
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  check_derived("to");
  return copy_as(dtype(), device);
}

// Between machines go bytes: the source is first laid out as the target is, on its own machine.
void Tensor::copy_from(const Tensor& source) const {
  check(shape() == source.shape(), "copy_from", "shape ", source.shape(), " into ", shape());
  if (numel() == 0) return;
  if (device() != source.device()) {
    if constexpr (kHasCuda) {
      if (!is_contiguous()) return copy_from(source.copy_as(source.dtype(), device()));
      const bool same = source.is_contiguous() && source.dtype() == dtype();
      const Tensor plain = same ? source : source.copy_as(dtype(), source.device());
      cuda::copy_bytes(raw(), device(), plain.raw(), plain.device(), bytes());
    }
    return;
  }
  const bool plain = is_contiguous() && source.is_contiguous();
  const Tensor to = plain ? as_rows(*this) : *this;
  const Tensor from = plain ? as_rows(source) : source;
  on_device(
      device(), "copy_from",
      [&] {
        visit_any(to.dtype(), [&](auto to_tag) {
          visit_any(from.dtype(), [&](auto from_tag) {
            using To = decltype(to_tag);
            using From = decltype(from_tag);
            for_each_row<To, From>(to, from, copy_row<To, From>);
          });
        });
      },
      [&] {
        if (plain && dtype() == source.dtype())
          cuda::copy_bytes(raw(), device(), source.raw(), device(), bytes());
        else
          cuda::copy_elements(to, from);
      });
}

void Tensor::add_from(const Tensor& source, double scale) const {
  check(shape() == source.shape() && dtype() == source.dtype(), "add_from", "shape ", source.shape(), " ",
        name_of(source.dtype()), " into ", shape(), " ", name_of(dtype()));
  check(device() == source.device(), "add_from", source.device().to_string(), " into ", device().to_string());
  if (numel() == 0) return;
  const bool plain = is_contiguous() && source.is_contiguous();
  const Tensor to = plain ? as_rows(*this) : *this;
  const Tensor from = plain ? as_rows(source) : source;
  on_device(
      device(), "add_from",
      [&] {
        visit_stored("add_from", dtype(), [&](auto tag) {
          using T = decltype(tag);
          for_each_row<T, T>(to, from,
                             [&](T* row, const T* added, int64_t columns, int64_t step, int64_t by) {
                               add_row(row, added, static_cast<Compute<T>>(scale), columns, step, by);
                             });
        });
      },
      [&] { cuda::add_elements(to, from, scale); });
}

void Tensor::fill(double value) const {
  on_device(
      device(), "fill",
      [&] {
        const Tensor one = Tensor::from<double>({value}, {1});
        copy_from(one.view(shape(), Shape::filled(rank(), 0)));
      },
      [&] { cuda::fill_elements(*this, value); });
}

void Tensor::undefined() {
  throw ShapeError("an undefined tensor has no shape, dtype, device or data");
}

void undefined_argument(const char* op, const char* name) {
  throw ShapeError(concat_text(op, ": ", name, " is undefined"));
}

void Tensor::wrong_dtype(DType asked) const {
  throw ShapeError(
      concat_text("tensor of shape ", shape(), " holds ", name_of(dtype()), ", not ", name_of(asked)));
}

void Tensor::wrong_device() const {
  throw ShapeError(concat_text("tensor of shape ", shape(), " is on ", device().to_string(),
                               ", where code of ", current_device.to_string(),
                               " cannot reach it; bring it over with to(device)"));
}

}  // namespace tapeformer
