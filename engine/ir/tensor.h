// A dense tensor that owns its memory (shared, 64-byte aligned), row-major. Constants, feeds, fetches and
// variables are Tensors; inside a program kernels see raw pointers. String tensors are int64 offsets[n + 1]
// followed by the bytes, in one block. Memory is the host's unless domain() says otherwise: then only its
// address, type and shape may be used here. Thread rule: copies share the memory; writers must be alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"

namespace braid {

/// Where an op runs and where memory is. Host ops run on threads, device ops are enqueued on the streams of
/// the process's accelerator.
enum class Domain { Host, Device };

/// `bytes` of 64-byte aligned memory, freed with the last reference. Throws: OutOfMemory with the size.
std::shared_ptr<std::byte[]> allocate_aligned(std::size_t bytes);

class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised memory. REQUIRES: shape.is_static(), dtype has a size.
  Tensor(DType dtype, Shape shape);
  /// Memory that is there already. REQUIRES: on the device, dtype has a size.
  Tensor(DType dtype, Shape shape, std::shared_ptr<std::byte[]> memory, Domain domain = Domain::Host);

  template <class T>
  static Tensor scalar(T value);
  template <class T>
  static Tensor from(Shape shape, std::span<const T> values);
  static Tensor zeros(DType dtype, Shape shape);
  static Tensor strings(Shape shape, std::span<const std::string> values);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return bytes_; }
  bool defined() const { return dtype_ != DType::Invalid; }
  Domain domain() const { return domain_; }

  std::byte* raw() { return memory_.get(); }
  const std::byte* raw() const { return memory_.get(); }
  std::span<std::byte> as_bytes() { return {memory_.get(), bytes_}; }
  std::span<const std::byte> as_bytes() const { return {memory_.get(), bytes_}; }
  const std::shared_ptr<std::byte[]>& memory() const { return memory_; }

  /// REQUIRES: dtype() == dtype_of<T>.
  template <class T>
  std::span<T> data() {
    return {reinterpret_cast<T*>(raw()), static_cast<std::size_t>(elements())};
  }
  template <class T>
  std::span<const T> data() const {
    return {reinterpret_cast<const T*>(raw()), static_cast<std::size_t>(elements())};
  }
  std::string_view string_at(std::int64_t index) const;

  /// A deep copy. REQUIRES: domain() == Domain::Host.
  Tensor clone() const;
  /// The same memory under another shape with as many elements.
  Tensor reshaped(Shape shape) const;

 private:
  DType dtype_ = DType::Invalid;
  Domain domain_ = Domain::Host;
  Shape shape_;
  std::size_t bytes_ = 0;
  std::shared_ptr<std::byte[]> memory_;
};

template <class T>
Tensor Tensor::scalar(T value) {
  Tensor t(dtype_of<T>, Shape{});
  t.data<T>()[0] = value;
  return t;
}

template <class T>
Tensor Tensor::from(Shape shape, std::span<const T> values) {
  Tensor t(dtype_of<T>, std::move(shape));
  std::copy(values.begin(), values.end(), t.data<T>().begin());
  return t;
}

/// Floating and integer elements as int64, e.g. the value of a shape input. Throws: InvalidArgument for other
/// types.
std::vector<std::int64_t> tensor_to_int64s(const Tensor& tensor);

}  // namespace braid
