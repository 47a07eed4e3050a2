// The oracle of other tests has tests of its own.
#include "tests/engine/testing/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/ir/test_ops.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using testing::Interpreter;

Tensor floats(std::vector<float> values) {
  return Tensor::from<float>({static_cast<std::int64_t>(values.size())}, values);
}

TEST(InterpreterTest, AFedValueReplacesWhatWouldComputeIt) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1});
  const Output y = b.op("Neg", {x}, {}, "y");
  const Output z = b.mul(y, y);
  const Graph graph = import_graph(b.graph());
  const Tensor value = Interpreter(graph).run({{"y", floats({2, 3})}}, {z.name()})[0];
  EXPECT_THAT(value.data<float>(), ElementsAre(4, 9));
}

TEST(InterpreterTest, OnlyWhatIsAskedForRuns) {
  GraphBuilder b;
  const Output w = b.variable("w", {1}, {});
  b.op("AssignAddVariableOp", {w, b.constant(floats({1}))}, {{"dtype", DType::Float32}}, "add");
  const Output read = b.read(w);
  const Graph graph = import_graph(b.graph());
  Interpreter interpreter(graph);
  EXPECT_THAT(interpreter.run({}, {read.name()})[0].data<float>(), ElementsAre(0));
  EXPECT_THAT(interpreter.variables()["w"].data<float>(), ElementsAre(0));
  interpreter.run({}, {}, {"add"});
  EXPECT_THAT(interpreter.run({}, {read.name()}, {"add"})[0].data<float>(),
              ElementsAre(1));  // the read comes first
  EXPECT_THAT(interpreter.variables()["w"].data<float>(), ElementsAre(2));
}

TEST(InterpreterTest, AVariableOfAnotherShapeIsRefused) {
  GraphBuilder b;
  const Output read = b.read(b.variable("w", {1}, {}));
  const Graph graph = import_graph(b.graph());
  Interpreter interpreter(graph);
  interpreter.variables()["w"] = floats({1, 2});
  EXPECT_THROW(interpreter.run({}, {read.name()}), InvalidArgument);
}

// Completes on another thread: with the input plus one, or with an error when that is negative.
OpDef delayed_op() {
  OpDef op;
  op.name = "TestDelayed";
  op.min_inputs = op.max_inputs = 1;
  op.infer = [](InferContext& c) { c.output(c.dtype(0), c.shape(0)); };
  op.cpu = [](const PrepareContext&) {
    PreparedKernel kernel;
    kernel.run_async = [](const KernelArgs& args, Completion done) {
      std::thread([in = args.in<float>(0), out = args.out<float>(0), done = std::move(done)] {
        *out = *in + 1;
        done(*out < 0 ? make_error(ErrorCode::Unavailable, "the other side is gone") : nullptr);
      }).detach();
    };
    return kernel;
  };
  return op;
}

TEST(InterpreterTest, AsynchronousKernelsAreAwaitedAndTheirErrorsThrown) {
  const OpDef delayed = delayed_op();
  Graph graph;
  const NodeId x = graph.add(testing::make_node(testing::source_op(), "x", {}, {{"shape", Shape{}}}));
  graph.add(testing::make_node(delayed, "y", {{x, 0}}));
  Interpreter interpreter(graph);
  EXPECT_EQ(interpreter.run({{"x", Tensor::scalar<float>(1)}}, {"y"})[0].data<float>()[0], 2);
  EXPECT_THROW(interpreter.run({{"x", Tensor::scalar<float>(-5)}}, {"y"}), Unavailable);
}

}  // namespace
}  // namespace braid
