#include "tests/engine/testing/towers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {

void add_training(Towers& made, OptimizerKind optimizer) {
  OptimizerSpec spec;
  spec.kind = optimizer;
  const ValueRef loss = made.graph.parse_value(made.request.fetches[0]);
  for (const VariableGradient& gradient : add_gradients(made.graph, loss)) {
    Node update;
    update.name = "update/" + gradient.variable.name;
    update.op = &OpRegistry::global().require("braid.ApplyOptimizer");
    update.attrs = optimizer_attrs(spec);
    update.inputs.push_back({gradient.variable.handle, 0});
    for (const SlotSpec& slot : optimizer_slots(spec)) {
      Node handle;
      handle.name = gradient.variable.name + "/" + std::string(slot.name);
      handle.op = &OpRegistry::global().require("VarHandleOp");
      handle.attrs = {{"dtype", DType::Float32}, {"shape", gradient.variable.shape}, {"_trainable", false}};
      update.inputs.push_back({made.graph.add(std::move(handle)), 0});
    }
    update.inputs.push_back(gradient.dense);
    update.colocate_with = gradient.dense.node;
    made.request.targets.push_back(update.name);
    made.graph.add(std::move(update));
  }
}

Towers make_towers(const TowersOptions& options, bool training) {
  Towers made;
  GraphBuilder b;
  std::vector<Output> tops;
  const auto feed = [&](const std::string& name) {
    made.request.feeds.push_back({name, DType::Float32, Shape{kRows, kWide}});
    return b.placeholder(name, DType::Float32, Shape{kRows, kWide});
  };
  Output x;
  if (!options.own_input) x = feed("x");
  for (int t = 0; t < options.towers; ++t) {
    NameScope name(b, "tower" + std::to_string(t));
    std::optional<StreamScope> scope;
    if (options.own_streams) scope.emplace(b, t);
    Output h = options.own_input ? feed("x") : x;
    if (options.own_input) made.request.feeds.back().name = h.node;
    for (int layer = 0; layer < options.layers; ++layer)
      h = b.dense("layer" + std::to_string(layer), h, kWide, kWide, layer + 1 < options.layers);
    tops.push_back(h);
    made.tops.push_back(h.name());
  }
  const Output all = b.concat(tops, 1);
  const Output loss = b.reduce_mean(b.mul(all, all));
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  if (training) add_training(made, options.optimizer);
  return made;
}

std::shared_ptr<const Program> compile_for(const Towers& model, Domain domain) {
  CompileOptions options;
  options.domain = domain;
  return compile(model.graph, model.request, options);
}

namespace {

/// The variables after a step of everything in the graph that writes them.
std::map<std::string, Tensor> after_a_step(const Graph& graph, const Towers& model) {
  Interpreter interpreter(graph);
  interpreter.params().learning_rate = 0.5F;
  interpreter.params().grad_scale = 0.25F;
  unsigned seed = 1;
  for (const VariableInfo& variable : list_variables(model.graph))
    interpreter.variables()[variable.name] = random_floats(variable.shape, seed++);
  std::vector<std::string> updates;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!graph.node(id).removed && graph.node(id).op->side_effect) updates.push_back(graph.node(id).name);
  interpreter.run({{"x", random_floats(model.request.feeds[0].shape, 9)}}, {}, updates);
  return interpreter.variables();
}

}  // namespace

void expect_variables_of_a_step(const Towers& model, const Program& program, ErrorOf error) {
  const auto expected = after_a_step(model.graph, model), got = after_a_step(program.graph, model);
  for (const VariableInfo& variable : list_variables(model.graph)) {
    const auto e = expected.at(variable.name).data<float>(), g = got.at(variable.name).data<float>();
    ASSERT_EQ(e.size(), g.size());
    double largest = 0;
    for (const float value : e) largest = std::max(largest, static_cast<double>(std::abs(value)));
    for (std::size_t i = 0; i < e.size(); ++i)
      ASSERT_NEAR(e[i], g[i], 1e-5 * (error == ErrorOf::Itself ? 1 + std::abs(e[i]) : largest))
          << variable.name << " " << i;
  }
}

std::shared_ptr<const Program> compile_towers(const Towers& towers, BatchSiblings batching, int streams) {
  CompileOptions options;
  options.batch_siblings = batching;
  options.streams.count = streams;
  options.streams.policy = streams == 1 ? StreamPolicy::None : StreamPolicy::User;
  return compile(towers.graph, towers.request, options);
}

std::vector<Tensor> feeds_of(const Towers& towers, std::uint64_t step) {
  std::vector<Tensor> feeds;
  for (const FeedSpec& spec : towers.request.feeds) {
    Tensor tensor(spec.dtype, spec.shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.data<float>()[static_cast<std::size_t>(i)] = std::sin(
          static_cast<float>(i) + 0.37F * static_cast<float>(step) + static_cast<float>(feeds.size()));
    feeds.push_back(std::move(tensor));
  }
  return feeds;
}

std::vector<float> losses(const Towers& towers, const std::shared_ptr<const Program>& program,
                          Runtime& runtime, std::uint64_t steps) {
  Instance instance(program, runtime);
  for (const VariableInfo& variable : list_variables(towers.graph)) {
    std::optional<Tensor> value = runtime.variables().read(variable.name);
    if (!value) continue;
    initialize_variable(towers.graph.node(variable.handle), 5, *value);
    runtime.variables().write(variable.name, *value);
  }
  std::vector<float> result;
  for (std::uint64_t step = 0; step < steps; ++step) {
    StepRequest r = request(step, feeds_of(towers, step));
    r.params.learning_rate = 0.01F;
    result.push_back(instance.run(std::move(r), soon()).fetches[0].data<float>()[0]);
  }
  return result;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-5F * (1 + std::abs(b[i]))) << "step " << i;
}

}  // namespace braid::testing
