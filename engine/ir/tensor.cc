#include "engine/ir/tensor.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/huge_pages.h"

namespace braid {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kAddressSpaceBytes = std::size_t{1} << 47;  // what a process can map at all

std::size_t string_header_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) + 1) * sizeof(std::int64_t);
}

std::size_t fixed_bytes(DType dtype, const Shape& shape) {
  if (!shape.is_static()) throw Internal("a tensor needs a static shape, got " + shape.to_string());
  const std::size_t element = dtype_size(dtype);
  if (element == 0) throw Internal("a tensor of " + std::string(dtype_name(dtype)) + " has no fixed size");
  const auto count = static_cast<std::size_t>(shape.elements());
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element, &bytes)) {
    throw InvalidArgument("a tensor of shape " + shape.to_string() + " does not fit into memory");
  }
  return bytes;
}

template <class T>
std::vector<std::int64_t> to_int64s(const Tensor& tensor) {
  const auto values = tensor.data<T>();
  return {values.begin(), values.end()};
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_aligned(std::size_t bytes) {
  // At least one block, so that every tensor has an address.
  const std::size_t blocks = bytes / kAlignment + 1;
  void* memory = bytes > kAddressSpaceBytes ? nullptr
                 : bytes < kLargeBlockBytes ? std::aligned_alloc(kAlignment, blocks * kAlignment)
                                            : allocate_huge_pages(bytes);
  if (!memory) throw OutOfMemory("cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  return {static_cast<std::byte*>(memory), [](std::byte* block) { std::free(block); }};
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      bytes_(fixed_bytes(dtype_, shape_)),
      memory_(allocate_aligned(bytes_)) {}

Tensor::Tensor(DType dtype, Shape shape, std::shared_ptr<std::byte[]> memory, Domain domain)
    : dtype_(dtype), domain_(domain), shape_(std::move(shape)), memory_(std::move(memory)) {
  if (dtype_ == DType::String) {
    const std::int64_t count = shape_.elements();
    const auto* offsets = reinterpret_cast<const std::int64_t*>(memory_.get());
    bytes_ = string_header_bytes(count) + static_cast<std::size_t>(offsets[count]);
  } else {
    bytes_ = fixed_bytes(dtype_, shape_);
  }
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  Tensor tensor(dtype, std::move(shape));
  std::memset(tensor.raw(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::strings(Shape shape, std::span<const std::string> values) {
  if (shape.elements() != static_cast<std::int64_t>(values.size())) {
    throw Internal("a string tensor of shape " + shape.to_string() + " got " + std::to_string(values.size()) +
                   " values");
  }
  const std::size_t header = string_header_bytes(shape.elements());
  std::size_t total = header;
  for (const std::string& value : values) total += value.size();
  auto memory = allocate_aligned(total);
  auto* offsets = reinterpret_cast<std::int64_t*>(memory.get());
  auto* text = memory.get() + header;
  offsets[0] = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(text + offsets[i], values[i].data(), values[i].size());
    offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(values[i].size());
  }
  return Tensor(DType::String, std::move(shape), std::move(memory));
}

std::string_view Tensor::string_at(std::int64_t index) const {
  const auto* offsets = reinterpret_cast<const std::int64_t*>(raw());
  const auto* text = reinterpret_cast<const char*>(raw()) + string_header_bytes(elements());
  return {text + offsets[index], static_cast<std::size_t>(offsets[index + 1] - offsets[index])};
}

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor copy = *this;
  copy.memory_ = allocate_aligned(bytes_);
  std::memcpy(copy.raw(), raw(), bytes_);
  return copy;
}

Tensor Tensor::reshaped(Shape shape) const {
  if (!shape.is_static() || shape.elements() != elements()) {
    throw Internal("a tensor of shape " + shape_.to_string() + " cannot take shape " + shape.to_string());
  }
  Tensor view = *this;
  view.shape_ = std::move(shape);
  return view;
}

std::vector<std::int64_t> tensor_to_int64s(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::Int32:
      return to_int64s<std::int32_t>(tensor);
    case DType::Int64:
      return to_int64s<std::int64_t>(tensor);
    case DType::Int16:
      return to_int64s<std::int16_t>(tensor);
    case DType::Int8:
      return to_int64s<std::int8_t>(tensor);
    case DType::UInt8:
      return to_int64s<std::uint8_t>(tensor);
    case DType::UInt16:
      return to_int64s<std::uint16_t>(tensor);
    case DType::UInt32:
      return to_int64s<std::uint32_t>(tensor);
    case DType::UInt64:
      return to_int64s<std::uint64_t>(tensor);
    case DType::Float32:
      return to_int64s<float>(tensor);
    case DType::Float64:
      return to_int64s<double>(tensor);
    default:
      throw InvalidArgument("expected a tensor of numbers, got " + std::string(dtype_name(tensor.dtype())));
  }
}

}  // namespace braid
