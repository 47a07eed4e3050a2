#include "tests/engine/ops/op_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "base/thread_pool.h"
#include "base/wait_context.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

OpDef input_def() {
  OpDef def;
  def.name = "test.Input";
  def.infer = [](InferContext& c) {
    c.output(c.attr<DType>("dtype", DType::Invalid), c.attr<Shape>("shape", Shape{}));
  };
  def.stateful = true;  // never folded: it stands for a fed value
  return def;
}

OpDef known_def() {
  OpDef def;
  def.name = "test.Const";
  def.role = OpRole::Constant;
  def.infer = [](InferContext& c) {
    const Tensor value = c.attr<Tensor>("value", {});
    c.output(value.dtype(), value.shape());
  };
  return def;
}

// Exactly the tensor's bytes, unlike allocate_aligned's whole blocks, so that the sanitizer sees the first
// byte beyond.
Tensor exact_tensor(DType dtype, const Shape& shape) {
  const auto bytes = dtype_size(dtype) * static_cast<std::size_t>(shape.elements());
  constexpr std::align_val_t kAlignment{64};
  std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(::operator new(bytes, kAlignment)),
                                      [](std::byte* block) { ::operator delete(block, kAlignment); });
  std::memset(memory.get(), 0xA5, bytes);  // nobody may rely on zeroed memory
  return {dtype, shape, std::move(memory)};
}

Tensor exact_copy(const Tensor& tensor) {
  if (tensor.dtype() == DType::String) return tensor;
  Tensor copy = exact_tensor(tensor.dtype(), tensor.shape());
  std::memcpy(copy.raw(), tensor.raw(), tensor.bytes());
  return copy;
}

/// Pools are kept: thousands of runs would spend their time starting threads.
ThreadPool& pool_of_width(int width) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  std::lock_guard lock(mutex);
  auto& pool = pools[width];
  if (!pool) pool = std::make_unique<ThreadPool>(width);
  return *pool;
}

std::vector<NodeId> needed_nodes(const Graph& graph, const std::vector<ValueRef>& fetches) {
  std::set<NodeId> needed;
  std::vector<NodeId> open;
  for (const ValueRef& value : fetches) open.push_back(value.node);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!needed.insert(id).second) continue;
    for (const ValueRef& input : graph.node(id).inputs) open.push_back(input.node);
    for (NodeId control : graph.node(id).control_inputs) open.push_back(control);
  }
  std::vector<NodeId> order;
  for (NodeId id : graph.topological_order())
    if (needed.contains(id)) order.push_back(id);
  return order;
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, Execution& execution)
      : graph_(graph), execution_(execution), pool_(pool_of_width(execution.pool_width)) {}

  void run(NodeId id) {
    const Node& node = graph_.node(id);
    if (auto feed = execution_.feeds.find(id); feed != execution_.feeds.end()) {
      values_[{id, 0}] = exact_copy(feed->second);
    } else if (node.op->role == OpRole::Variable) {
      values_[{id, 0}] = execution_.variables.at(id);
    } else if (node.op->role == OpRole::Constant) {
      values_[{id, 0}] = node.attrs.require<Tensor>("value");
    } else if (!node.op->views.empty() && !node.op->cpu) {
      for (auto [output, input] : node.op->views) {
        const Tensor& from = value(node.inputs[static_cast<std::size_t>(input)]);
        values_[{id, output}] =
            Tensor(from.dtype(), node.outputs[static_cast<std::size_t>(output)].shape, from.memory());
      }
    } else {
      run_kernel(node);
    }
  }

  const Tensor& value(ValueRef ref) const { return values_.at(ref); }

 private:
  void run_kernel(const Node& node) {
    if (!node.op->cpu) throw Internal("[" + node.op->name + "] has no kernel");
    std::vector<OutputInfo> inputs;
    std::vector<const Tensor*> known;
    std::vector<Tensor> held;  // private copies of inputs that outputs overwrite
    std::vector<void*> in, out;
    for (const ValueRef& ref : node.inputs) {
      Tensor& tensor = values_.at(ref);
      inputs.push_back({tensor.dtype(), tensor.shape()});
      known.push_back(graph_.known_value(ref));
      in.push_back(tensor.raw());
    }
    if (aliases(node)) {
      const auto i = static_cast<std::size_t>(execution_.in_place->second);
      held.push_back(exact_copy(values_.at(node.inputs[i])));
      in[i] = held.back().raw();
    }
    std::vector<Tensor> outputs;
    for (const OutputInfo& info : node.outputs) {
      outputs.push_back(exact_tensor(info.dtype, info.shape));
      out.push_back(outputs.back().raw());
    }
    if (!held.empty()) {
      const auto o = static_cast<std::size_t>(execution_.in_place->first);
      outputs[o] = Tensor(outputs[o].dtype(), outputs[o].shape(), held.back().memory());
      out[o] = held.back().raw();
    }
    const PrepareContext context{node, inputs, node.outputs, known, pool_, services_};
    const PreparedKernel kernel = node.op->cpu(context);
    Tensor scratch = exact_tensor(DType::UInt8, Shape{static_cast<std::int64_t>(kernel.scratch_bytes)});
    const WaitContext wait = WaitContext::with_timeout(std::chrono::seconds(60));
    kernel.run({in.data(), out.data(), scratch.raw(), &execution_.params, &wait, StreamRef::host()});
    for (std::size_t o = 0; o < outputs.size(); ++o) values_[{node.id, static_cast<int>(o)}] = outputs[o];
  }

  bool aliases(const Node& node) const {
    if (!execution_.in_place) return false;
    const auto& pairs = node.op->in_place;
    if (std::find(pairs.begin(), pairs.end(), *execution_.in_place) == pairs.end()) return false;
    const Tensor& input = values_.at(node.inputs[static_cast<std::size_t>(execution_.in_place->second)]);
    const OutputInfo& output = node.outputs[static_cast<std::size_t>(execution_.in_place->first)];
    return input.shape() == output.shape && dtype_size(input.dtype()) == dtype_size(output.dtype);
  }

  const Graph& graph_;
  Execution& execution_;
  ThreadPool& pool_;
  Services services_;
  std::map<ValueRef, Tensor> values_;
};

}  // namespace

