#include "tests/fuzz/run_graph.h"

#include <chrono>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/graph/specialize.h"
#include "engine/import/check.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"

namespace braid::fuzz {
namespace {

constexpr std::int64_t kMostElements = 4096;  // of a placeholder that is fed with zeros
constexpr auto kTimeout = std::chrono::seconds(20);

void feed_placeholders(const Graph& graph, std::map<std::string, Tensor>& feeds) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->name != "Placeholder" || feeds.contains(node.name)) continue;
    const OutputInfo& info = node.outputs.at(0);
    Shape shape = info.shape.has_rank() ? info.shape : Shape{};
    std::int64_t elements = 1;  // stops growing where it is too large
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape.dim(axis) < 0) shape.set_dim(axis, 2);
      elements = shape.dim(axis) > kMostElements || elements > kMostElements ? kMostElements + 1
                                                                             : elements * shape.dim(axis);
    }
    const bool is_small = dtype_size(info.dtype) != 0 && elements <= kMostElements;
    if (is_small) feeds.emplace(node.name, Tensor::zeros(info.dtype, shape));
  }
}

}  // namespace

void check_and_run(const GraphDef& def, std::map<std::string, Tensor> feeds,
                   const std::vector<std::string>& fetches) {
  format_check(check_graph(def));
  const Graph graph = import_graph(def, "graph", {.roots = fetches});
  std::erase_if(feeds, [&](const auto& feed) { return graph.find(feed.first) == kNoNode; });
  feed_placeholders(graph, feeds);
  if (fetches.empty()) return;
  const Graph fitted = specialize(graph, feeds, fetches, {});
  CompileRequest request{{}, fetches, {}};
  StepRequest step;
  for (const auto& [name, tensor] : feeds) {
    request.feeds.push_back({name, tensor.dtype(), tensor.shape()});
    step.feeds.push_back(tensor);
  }
  Runtime runtime(RuntimeOptions{.intra_op_threads = 1});
  Instance instance(compile(fitted, request, {}), runtime);
  for (NodeId id = 0; id < instance.program().graph.size(); ++id) {
    const Node& node = instance.program().graph.node(id);
    if (node.removed || node.op->name != "VarHandleOp") continue;
    const VariableInfo info = variable_of(instance.program().graph, {id, 0});
    initialize_variable(node, 1, *runtime.variables().find(info.name));
  }
  instance.run(std::move(step), WaitContext::with_timeout(kTimeout));
}

}  // namespace braid::fuzz
