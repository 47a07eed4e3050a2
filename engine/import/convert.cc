#include "engine/import/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace braid {

static_assert(std::endian::native == std::endian::little, "tensor_content is little-endian");

namespace {

constexpr int kReferenceOffset = 100;  // DT_FLOAT_REF = DT_FLOAT + 100

std::string type_text(DataType type) {
  const std::string& name = DataType_Name(type);
  return name.empty() ? std::to_string(static_cast<int>(type)) : name;
}

}  // namespace

DType from_proto(DataType type) {
  const int number = static_cast<int>(type);
  const auto dtype = static_cast<DType>(number > kReferenceOffset ? number - kReferenceOffset : number);
  const bool known = dtype_size(dtype) != 0 || dtype == DType::String || dtype == DType::Resource;
  if (!known) throw InvalidArgument("type " + type_text(type) + " is not supported");
  return dtype;
}

DataType to_proto(DType dtype) { return static_cast<DataType>(dtype); }

Shape from_proto(const TensorShapeProto& proto) {
  if (proto.unknown_rank()) return Shape::unknown_rank();
  std::vector<std::int64_t> dims;
  dims.reserve(static_cast<std::size_t>(proto.dim_size()));
  for (const auto& dim : proto.dim()) {
    if (dim.size() < Shape::kUnknown)
      throw InvalidArgument(fmt::format("a shape has dimension {}", dim.size()));
    dims.push_back(dim.size());
  }
  return Shape(std::move(dims));
}

TensorShapeProto to_proto(const Shape& shape) {
  TensorShapeProto proto;
  proto.set_unknown_rank(!shape.has_rank());
  if (shape.has_rank()) {
    for (const std::int64_t dim : shape.dims()) proto.add_dim()->set_size(dim);
  }
  return proto;
}

// ------------------------------------------------------------------------------------------------------------
// tensors

namespace {

// How many list values the tensor takes, when the last one repeats. Throws when there are too many.
void check_list_length(std::int64_t values, std::int64_t elements) {
  if (values > elements)
    throw InvalidArgument(fmt::format("a tensor of {} elements has {} values", elements, values));
}

template <class T, class List>
void fill_from_list(const List& list, Tensor& tensor) {
  auto out = tensor.data<T>();
  check_list_length(list.size(), tensor.elements());
  std::size_t i = 0;
  for (const auto value : list) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!std::in_range<T>(value))
        throw InvalidArgument(fmt::format("tensor value {} does not fit its type", value));
    }
    out[i++] = static_cast<T>(value);
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(i), out.end(), i == 0 ? T{} : out[i - 1]);
}

void fill_halves(const google::protobuf::RepeatedField<std::int32_t>& list, Tensor& tensor) {
  check_list_length(list.size(), tensor.elements());
  auto* out = reinterpret_cast<std::uint16_t*>(tensor.raw());
  std::uint16_t value = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (i < list.size()) value = static_cast<std::uint16_t>(list[static_cast<int>(i)]);
    out[i] = value;
  }
}

Tensor strings_from_list(const TensorProto& proto, Shape shape) {
  const std::int64_t count = shape.elements();
  check_list_length(proto.string_val_size(), count);
  std::vector<std::string> values(proto.string_val().begin(), proto.string_val().end());
  values.resize(static_cast<std::size_t>(count), values.empty() ? std::string() : values.back());
  return Tensor::strings(std::move(shape), values);
}

void fill_from_lists(const TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::Float32:
      return fill_from_list<float>(proto.float_val(), tensor);
    case DType::Float64:
      return fill_from_list<double>(proto.double_val(), tensor);
    case DType::Int32:
      return fill_from_list<std::int32_t>(proto.int_val(), tensor);
    case DType::Int16:
      return fill_from_list<std::int16_t>(proto.int_val(), tensor);
    case DType::Int8:
      return fill_from_list<std::int8_t>(proto.int_val(), tensor);
    case DType::UInt16:
      return fill_from_list<std::uint16_t>(proto.int_val(), tensor);
    case DType::UInt8:
      return fill_from_list<std::uint8_t>(proto.int_val(), tensor);
    case DType::Int64:
      return fill_from_list<std::int64_t>(proto.int64_val(), tensor);
    case DType::UInt32:
      return fill_from_list<std::uint32_t>(proto.uint32_val(), tensor);
    case DType::UInt64:
      return fill_from_list<std::uint64_t>(proto.uint64_val(), tensor);
    case DType::Bool:
      return fill_from_list<bool>(proto.bool_val(), tensor);
    default:
      return fill_halves(proto.half_val(),
                         tensor);  // Float16, BFloat16: from_proto lets no other type through
  }
}

// A hostile file may claim any shape: a constant that is not spelled out must stay of a size that is worth
// making.
constexpr std::int64_t kMaxRepeatedBytes = std::int64_t{1} << 32;

}  // namespace

