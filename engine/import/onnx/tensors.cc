#include "engine/import/onnx/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/builder.h"

namespace braid::onnx {
namespace {

std::string_view type_name(int type) {
  const auto known = TensorProto::DataType_IsValid(type);
  return known ? std::string_view(TensorProto::DataType_Name(static_cast<TensorProto::DataType>(type)))
               : std::string_view("unknown");
}

std::uint64_t external_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw InvalidArgument("external data: '" + text + "' is not a number");
  return number;
}

/// `count` bytes of the file that external_data names.
std::string external_bytes(const TensorProto& proto, const std::filesystem::path& folder, std::size_t count) {
  std::filesystem::path location;
  std::uint64_t offset = 0, length = count;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = external_number(entry.value());
    if (entry.key() == "length") length = external_number(entry.value());
  }
  const std::filesystem::path inside = location.lexically_normal();
  if (location.empty() || location.is_absolute() || *inside.begin() == "..")
    throw InvalidArgument("external data: location '" + location.string() +
                          "' is not below the model's folder");
  if (length != count)
    throw InvalidArgument(
        fmt::format("external data: {} bytes are stored, its shape needs {}", length, count));
  std::error_code none;  // the size is checked before memory is taken
  const std::uintmax_t size = std::filesystem::file_size(folder / inside, none);
  if (!none && (size < offset || size - offset < count))
    throw InvalidArgument(fmt::format("external data: {} bytes at {} of the {} bytes of {}", count, offset,
                                      size, (folder / inside).string()));
  std::string bytes(none ? 0 : count, '\0');
  std::ifstream file(folder / inside, std::ios::binary);
  if (!file.seekg(static_cast<std::streamoff>(offset)) ||
      !file.read(bytes.data(), static_cast<std::streamsize>(count)))
    throw InvalidArgument(fmt::format("external data: cannot read {} bytes at {} of {}", count, offset,
                                      (folder / inside).string()));
  return bytes;
}

template <class T, class List>
Tensor filled(const List& list, DType dtype, const Shape& shape) {
  if (list.size() != shape.elements())
    throw InvalidArgument(fmt::format("shape {} with {} values", shape.to_string(), list.size()));
  Tensor tensor(dtype, shape);
  T* out = reinterpret_cast<T*>(tensor.raw());
  for (const auto value : list) *out++ = static_cast<T>(value);
  return tensor;
}

Tensor from_list(const TensorProto& proto, DType dtype, const Shape& shape) {
  switch (dtype) {
    case DType::Float32:
      return filled<float>(proto.float_data(), dtype, shape);
    case DType::Float64:
      return filled<double>(proto.double_data(), dtype, shape);
    case DType::Int64:
      return filled<std::int64_t>(proto.int64_data(), dtype, shape);
    case DType::UInt64:
      return filled<std::uint64_t>(proto.uint64_data(), dtype, shape);
    case DType::UInt32:
      return filled<std::uint32_t>(proto.uint64_data(), dtype, shape);
    case DType::Int32:
      return filled<std::int32_t>(proto.int32_data(), dtype, shape);
    case DType::Int16:
    case DType::UInt16:
    case DType::Float16:
    case DType::BFloat16:
      return filled<std::uint16_t>(proto.int32_data(), dtype, shape);
    default:
      return filled<std::uint8_t>(proto.int32_data(), dtype, shape);  // int8, uint8, bool
  }
}

Tensor read_elements(const TensorProto& proto, const std::filesystem::path& folder) {
  const DType dtype = dtype_of_onnx(proto.data_type());
  Shape shape(std::vector<std::int64_t>(proto.dims().begin(), proto.dims().end()));
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
  std::int64_t count = 1;
  for (const std::int64_t dim : shape.dims()) {
    if (dim < 0 || (dim > 0 && count > kMaxElements / dim))
      throw InvalidArgument("its shape is " + shape.to_string());
    count *= dim;
  }
  if (dtype == DType::String) {
    if (proto.string_data_size() != count)
      throw InvalidArgument(
          fmt::format("shape {} with {} strings", shape.to_string(), proto.string_data_size()));
    const std::vector<std::string> values(proto.string_data().begin(), proto.string_data().end());
    return Tensor::strings(std::move(shape), values);
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * dtype_size(dtype);
  const bool external = proto.data_location() == TensorProto::EXTERNAL;
  if (external || proto.has_raw_data()) {
    const std::string stored = external ? external_bytes(proto, folder, bytes) : proto.raw_data();
    if (stored.size() != bytes)
      throw InvalidArgument(
          fmt::format("shape {} of {} with {} bytes", shape.to_string(), dtype_name(dtype), stored.size()));
    Tensor tensor(dtype, std::move(shape));
    std::memcpy(tensor.raw(), stored.data(), bytes);
    return tensor;
  }
  return from_list(proto, dtype, shape);
}

}  // namespace

