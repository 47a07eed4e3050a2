#include "tests/engine/testing/differentiated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/autodiff/gradients.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {

std::shared_ptr<const Program> Differentiated::compiled(Domain domain, int streams,
                                                        BatchSiblings batching) const {
  CompileRequest request;
  for (const auto& [name, value] : feeds) request.feeds.push_back({name, value.dtype(), value.shape()});
  request.fetches = fetches;
  CompileOptions options;
  options.domain = domain;
  options.streams.count = streams;
  options.batch_siblings = batching;
  return compile(graph, request, options);
}

void Differentiated::look_at(const std::string& name, ValueRef value, NodeId colocate_with) {
  Node node;
  node.op = &OpRegistry::global().require("Square");
  node.name = name;
  node.inputs = {value};
  node.colocate_with = colocate_with;
  graph.add(std::move(node));
  fetches.push_back(name);
}

Differentiated differentiated(const GraphBuilder& b, const Output& loss,
                              std::vector<std::pair<std::string, Tensor>> feeds) {
  Differentiated made{import_graph(b.graph()), std::move(feeds), {}};
  const auto fetch = [&](const char* name, ValueRef value) {
    Node seen;  // under a name that no pass changes
    seen.op = &OpRegistry::global().require("Identity");
    seen.name = made.graph.unique_name(name);
    seen.inputs = {value};
    made.fetches.push_back(seen.name);
    made.graph.add(std::move(seen));
  };
  const ValueRef value = made.graph.parse_value(loss.name());
  fetch("loss_value", value);
  for (const VariableGradient& gradient : add_gradients(made.graph, value))
    if (gradient.dense.valid()) fetch("gradient", gradient.dense);
  return made;
}

void expect_same_values(const Differentiated& model, const Program& program, float tolerance) {
  const auto run = [&](const Graph& graph) {
    Interpreter interpreter(graph);
    unsigned seed = 10;
    for (const VariableInfo& variable : list_variables(model.graph))
      interpreter.variables()[variable.name] = random_floats(variable.shape, seed++);
    for (const ProgramVariable& slab : program.variables) {
      if (slab.members.empty()) continue;
      Tensor joined(slab.dtype, slab.shape);
      std::byte* at = joined.raw();
      for (const std::string& name : slab.members) {
        const Tensor& member = interpreter.variables().at(name);
        at = std::copy_n(member.raw(), member.bytes(), at);
      }
      interpreter.variables()[slab.name] = joined;
    }
    return interpreter.run({model.feeds.begin(), model.feeds.end()}, model.fetches);
  };
  const std::vector<Tensor> expected = run(model.graph), got = run(program.graph);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t f = 0; f < got.size(); ++f) {
    ASSERT_EQ(got[f].shape(), expected[f].shape()) << model.fetches[f];
    float largest = 0, error = 0;
    for (std::size_t i = 0; i < got[f].data<float>().size(); ++i) {
      largest = std::max(largest, std::abs(expected[f].data<float>()[i]));
      error = std::max(error, std::abs(expected[f].data<float>()[i] - got[f].data<float>()[i]));
    }
    EXPECT_LE(error, tolerance * largest) << model.fetches[f];
    EXPECT_GT(largest, 0) << model.fetches[f];
  }
}

}  // namespace braid::testing
