// A graph that is written and loaded again is the same.
#include "engine/import/write_graph.h"

#include <gmock/gmock.h>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

TEST(WriteGraphTest, NodesComeBackWithTheirEdgesAttributesAndAnnotations) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 4});
  const Output w = b.variable("w", {4, 2}, {.init = {InitKind::Uniform, -1, 1}, .trainable = false});
  Output y, split;
  {
    const StreamScope stream(b, 3, false);
    const DeviceScope device(b, "/device:CPU:0");
    y = b.matmul(x, b.read(w));
  }
  split = b.op("Split", {b.constant(Tensor::scalar<std::int32_t>(1)), y}, {{"num_split", 2}}, "split");
  const Output second = b.op("Neg", {{split.node, 1}}, {}, "second");
  b.control_dependency(y, second);
  {
    const ColocateScope beside(b, y);
    b.op("Abs", {second}, {}, "beside");
  }
  const Graph first = import_graph(b.graph());
  const Graph again = import_graph(to_graph_def(first));
  ASSERT_EQ(again.size(), first.size());
  for (NodeId id = 0; id < first.size(); ++id) {
    const Node& was = first.node(id);
    ASSERT_NE(again.find(was.name), kNoNode) << was.name;
    const Node& is = again.node(again.find(was.name));
    EXPECT_EQ(is.op, was.op);
    EXPECT_EQ(is.stream, was.stream) << was.name;
    EXPECT_EQ(is.include_grad, was.include_grad) << was.name;
    EXPECT_EQ(is.device, was.device) << was.name;
    ASSERT_EQ(is.inputs.size(), was.inputs.size());
    for (std::size_t i = 0; i < was.inputs.size(); ++i)
      EXPECT_EQ(again.value_name(is.inputs[i]), first.value_name(was.inputs[i]));
    EXPECT_EQ(is.control_inputs.size(), was.control_inputs.size()) << was.name;
    EXPECT_EQ(is.colocate_with == kNoNode, was.colocate_with == kNoNode) << was.name;
  }
  EXPECT_EQ(again.node(again.find("w")).attrs.get<double>("_init_b", 0), 1);
  EXPECT_FALSE(list_variables(again).at(0).trainable);
}

TEST(WriteGraphTest, RemovedNodesStayAway) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2});
  b.op("Neg", {x}, {}, "gone");
  Graph graph = import_graph(b.graph());
  graph.remove(graph.find("gone"));
  EXPECT_EQ(to_graph_def(graph).node_size(), 1);
}

}  // namespace
}  // namespace braid
