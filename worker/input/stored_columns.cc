#include "worker/input/stored_columns.h"

#include "worker/step/training_graph.h"

namespace braid::worker {

void cast_stored_columns(Graph& graph, const std::vector<std::string>& columns, const Batcher& batcher) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (batcher.dtype(c) != DType::UInt8) continue;
    const ValueRef column = graph.parse_value(columns[c]);
    Node& placeholder = graph.mutable_node(column.node);
    placeholder.attrs.set("dtype", DType::UInt8);
    placeholder.outputs[0].dtype = DType::UInt8;
    const ValueRef cast = add_node(graph, "Cast", columns[c] + "/cast", {column},
                                   {{"SrcT", DType::UInt8}, {"DstT", DType::Float32}}, column.node);
    const ValueRef scale =
        add_node(graph, "Const", columns[c] + "/scale", {},
                 {{"dtype", DType::Float32}, {"value", Tensor::scalar(batcher.scale(c))}}, column.node);
    const ValueRef scaled =
        add_node(graph, "Mul", columns[c] + "/scaled", {cast, scale}, {{"T", DType::Float32}}, column.node);
    graph.replace_uses(column, scaled);
    graph.mutable_node(cast.node).inputs[0] = column;
  }
}

}  // namespace braid::worker