std::vector<Tensor> evaluate(const Graph& graph, Execution& execution, const std::vector<ValueRef>& fetches) {
  Evaluator evaluator(graph, execution);
  for (NodeId id : needed_nodes(graph, fetches)) evaluator.run(id);
  std::vector<Tensor> results;
  for (const ValueRef& value : fetches) results.push_back(evaluator.value(value));
  return results;
}

ValueRef add_input(Graph& graph, const std::string& name, DType dtype, const Shape& shape) {
  static const OpDef def = input_def();
  Node node;
  node.name = name;
  node.op = &def;
  node.attrs = {{"dtype", dtype}, {"shape", shape}};
  return {graph.add(std::move(node)), 0};
}

ValueRef add_known(Graph& graph, const std::string& name, const Tensor& value) {
  static const OpDef def = known_def();
  Node node;
  node.name = name;
  node.op = &def;
  node.attrs = {{"value", value}};
  return {graph.add(std::move(node)), 0};
}

std::vector<ValueRef> CaseGraph::outputs() const {
  std::vector<ValueRef> refs;
  for (std::size_t o = 0; o < graph.node(node).outputs.size(); ++o)
    refs.push_back({node, static_cast<int>(o)});
  return refs;
}

CaseGraph make_case_graph(const OpDef& def, const OpCase& op_case) {
  CaseGraph result;
  const auto contains = [](const std::vector<int>& list, std::size_t i) {
    return std::find(list.begin(), list.end(), static_cast<int>(i)) != list.end();
  };
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Tensor& tensor = op_case.inputs[i];
    const std::string name = "input" + std::to_string(i);
    if (contains(op_case.variables, i)) {
      Node node;
      node.name = name;
      node.op = &OpRegistry::global().require("VarHandleOp");
      node.attrs = {{"dtype", tensor.dtype()}, {"shape", tensor.shape()}, {"shared_name", name}};
      result.inputs.push_back({result.graph.add(std::move(node)), 0});
      result.execution.variables[result.inputs.back().node] = tensor.clone();
    } else if (contains(def.shape_values, i) || contains(def.shape_values, i - op_case.inputs.size()) ||
               contains(op_case.known_inputs, i)) {
      result.inputs.push_back(add_known(result.graph, name, tensor));
    } else {
      result.inputs.push_back(add_input(result.graph, name, tensor.dtype(), tensor.shape()));
      result.execution.feeds[result.inputs.back().node] = tensor;
    }
  }
  Node node;
  node.name = "op";
  node.op = &def;
  node.attrs = op_case.attrs;
  node.inputs = result.inputs;
  result.node = result.graph.add(std::move(node));
  return result;
}

std::vector<Tensor> run_case(const OpDef& def, const OpCase& op_case, int pool_width) {
  CaseGraph g = make_case_graph(def, op_case);
  g.execution.pool_width = pool_width;
  return evaluate(g.graph, g.execution, g.outputs());
}

std::vector<Tensor> run_op(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs) {
  return run_case(OpRegistry::global().require(op),
                  {.label = {}, .inputs = std::move(inputs), .attrs = std::move(attrs)});
}

std::vector<double> values(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs,
                           std::size_t output) {
  return to_doubles(run_op(op, std::move(inputs), std::move(attrs))[output]);
}

std::vector<Tensor> run_update(const std::string& op, const OpCase& op_case, const StepParams& params,
                               int pool_width) {
  CaseGraph g = make_case_graph(OpRegistry::global().require(op), op_case);
  g.execution.params = params;
  g.execution.pool_width = pool_width;
  // The op may have no outputs, so a constant that waits for it is fetched.
  const ValueRef after = add_known(g.graph, "after", Tensor::scalar<std::int32_t>(0));
  g.graph.mutable_node(after.node).control_inputs.push_back(g.node);
  evaluate(g.graph, g.execution, {after});
  std::vector<Tensor> written;
  for (const int i : op_case.variables)
    written.push_back(g.execution.variables.at(g.inputs[static_cast<std::size_t>(i)].node));
  return written;
}

void run_effect(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs) {
  run_update(op, {.label = {}, .inputs = std::move(inputs), .attrs = std::move(attrs)}, {});
}

std::string refusal(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs) {
  return message_of([&] { run_op(op, std::move(inputs), std::move(attrs)); });
}

}  // namespace braid::testing
