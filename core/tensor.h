// Tensor is a handle to an array with a shape, strides (in elements), an offset, a dtype and a device. Copies
// of a Tensor refer to the same array. A view is another array whose elements are in the same Storage.
//
// The methods in this file are not recorded on a tape. The differentiable functions are in ops/. A Tensor may
// be copied and destroyed on any thread. Access to the elements is not synchronised.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/device.h"

namespace tapeformer {

// A reference-counting pointer. T must have a member `reference_count` of type std::atomic<int>.
template <class T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  explicit IntrusivePtr(T* object) : object_(object) { acquire(); }
  IntrusivePtr(const IntrusivePtr& other) : object_(other.object_) { acquire(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() {
    if (object_ && object_->reference_count.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  void acquire() {
    if (object_) object_->reference_count.fetch_add(1, std::memory_order_relaxed);
  }
  T* object_ = nullptr;
};

// A block of memory. The first constructor takes it from the allocator of the device, and the destructor
// releases it. The second constructor refers to a block of the caller.
class Storage {
 public:
  Storage(int64_t bytes, Device device);
  Storage(void* data, int64_t bytes, Device device)
      : data_(data), bytes_(bytes), device_(device), is_borrowed_(true) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::atomic<int> reference_count{0};
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void* data_;
  int64_t bytes_;
  Device device_;
  bool is_borrowed_ = false;
};

// Data that another module attaches to a tensor. For example, autograd attaches the gradient of a leaf, or
// the id of a node on the tape. All copies of a tensor share the attachment, and the last copy destroys it.
class TensorAttachment {
 public:
  TensorAttachment() = default;
  TensorAttachment(const TensorAttachment&) = delete;
  TensorAttachment& operator=(const TensorAttachment&) = delete;
  virtual ~TensorAttachment() = default;
  // Tensor::view, Tensor::clone and Tensor::to call this function. The results of these methods have no
  // attachment. An override throws an error if the attachment must not be lost. The override of autograd
  // throws ShapeError if recording is enabled, because the result would have no gradient.
  virtual void check_can_copy(const char* /*method*/) const {}
};

// An n-dimensional array. A default-constructed tensor is undefined: all methods except `defined`, `id` and
// `use_count` throw ShapeError.
class Tensor {
 public:
  Tensor() = default;

  // These functions return new tensors. empty() and empty_like() do not initialise the elements. Each
  // function throws ShapeError if the shape is invalid, and OutOfMemoryError if there is not enough
  // memory.
  static Tensor empty(const Shape& shape, DType dtype = DType::float32, Device device = kCpu);
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32, Device device = kCpu);
  static Tensor empty_like(const Tensor& other) {
    return empty(other.shape(), other.dtype(), other.device());
  }
  static Tensor zeros_like(const Tensor& other) {
    return zeros(other.shape(), other.dtype(), other.device());
  }
  // Returns a tensor over an array of the caller in the memory of `device`. The array must outlive all
  // tensors that share its storage. `data` points to the first element. The bounds are not checked.
  static Tensor borrow(void* data, const Shape& shape, const Shape& strides, DType dtype,
                       Device device = kCpu);
  // Returns a CPU tensor with a copy of the values.
  template <class T>
  static Tensor from_vector(const std::vector<T>& values, const Shape& shape);

  bool defined() const { return static_cast<bool>(body_); }
  const Shape& shape() const { return body().shape; }
  const Shape& strides() const { return body().strides; }
  int64_t size(int dim) const { return body().shape[dim]; }
  int rank() const { return body().shape.rank(); }
  int64_t numel() const { return body().numel; }
  int64_t bytes() const { return numel() * size_of(dtype()); }
  DType dtype() const { return body().dtype; }
  Device device() const { return body().storage->device(); }
  bool is_contiguous() const;

  // Return a pointer to the first element. data<T>() throws ShapeError if T is not the dtype, or if the
  // tensor is not on current_device (core/device.h).
  void* raw_data() const {
    return static_cast<char*>(body().storage->data()) + body_->offset * size_of(dtype());
  }
  template <class T>
  T* data() const {
    if (kDTypeOf<T> != dtype()) [[unlikely]]
      throw_wrong_dtype(kDTypeOf<T>);
    if (device() != current_device) [[unlikely]]
      throw_wrong_device();
    return static_cast<T*>(raw_data());
  }
  // Returns the only element, converted to double. Waits for the device.
  double item() const;
  // Returns all elements in row-major order, converted to double. Waits for the device.
  std::vector<double> to_vector() const;

  // Returns a view of this tensor with another shape and other strides. The view starts `offset` elements
  // after the first element of this tensor. The bounds are not checked.
  //
  // Calls of view(), clone() and to() are not recorded on the tape. view(), clone() and to() throw ShapeError
  // if recording is enabled and the tensor requires a gradient. Call reshape(), contiguous() or cast()
  // (ops/view.h) for a result with a gradient, or alias() for a result without a gradient.
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset = 0) const;
  // Returns a view with another shape. The tensor must be contiguous.
  Tensor view(const Shape& shape) const;
  // Returns a tensor that shares the data and has no attachment.
  Tensor alias() const { return alias(shape(), strides()); }
  // Returns the same view as view(shape, strides, offset), but also accepts tensors that require a gradient.
  Tensor alias(const Shape& shape, const Shape& strides, int64_t offset = 0) const;
  // clone() and to(dtype) return contiguous copies.
  Tensor clone() const;
  Tensor to(DType dtype) const;
  // Returns a copy on `device`, or this tensor if it is already on `device`. A copy to the CPU waits for the
  // device.
  Tensor to(Device device) const;

  // Copies the elements of `source` to this tensor, and converts them to the dtype of this tensor. The
  // tensors may be on different devices. Throws ShapeError if the shapes differ.
  void copy_from(const Tensor& source) const;
  void fill(double value) const;
  // Adds scale * source to this tensor. The two tensors must have the same shape, floating dtype and device.
  void add_scaled(const Tensor& source, double scale = 1) const;

  // Returns a pointer that is equal for all copies of this Tensor object, and different for the results of
  // view(), alias() and clone(). The pointer is null if the tensor is undefined.
  const void* id() const { return body_.get(); }
  long use_count() const { return body_ ? body_->reference_count.load() : 0; }
  bool owns_storage_alone() const { return body().storage->reference_count.load() == 1; }
  bool shares_storage(const Tensor& other) const {
    return body().storage.get() == other.body().storage.get();
  }
  TensorAttachment* attachment() const { return body().attachment.get(); }
  void attach(std::unique_ptr<TensorAttachment> attachment) const {
    body().attachment = std::move(attachment);
  }

 private:
  struct Body {
    std::atomic<int> reference_count{0};
    DType dtype = DType::float32;
    Shape shape;
    Shape strides;
    int64_t offset = 0;
    int64_t numel = 0;
    IntrusivePtr<Storage> storage;
    std::unique_ptr<TensorAttachment> attachment;
  };
  explicit Tensor(Body* body) : body_(body) {}
  static Tensor make(Storage* storage, const Shape& shape, const Shape& strides, DType dtype);
  Body& body() const {
    if (!body_) [[unlikely]]
      throw_undefined();
    return *body_.get();
  }
  void check_can_copy(const char* method) const {
    if (body().attachment) [[unlikely]]
      body_->attachment->check_can_copy(method);
  }
  Tensor copy_as(DType dtype, Device device) const;
  [[noreturn]] static void throw_undefined();
  [[noreturn]] void throw_wrong_dtype(DType asked) const;
  [[noreturn]] void throw_wrong_device() const;

  IntrusivePtr<Body> body_;
};

[[noreturn]] void throw_undefined_argument(const char* op, const char* name);

// Checks that all tensors in the arguments are defined. The arguments after `op` are pairs of a name and a
// tensor. For an undefined tensor, throws ShapeError with the message "OP: NAME is undefined".
template <class... Rest>
void check_defined(const char* op, const char* name, const Tensor& tensor, const Rest&... rest) {
  if (!tensor.defined()) [[unlikely]]
    throw_undefined_argument(op, name);
  if constexpr (sizeof...(rest) > 0) check_defined(op, rest...);
}

template <class T>
Tensor Tensor::from_vector(const std::vector<T>& values, const Shape& shape) {
  check(static_cast<int64_t>(values.size()) == shape.numel(), "Tensor::from_vector", values.size(),
        " values do not fill shape ", shape);
  Tensor tensor = empty(shape, kDTypeOf<T>);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

// Writes the elements in nested brackets, one row per line, then the shape and the dtype. For a tensor with
// more than 1000 elements, dimensions longer than six show only their first and last three indices. Waits for
// the device of the tensor.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tapeformer
