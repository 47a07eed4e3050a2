// Ops for the executor's tests, and a short way to build graphs of them. Each computes a digest of its inputs
// that depends on every element and on the order, so a value that was read too early, too late or from reused
// memory shows. Delays in front of kernels are drawn anew in every run.
//
//   test.Mix      any inputs; attributes elements (of the output), salt, fold (rounds of extra arithmetic)
//   test.Change   like Mix, for one input or more, all of the output's size; may work in place of input 0
//   test.Update   handle, values...: changes the variable (ReadWrite), no outputs
//   test.Gather   handle (Read): a digest of the variable
//   test.Pull, test.Push, test.Comm   Mix on that lane, completing on another thread
//   test.Sleep    any inputs; sleeps `us`; test.Spin computes for `us`; test.Nop does nothing
//   test.Fail     throws InvalidArgument with `message` when params.step == `at_step`
//   test.FailAsync   the same through the completion, lane Pull
//   test.Block    waits until the step is stopped or late; test.Never (lane Pull) never completes by itself
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "engine/program/program.h"

namespace braid::testing {

/// Registers engine ops and test ops once.
void register_test_ops();

/// The longest random delay before a test kernel, in microseconds; 0 (the default) for none.
void set_random_delay_us(int us);
int random_delay_us();

/// What all test.Spin kernels have measured of themselves since the last call: on a busy machine more than
/// they were asked for.
double spun_seconds();

/// Completions of test.Never that are held back; they are fired with an error.
void release_never();

class TestGraph {
 public:
  TestGraph() { register_test_ops(); }

  ValueRef add(const std::string& op, std::vector<ValueRef> inputs, AttrMap attrs = {},
               const std::string& name = {});
  ValueRef feed(const std::string& name, std::int64_t elements);
  ValueRef constant(std::vector<std::int64_t> values);
  ValueRef variable(const std::string& name, std::int64_t elements, bool sparse = false);
  ValueRef read(ValueRef handle) { return add("ReadVariableOp", {handle}, {{"dtype", DType::Int64}}); }
  ValueRef mix(std::vector<ValueRef> inputs, std::int64_t elements = 8, const std::string& name = {});
  void control(ValueRef before, ValueRef after) {
    graph.mutable_node(after.node).control_inputs.push_back(before.node);
  }
  Node& node(ValueRef value) { return graph.mutable_node(value.node); }
  std::string name(ValueRef value) const { return graph.value_name(value); }

  Graph graph;

 private:
  std::int64_t salt_ = 0;
};

/// The feed "x" of four elements.
inline const std::vector<FeedSpec> kX = {{"x", DType::Int64, Shape{4}}};
/// A Mix on a stream.
inline ValueRef on(TestGraph& g, int stream, std::vector<ValueRef> inputs, const std::string& name,
                   std::int64_t elements = 8) {
  const ValueRef v = g.mix(std::move(inputs), elements, name);
  g.node(v).stream = stream;
  return v;
}
/// Its position among the program's ops, or -1.
inline int op_named(const Program& program, const std::string& name) {
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (program.ops[i].name == name) return static_cast<int>(i);
  return -1;
}

/// How many of the program's ops are `op`.
int count_ops(const Program& program, const std::string& op);

/// `elements` int64 values that depend on `seed`.
Tensor test_tensor(std::int64_t elements, std::uint64_t seed);
/// float32, uniform in [-1, 1), the same for the same seed.
Tensor random_floats(const Shape& shape, unsigned seed);

std::shared_ptr<const Program> compile_test(const TestGraph& graph, const std::vector<std::string>& fetches,
                                            const std::vector<std::string>& targets, int streams,
                                            StreamPolicy policy, int steps_in_flight = 2,
                                            std::vector<FeedSpec> feeds = {});

WaitContext soon(int milliseconds = 60000);
StepRequest request(std::uint64_t step, std::vector<Tensor> feeds = {});

bool same_bytes(const Tensor& a, const Tensor& b);

}  // namespace braid::testing
