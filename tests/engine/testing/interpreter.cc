#include "tests/engine/testing/interpreter.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/wait_context.h"
#include "engine/ir/infer.h"

namespace braid::testing {

namespace {

constexpr auto kNodeTimeout = std::chrono::seconds(60);

bool is_view_only(const Node& node) {
  return !node.outputs.empty() && node.op->views.size() == node.outputs.size();
}

bool all_outputs_in(const Node& node, const std::set<ValueRef>& fed) {
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (!fed.contains({node.id, static_cast<int>(i)})) return false;
  }
  return !node.outputs.empty();
}

// What the fetches and targets need; what only feeds need goes.
void prune(Graph& graph, const std::set<ValueRef>& fed, std::vector<NodeId> roots) {
  std::vector<char> needed(static_cast<std::size_t>(graph.size()));
  const auto visit = [&](NodeId id) {
    if (!needed[static_cast<std::size_t>(id)]) {
      needed[static_cast<std::size_t>(id)] = 1;
      roots.push_back(id);
    }
  };
  for (const NodeId id : std::vector<NodeId>(roots)) needed[static_cast<std::size_t>(id)] = 1;
  while (!roots.empty()) {
    const Node& node = graph.node(roots.back());
    roots.pop_back();
    if (all_outputs_in(node, fed)) continue;
    for (const ValueRef input : node.inputs) visit(input.node);
    for (const NodeId control : node.control_inputs) visit(control);
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!needed[static_cast<std::size_t>(id)] && !graph.node(id).removed) graph.remove(id);
  }
}

bool writes(const Node& node, std::size_t input) {
  const Access access = handle_access(*node.op, input);
  return access == Access::Write || access == Access::ReadWrite;
}

struct Accesses {
  std::vector<NodeId> readers;
  std::vector<NodeId> writers;
};

std::map<std::string, Accesses> accesses_by_variable(const Graph& graph) {
  std::map<std::string, Accesses> result;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed) continue;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph.info(node.inputs[i]).dtype != DType::Resource) continue;
      if (!node.outputs.empty() && node.outputs[0].dtype == DType::Resource)
        continue;  // passes the handle on
      Accesses& accesses = result[variable_of(graph, node.inputs[i]).name];
      (writes(node, i) ? accesses.writers : accesses.readers).push_back(id);
    }
  }
  return result;
}

// result[id]: there is a path from `from` to id.
std::vector<char> reached_from(const Graph& graph, const std::vector<NodeId>& order, NodeId from) {
  std::vector<char> after(static_cast<std::size_t>(graph.size()));
  after[static_cast<std::size_t>(from)] = 1;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    char& mark = after[static_cast<std::size_t>(id)];
    for (const ValueRef input : node.inputs) mark |= after[static_cast<std::size_t>(input.node)];
    for (const NodeId control : node.control_inputs) mark |= after[static_cast<std::size_t>(control)];
  }
  return after;
}

// Reads before writes, unless the write already comes first.
void order_variable_accesses(Graph& graph) {
  const std::vector<NodeId> order = graph.topological_order();
  for (const auto& [name, accesses] : accesses_by_variable(graph)) {
    for (const NodeId writer : accesses.writers) {
      const std::vector<char> after = reached_from(graph, order, writer);
      for (const NodeId reader : accesses.readers) {
        if (!after[static_cast<std::size_t>(reader)])
          graph.mutable_node(writer).control_inputs.push_back(reader);
      }
    }
  }
}

void run_kernel(const PreparedKernel& kernel, const KernelArgs& args) {
  if (kernel.run) {
    kernel.run(args);
    return;
  }
  std::promise<ErrorPtr> done;
  auto result = done.get_future();
  kernel.run_async(args, [&done](ErrorPtr error) { done.set_value(std::move(error)); });
  if (const ErrorPtr error = result.get()) throw_error(*error);
}

class Run {
 public:
  Run(const Graph& graph, std::map<std::string, Tensor>& variables, ThreadPool& pool,
      const Services& services, const StepParams& params)
      : graph_(graph), variables_(variables), pool_(pool), services_(services), params_(params) {}

  void feed(ValueRef value, Tensor tensor) {
    values_[value] = std::move(tensor);
    fed_.insert(value);
  }
  const Tensor& value(ValueRef value) const { return values_.at(value); }

