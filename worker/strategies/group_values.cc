#include "worker/strategies/group_values.h"

#include <utility>

#include "base/error.h"
#include "engine/ir/op.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {

std::vector<ValueRef> cast_together(Graph& graph, std::vector<ValueRef> values, DType to,
                                    const std::string& name) {
  const NodeId id = add_node(graph, "braid.CastMany", name, values, {{"DstT", to}}).node;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
  return values;
}

ValueRef sum_of_members(Graph& graph, ValueRef gathered, const std::string& name) {
  const ValueRef axis = add_node(graph, "Const", name + "/axis", {},
                                 {{"dtype", DType::Int32}, {"value", Tensor::scalar<std::int32_t>(0)}});
  return add_node(graph, "Sum", name + "/sum", {gathered, axis},
                  {{"T", DType::Float32}, {"Tidx", DType::Int32}, {"keep_dims", false}});
}

ValueRef behind_each_other(Graph& graph, ValueRef gathered, ValueRef own, const std::string& name) {
  const Shape& shape = graph.info(own).shape;
  std::vector<std::int64_t> dims{-1};
  for (int axis = 1; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return reshaped(graph, gathered, std::move(dims), name);
}

void require_rows_of_fixed_length(const Graph& graph, const VariableGradient& gradient) {
  if (pads_indices(graph, gradient))
    throw InvalidArgument("variable '" + gradient.variable.name +
                          "': columns of varying length do not go with several groups of strategy.mesh: "
                          "give them a fixed length, or set mesh.data 1");
}

}  // namespace braid::worker
