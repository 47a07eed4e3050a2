#include "engine/import/onnx/type_attrs.h"

#include <string>

#include "engine/ir/op.h"

namespace braid::onnx {

void add_type_attrs(std::string_view op, const std::vector<DType>& inputs, AttrMap& attrs) {
  // Ops that the engine has not, which the importer lowers, are of one type.
  static const std::vector<TypeAttr> usual{{"T", 0}};
  const OpDef* def = OpRegistry::global().find(op);
  for (const TypeAttr& type : def && def->traits.type_attributes ? *def->traits.type_attributes : usual) {
    const std::size_t input = type.input < 0 ? inputs.size() - 1 : static_cast<std::size_t>(type.input);
    if (input < inputs.size() && !attrs.has(type.attr)) attrs.set(std::string(type.attr), inputs[input]);
  }
}

}  // namespace braid::onnx
