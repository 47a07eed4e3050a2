#include "engine/import/onnx/body_values.h"

#include <algorithm>

namespace braid::onnx {

std::set<std::string> values_read_by(const GraphProto& body) {
  std::set<std::string> names;
  for (const NodeProto& node : body.node()) {
    const bool resizes = node.op_type() == "Resize" || node.op_type() == "Upsample";
    const int count = resizes ? std::min(1, node.input_size()) : node.input_size();
    names.insert(node.input().begin(), node.input().begin() + count);
    for (const AttributeProto& attribute : node.attribute())
      if (attribute.has_g()) names.merge(values_read_by(attribute.g()));
  }
  for (const ValueInfoProto& output : body.output()) names.insert(output.name());
  return names;
}

}  // namespace braid::onnx
