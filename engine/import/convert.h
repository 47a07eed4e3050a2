// Between the values of graph.proto and the engine's: tensors, shapes, types, attributes. Both ways;
// TensorFlow's rules for tensors (tensor_content or a typed list whose last value repeats). Thread rule: pure
// functions.
#pragma once

#include <optional>

#include "engine/ir/attr.h"
#include "engine/ir/shape.h"
#include "engine/ir/tensor.h"
#include "proto/graph.pb.h"

namespace braid {

/// References lose the reference. Throws: InvalidArgument for types that the engine does not have.
DType from_proto(DataType type);
DataType to_proto(DType dtype);

/// Throws: InvalidArgument for a dimension below -1.
Shape from_proto(const TensorShapeProto& proto);
TensorShapeProto to_proto(const Shape& shape);

/// Throws: InvalidArgument (unknown shape, type without elements, more values than elements, tensor_content
/// of another size).
Tensor from_proto(const TensorProto& proto);
/// Elements go into tensor_content, strings into string_val.
TensorProto to_proto(const Tensor& tensor);

/// Empty for an empty list, which does not say of what it is one: the op's default stands.
/// Throws: InvalidArgument for functions, placeholders, lists of tensors, and what the three above throw.
std::optional<Attr> from_proto(const AttrValue& proto);
AttrValue to_proto(const Attr& attr);

}  // namespace braid
