// The type attributes that TensorFlow wants on a node ("T", "Tidx", ...) and that follow from its inputs'
// types, as each op says (OpTraits::type_attributes). This engine infers them; other readers of a GraphDef do
// not. Thread rule: pure function.
#pragma once

#include <string_view>
#include <vector>

#include "engine/ir/attr.h"

namespace braid::onnx {

/// Adds those that `attrs` does not have. `inputs` are the types of the node's inputs.
void add_type_attrs(std::string_view op, const std::vector<DType>& inputs, AttrMap& attrs);

}  // namespace braid::onnx
