#include "tests/engine/ops/half_cases.h"

#include <algorithm>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {

Tensor cast(const Tensor& tensor, DType to) {
  return tensor.dtype() == to ? tensor : run_op("Cast", {tensor}, {{"DstT", to}})[0];
}

std::vector<const OpDef*> half_ops_of_registry() {
  std::vector<const OpDef*> ops = OpRegistry::global().all();
  std::erase_if(ops, [](const OpDef* def) { return half_form(*def) == nullptr; });
  return ops;
}

std::optional<HalfCase> half_case(const OpDef& def, const OpCase& op_case, DType half, bool narrow) {
  const HalfForm& form = *half_form(def);
  HalfCase made{op_case, op_case, {}};
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i)
    if (is_floating(op_case.inputs[i].dtype()))
      made.halves.inputs[i] = made.floats.inputs[i] = cast(op_case.inputs[i], DType::Float32);
  if (op_case.attrs.get("dtype", DType::Invalid) == DType::Float64)
    for (OpCase* of : {&made.halves, &made.floats}) of->attrs.set("dtype", DType::Float32);
  const CaseGraph graph = make_case_graph(def, made.floats);
  const Node& node = graph.graph.node(graph.node);
  std::vector<int> inputs = half_inputs(form, node);
  const bool rounds = form.kind != HalfKind::Product || form.whole || narrow;
  if (rounds) made.rounded = half_outputs(form, node);
  for (const int o : made.rounded)
    if (!is_floating(node.outputs[static_cast<std::size_t>(o)].dtype)) return std::nullopt;
  if (rounds && form.like_output >= 0) inputs.push_back(form.like_output);
  for (const int i : inputs) {
    const auto at = static_cast<std::size_t>(i);
    if (!is_floating(op_case.inputs[at].dtype())) return std::nullopt;
    made.halves.inputs[at] = cast(made.floats.inputs[at], half);
    made.floats.inputs[at] = cast(made.halves.inputs[at], DType::Float32);
  }
  if (!made.rounded.empty()) {
    made.halves.attrs.set(kHalfOutputs, std::vector<std::int64_t>(made.rounded.begin(), made.rounded.end()));
    made.halves.attrs.set(kHalfType, half);
  }
  return made;
}

}  // namespace braid::testing
