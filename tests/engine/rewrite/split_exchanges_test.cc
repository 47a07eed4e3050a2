// Which exchanges of a device's program become two nodes. Compiling needs no device.
#include <gtest/gtest.h>

#include "engine/ops/common/two_parts.h"
#include "engine/program/program.h"
#include "tests/engine/rewrite/updates_test_base.h"

namespace braid::testing {
namespace {

OpDef exchange(const char* name, Lane lane) {
  OpDef op;
  op.name = name;
  op.min_inputs = 1;
  op.max_inputs = -1;
  op.no_gradient_reason = "of a test";
  op.side_effect = op.stateful = true;
  op.lane = lane;
  op.cpu = [](const PrepareContext&) { return PreparedKernel{}; };
  op.cuda = op.cpu;
  return op;
}

/// Three ops of a test, of which the second and the third do what the first one does.
void register_exchange() {
  static const bool once = [] {
    OpDef whole = exchange("test.Exchange", Lane::Comm), send = exchange("test.SendPart", Lane::Comm),
          take = exchange("test.TakePart", Lane::Compute);
    whole.infer = [](InferContext& c) {
      for (int i = 0; i < c.inputs(); ++i) c.output(c.dtype(i), c.shape(i));
    };
    send.infer = [](InferContext& c) { c.output(DType::UInt8, {64}); };
    take.infer = [](InferContext& c) {
      for (int i = 0; i + 1 < c.inputs(); ++i) c.output(c.dtype(i), c.shape(i));
    };
    for (OpDef* op : {&whole, &send, &take}) OpRegistry::global().add(std::move(*op));
    set_two_parts("test.Exchange", {"test.SendPart", "test.TakePart"});
    return true;
  }();
  (void)once;
}

class SplitExchangesTest : public UpdatesTest {
 protected:
  void SetUp() override {
    register_exchange();
    UpdatesTest::SetUp();
  }

  NodeId exchange_of(const std::string& name, std::int64_t elements, NodeId before = kNoNode) {
    const ValueRef made = add(name, "test.Exchange", {feed(name + "/x", DType::Float32, {elements})}, {});
    if (before != kNoNode) graph_.mutable_node(made.node).control_inputs.push_back(before);
    add(name + "/y", "Neg", {made}, {{"T", DType::Float32}});
    request_.fetches.push_back(name + "/y");
    return made.node;
  }

  std::shared_ptr<const Program> compiled(Domain domain, int streams, StreamPolicy policy) {
    CompileOptions options;
    options.domain = domain;
    options.streams.count = streams;
    options.streams.policy = policy;
    return compile(graph_, request_, options);
  }

  static std::vector<std::string> on_comm(const Program& program) {
    std::vector<std::string> names;
    for (const ProgramStream& stream : program.streams) {
      if (stream.lane != Lane::Comm) continue;
      for (const Instruction& instruction : stream.instructions)
        if (instruction.kind == Instruction::Kind::Run)
          names.push_back(program.ops[static_cast<std::size_t>(instruction.op)].name);
    }
    return names;
  }
};

TEST_F(SplitExchangesTest, TheOrderIsThatOfTheirFirstParts) {
  NodeId last = kNoNode;
  for (const char* name : {"a", "b", "c"})
    last = exchange_of(name, std::string(name) == "b" ? 16 : 1 << 18, last);
  const auto program = compiled(Domain::Device, 2, StreamPolicy::Cost);
  EXPECT_EQ(on_comm(*program), (std::vector<std::string>{"a/send", "b", "c/send"}));
  const Node& take = program->graph.node(program->graph.find("c/take"));
  EXPECT_EQ(take.inputs.size(), 2U);
  EXPECT_EQ(take.inputs[0].node, program->graph.find("c/x"));
  EXPECT_EQ(take.inputs[1].node, program->graph.find("c/send"));
  EXPECT_TRUE(take.control_inputs.empty());
  EXPECT_EQ(program->graph.node(program->graph.find("c/y")).inputs[0].node, take.id);
}

TEST_F(SplitExchangesTest, HostsAndProgramsOfOneStreamKeepThem) {
  exchange_of("a", 1 << 18);
  EXPECT_EQ(on_comm(*compiled(Domain::Device, 2, StreamPolicy::Cost)), (std::vector<std::string>{"a/send"}));
  EXPECT_EQ(on_comm(*compiled(Domain::Device, 2, StreamPolicy::None)), (std::vector<std::string>{"a"}));
  EXPECT_EQ(on_comm(*compiled(Domain::Device, 1, StreamPolicy::Cost)), (std::vector<std::string>{"a"}));
  EXPECT_EQ(on_comm(*compiled(Domain::Host, 2, StreamPolicy::Cost)), (std::vector<std::string>{"a"}));
}

}  // namespace
}  // namespace braid::testing