  void execute(const Node& node) {
    if (all_outputs_in(node, fed_)) return;
    if (node.op->name == "VarHandleOp") {
      values_[{node.id, 0}] = variable(variable_of(graph_, {node.id, 0}));
    } else if (node.op->name == "Const") {
      values_[{node.id, 0}] = node.attrs.require<Tensor>("value");
    } else if (is_view_only(node)) {
      execute_view(node);
    } else if (node.op->cpu) {
      execute_kernel(node);
    } else if (!node.known_values.empty()) {
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        values_[{node.id, static_cast<int>(i)}] = node.known_values[i];
      }
    } else if (!node.outputs.empty()) {
      throw InvalidArgument("[" + node.op->name + "] node '" + node.name + "': has no kernel and no value");
    }
  }

 private:
  Tensor& variable(const VariableInfo& info) {
    Tensor& tensor = variables_[info.name];
    if (!tensor.defined()) tensor = Tensor::zeros(info.dtype, info.shape);
    if (tensor.dtype() != info.dtype || tensor.shape() != info.shape) {
      throw InvalidArgument("variable '" + info.name + "' has another type or shape than the graph says");
    }
    return tensor;
  }

  void execute_view(const Node& node) {
    for (const auto& [output, input] : node.op->views) {
      const OutputInfo& info = node.outputs[static_cast<std::size_t>(output)];
      const Tensor& source = value(node.inputs[static_cast<std::size_t>(input)]);
      const bool passes_handle = info.dtype == DType::Resource;
      values_[{node.id, output}] =
          passes_handle ? source : Tensor(source.dtype(), info.shape, source.clone().memory());
    }
  }

  void execute_kernel(const Node& node) {
    std::vector<OutputInfo> inputs;
    std::vector<const Tensor*> known;
    std::vector<void*> input_pointers;
    for (const ValueRef input : node.inputs) {
      if (const Node& source = graph_.node(input.node); source.removed && !values_.contains(input)) {
        const OutputInfo& info = source.outputs[static_cast<std::size_t>(input.output)];
        values_[input] = Tensor::zeros(info.dtype, info.shape);  // its shape is all that is read
      }
      Tensor& tensor = values_.at(input);
      inputs.push_back({tensor.dtype(), tensor.shape()});  // a handle's tensor is the variable
      known.push_back(graph_.known_value(input));
      input_pointers.push_back(tensor.raw());
    }
    std::vector<Tensor> outputs;
    std::vector<void*> output_pointers;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const OutputInfo& info = node.outputs[i];
      if (!info.shape.is_static()) {
        throw InvalidArgument("[" + node.op->name + "] node '" + node.name + "': output " +
                              std::to_string(i) + " has no static shape: " + info.shape.to_string());
      }
      outputs.emplace_back(info.dtype, info.shape);
      std::memset(outputs.back().raw(), 0xCD,
                  outputs.back().bytes());  // a kernel that leaves bytes unwritten shows
      output_pointers.push_back(outputs.back().raw());
    }
    const PreparedKernel kernel = node.op->cpu({node, inputs, node.outputs, known, pool_, services_});
    constexpr std::size_t kGuard = 64;  // bytes behind the scratch memory, which no kernel may touch
    const auto scratch = allocate_aligned(kernel.scratch_bytes + kGuard);
    std::byte* const guard = scratch.get() + kernel.scratch_bytes;
    std::fill_n(guard, kGuard, std::byte{0xA5});
    const WaitContext wait = WaitContext::with_timeout(kNodeTimeout);
    run_kernel(kernel, {input_pointers.data(), output_pointers.data(), scratch.get(), &params_, &wait,
                        StreamRef::host()});
    if (std::any_of(guard, guard + kGuard, [](std::byte byte) { return byte != std::byte{0xA5}; }))
      throw std::logic_error("[" + node.op->name + "] node '" + node.name + "' writes behind its " +
                             std::to_string(kernel.scratch_bytes) + " bytes of scratch memory");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      values_.try_emplace({node.id, static_cast<int>(i)}, std::move(outputs[i]));  // a fed output stays
    }
  }

  const Graph& graph_;
  std::map<std::string, Tensor>& variables_;
  ThreadPool& pool_;
  const Services& services_;
  const StepParams& params_;
  std::map<ValueRef, Tensor> values_;
  std::set<ValueRef> fed_;
};

}  // namespace

std::vector<Tensor> Interpreter::run(const Feeds& feeds, const std::vector<std::string>& fetches,
                                     const std::vector<std::string>& targets) {
  Graph graph = graph_;
  std::vector<FeedInfo> feed_infos;
  std::set<ValueRef> fed;
  for (const auto& [name, tensor] : feeds) {
    const ValueRef value = graph.parse_value(name);
    feed_infos.push_back({value, tensor.dtype(), tensor.shape()});
    fed.insert(value);
  }
  std::vector<ValueRef> wanted;
  std::vector<NodeId> roots;
  for (const std::string& name : fetches) {
    wanted.push_back(graph.parse_value(name));
    roots.push_back(wanted.back().node);
  }
  for (const std::string& name : targets) roots.push_back(graph.parse_value("^" + name).node);

  prune(graph, fed, roots);
  std::erase_if(feed_infos, [&](const FeedInfo& feed) { return graph.node(feed.value.node).removed; });
  infer_graph(graph, feed_infos);
  order_variable_accesses(graph);

  Run run(graph, variables_, pool_, services_, params_);
  for (const FeedInfo& feed : feed_infos) run.feed(feed.value, feeds.at(graph.value_name(feed.value)));
  for (const NodeId id : graph.topological_order()) run.execute(graph.node(id));
  std::vector<Tensor> results;
  for (const ValueRef value : wanted) results.push_back(run.value(value).clone());
  return results;
}

}  // namespace braid::testing