Tensor from_proto(const TensorProto& proto) {
  const DType dtype = from_proto(proto.dtype());
  Shape shape = from_proto(proto.tensor_shape());
  if (!shape.is_static()) throw InvalidArgument("a tensor has the unknown shape " + shape.to_string());
  const std::int64_t count = shape.elements();
  if (dtype == DType::Resource) throw InvalidArgument("a constant cannot be a handle");
  const auto element =
      static_cast<std::int64_t>(std::max<std::size_t>(dtype_size(dtype), sizeof(std::int64_t)));
  if (proto.tensor_content().empty() && count > kMaxRepeatedBytes / element) {
    throw InvalidArgument("a tensor of shape " + shape.to_string() + " repeats its values too often");
  }
  if (dtype == DType::String) return strings_from_list(proto, std::move(shape));
  if (!proto.tensor_content().empty()) {
    const std::size_t expected = static_cast<std::size_t>(count) * dtype_size(dtype);
    const bool fits =
        static_cast<std::size_t>(count) <= std::numeric_limits<std::size_t>::max() / dtype_size(dtype);
    if (!fits || proto.tensor_content().size() != expected) {
      throw InvalidArgument(fmt::format("a {} tensor of shape {} has {} bytes of content", dtype_name(dtype),
                                        shape.to_string(), proto.tensor_content().size()));
    }
    Tensor tensor(dtype, std::move(shape));
    std::memcpy(tensor.raw(), proto.tensor_content().data(), tensor.bytes());
    return tensor;
  }
  Tensor tensor(dtype, std::move(shape));
  fill_from_lists(proto, tensor);
  return tensor;
}

TensorProto to_proto(const Tensor& tensor) {
  TensorProto proto;
  proto.set_dtype(to_proto(tensor.dtype()));
  *proto.mutable_tensor_shape() = to_proto(tensor.shape());
  if (tensor.dtype() == DType::String) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      proto.add_string_val(std::string(tensor.string_at(i)));
  } else {
    proto.set_tensor_content(tensor.raw(), tensor.bytes());
  }
  return proto;
}

// ---------------------------------------------------------------------------------------------------------
// attributes

namespace {

template <class T, class List>
std::vector<T> to_vector(const List& list) {
  return std::vector<T>(list.begin(), list.end());
}

std::optional<Attr> from_list(const AttrValue::ListValue& list) {
  if (list.s_size() > 0) return Attr(to_vector<std::string>(list.s()));
  if (list.i_size() > 0) return Attr(to_vector<std::int64_t>(list.i()));
  if (list.f_size() > 0) return Attr(to_vector<double>(list.f()));
  if (list.b_size() > 0) return Attr(to_vector<bool>(list.b()));
  if (list.type_size() > 0) {
    std::vector<DType> types;
    for (const int type : list.type()) types.push_back(from_proto(static_cast<DataType>(type)));
    return Attr(std::move(types));
  }
  if (list.shape_size() > 0) {
    std::vector<Shape> shapes;
    for (const auto& shape : list.shape()) shapes.push_back(from_proto(shape));
    return Attr(std::move(shapes));
  }
  if (list.tensor_size() > 0) throw InvalidArgument("a list of tensors is not supported");
  if (list.func_size() > 0) throw InvalidArgument("a list of functions is not supported");
  return std::nullopt;
}

struct ToAttrValue {
  AttrValue& proto;

  void operator()(std::int64_t value) const { proto.set_i(value); }
  void operator()(double value) const { proto.set_f(static_cast<float>(value)); }
  void operator()(bool value) const { proto.set_b(value); }
  void operator()(const std::string& value) const { proto.set_s(value); }
  void operator()(DType value) const { proto.set_type(to_proto(value)); }
  void operator()(const Shape& value) const { *proto.mutable_shape() = to_proto(value); }
  void operator()(const Tensor& value) const { *proto.mutable_tensor() = to_proto(value); }
  void operator()(const std::vector<std::int64_t>& values) const {
    proto.mutable_list()->mutable_i()->Assign(values.begin(), values.end());
  }
  void operator()(const std::vector<double>& values) const {
    proto.mutable_list()->mutable_f()->Assign(values.begin(), values.end());
  }
  void operator()(const std::vector<bool>& values) const {
    for (const bool value : values) proto.mutable_list()->add_b(value);
  }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) proto.mutable_list()->add_s(value);
  }
  void operator()(const std::vector<DType>& values) const {
    for (const DType value : values) proto.mutable_list()->add_type(to_proto(value));
  }
  void operator()(const std::vector<Shape>& values) const {
    for (const Shape& value : values) *proto.mutable_list()->add_shape() = to_proto(value);
  }
};

}  // namespace

std::optional<Attr> from_proto(const AttrValue& proto) {
  switch (proto.value_case()) {
    case AttrValue::kS:
      return Attr(proto.s());
    case AttrValue::kI:
      return Attr(proto.i());
    case AttrValue::kF:
      return Attr(static_cast<double>(proto.f()));
    case AttrValue::kB:
      return Attr(proto.b());
    case AttrValue::kType:
      return Attr(from_proto(proto.type()));
    case AttrValue::kShape:
      return Attr(from_proto(proto.shape()));
    case AttrValue::kTensor:
      return Attr(from_proto(proto.tensor()));
    case AttrValue::kList:
      return from_list(proto.list());
    case AttrValue::kFunc:
      throw InvalidArgument("function '" + proto.func().name() + "' is not supported");
    case AttrValue::kPlaceholder:
      throw InvalidArgument("a placeholder stands outside a function");
    case AttrValue::VALUE_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

AttrValue to_proto(const Attr& attr) {
  AttrValue proto;
  std::visit(ToAttrValue{proto}, static_cast<const AttrValue_&>(attr));
  // An empty vector is still a list.
  if (proto.value_case() == AttrValue::VALUE_NOT_SET) proto.mutable_list();
  return proto;
}

}  // namespace braid