ModelProto parse_model(std::string_view bytes, const std::string& source) {
  ModelProto model;
  const bool fits =
      bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max());  // protobuf's limit
  if (!fits || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !model.has_graph())
    throw InvalidArgument(source + ": not an ONNX model");
  return model;
}

DType dtype_of_onnx(int type) {
  switch (type) {
    case TensorProto::FLOAT:
      return DType::Float32;
    case TensorProto::DOUBLE:
      return DType::Float64;
    case TensorProto::FLOAT16:
      return DType::Float16;
    case TensorProto::BFLOAT16:
      return DType::BFloat16;
    case TensorProto::INT8:
      return DType::Int8;
    case TensorProto::UINT8:
      return DType::UInt8;
    case TensorProto::INT16:
      return DType::Int16;
    case TensorProto::UINT16:
      return DType::UInt16;
    case TensorProto::INT32:
      return DType::Int32;
    case TensorProto::UINT32:
      return DType::UInt32;
    case TensorProto::INT64:
      return DType::Int64;
    case TensorProto::UINT64:
      return DType::UInt64;
    case TensorProto::BOOL:
      return DType::Bool;
    case TensorProto::STRING:
      return DType::String;
    default:
      throw InvalidArgument(fmt::format("the type {} ({}) is not supported", type_name(type), type));
  }
}

Tensor read_tensor(const TensorProto& proto, const std::filesystem::path& folder) {
  try {
    return read_elements(proto, folder);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("tensor '" + proto.name() + "': " + error.message());
  }
}

bool is_four_bit(const TensorProto& proto) {
  return proto.data_type() == TensorProto::INT4 || proto.data_type() == TensorProto::UINT4;
}

Tensor read_four_bit_tensor(const TensorProto& proto, const std::filesystem::path& folder) {
  const Shape shape(std::vector<std::int64_t>(proto.dims().begin(), proto.dims().end()));
  // What is stored, as a list of bytes.
  std::int64_t count = 1;
  for (const std::int64_t dim : shape.dims()) {
    if (dim < 0 || (dim > 0 && count > (std::int64_t{1} << 40) / dim))
      throw InvalidArgument("tensor '" + proto.name() + "': its shape is " + shape.to_string());
    count *= dim;
  }
  TensorProto packed = proto;
  packed.set_data_type(TensorProto::UINT8);
  packed.clear_dims();
  packed.add_dims((count + 1) / 2);
  const Tensor bytes = read_tensor(packed, folder);
  const bool is_signed = proto.data_type() == TensorProto::INT4;
  Tensor values(is_signed ? DType::Int8 : DType::UInt8, shape);
  auto* out = reinterpret_cast<std::uint8_t*>(values.raw());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned>(bytes.as_bytes()[static_cast<std::size_t>(i / 2)]);
    const unsigned bits = i % 2 == 0 ? byte & 0x0F : byte >> 4;
    out[i] = static_cast<std::uint8_t>(is_signed && bits > 7 ? bits | 0xF0 : bits);
  }
  return values;
}

Tensor read_sparse_tensor(const SparseTensorProto& proto, const std::filesystem::path& folder) {
  const Tensor values = read_tensor(proto.values(), folder);
  const std::vector<std::int64_t> places = tensor_to_int64s(read_tensor(proto.indices(), folder));
  const Shape shape(std::vector<std::int64_t>(proto.dims().begin(), proto.dims().end()));
  const std::string name = "sparse tensor '" + proto.values().name() + "'";
  const auto count = static_cast<std::size_t>(values.elements());
  const auto rank = static_cast<std::size_t>(shape.rank());
  if (values.dtype() == DType::String || !shape.is_static()) throw InvalidArgument(name + " cannot be read");
  const bool linear = places.size() == count;
  if (!linear && places.size() != count * rank)
    throw InvalidArgument(fmt::format("{} has {} indices for {} values", name, places.size(), count));
  Tensor dense = Tensor::zeros(values.dtype(), shape);
  const std::size_t size = dtype_size(values.dtype());
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t at = linear ? places[i] : 0;
    for (std::size_t axis = 0; axis < rank && !linear; ++axis)
      at = checked_plus(checked_times(at, shape.dim(static_cast<int>(axis))), places[i * rank + axis]);
    if (at < 0 || at >= dense.elements()) throw InvalidArgument(name + " has an index out of range");
    std::memcpy(dense.raw() + static_cast<std::size_t>(at) * size, values.raw() + i * size, size);
  }
  return dense;
}

}  // namespace braid::onnx
