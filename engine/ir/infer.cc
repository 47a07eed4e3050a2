#include "engine/ir/infer.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "engine/ir/constant_folder.h"
#include "engine/ir/op.h"

namespace braid {

namespace {

std::vector<Tensor> known_values(const Node& node, std::span<const OutputInfo> inputs,
                                 std::span<const Tensor* const> values) {
  if (node.op->role == OpRole::Constant) {
    const Attr* value = node.attrs.find("value");
    const Tensor* tensor = value ? std::get_if<Tensor>(static_cast<const AttrValue_*>(value)) : nullptr;
    return tensor ? std::vector<Tensor>{*tensor} : std::vector<Tensor>{};
  }
  if (node.op->known) return node.op->known(node, inputs);
  return ConstantFolder().fold(node, inputs, values);
}

std::string at_node(const Node& node, const std::string& message) {
  if (message.starts_with("[")) return message;
  return "[" + node.op->name + "] node '" + node.name + "': " + message;
}

/// What is known to be too large for any machine is refused here, where the node is known.
void check_size(const OutputInfo& output) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;  // what a process can map at all
  const auto size = static_cast<std::int64_t>(std::max<std::size_t>(dtype_size(output.dtype), 1));
  // Single sizes, too: rules add and multiply them.
  const auto dims = output.shape.has_rank() ? output.shape.dims() : std::span<const std::int64_t>();
  const bool is_wide =
      std::any_of(dims.begin(), dims.end(), [](std::int64_t dim) { return dim > kMostBytes; });
  if (is_wide || (output.shape.is_static() && output.shape.elements() > kMostBytes / size))
    throw InvalidArgument("a value of shape " + output.shape.to_string() + " does not fit into memory");
}

void infer_from_inputs(const Graph& graph, Node& node) {
  std::vector<OutputInfo> inputs;
  std::vector<const Tensor*> values;
  inputs.reserve(node.inputs.size());
  values.reserve(node.inputs.size());
  for (const ValueRef input : node.inputs) {
    inputs.push_back(graph.info(input));
    values.push_back(graph.known_value(input));
  }
  InferContext context(node, inputs, values);
  node.op->infer(context);
  node.outputs = context.take_outputs();
  for (const OutputInfo& output : node.outputs) check_size(output);
  node.known_values = known_values(node, inputs, values);
}

void apply_feed(const Graph& graph, Node& node, const FeedInfo& feed) {
  OutputInfo& info = node.outputs[static_cast<std::size_t>(feed.value.output)];
  Shape merged;
  if (info.dtype != feed.dtype || !merge_shapes(info.shape, feed.shape, merged)) {
    throw InvalidArgument("[" + node.op->name + "] node '" + node.name + "': feed '" +
                          graph.value_name(feed.value) + "' is " + std::string(dtype_name(feed.dtype)) + " " +
                          feed.shape.to_string() + ", the graph expects " +
                          std::string(dtype_name(info.dtype)) + " " + info.shape.to_string());
  }
  info.shape = std::move(merged);
  if (!node.known_values.empty()) node.known_values[static_cast<std::size_t>(feed.value.output)] = Tensor();
}

}  // namespace

bool reads_shape_only(const Node& node, std::size_t input) {
  const auto count = static_cast<int>(node.inputs.size());
  return std::any_of(node.op->shape_only.begin(), node.op->shape_only.end(),
                     [&](int i) { return (i < 0 ? i + count : i) == static_cast<int>(input); });
}

void infer_node(Graph& graph, NodeId id) {
  Node& node = graph.mutable_node(id);
  try {
    infer_from_inputs(graph, node);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(at_node(node, error.message()));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(at_node(node, error.message()));
  }
}

void infer_graph(Graph& graph, std::span<const FeedInfo> feeds) {
  std::multimap<NodeId, const FeedInfo*> feeds_by_node;
  for (const FeedInfo& feed : feeds) feeds_by_node.emplace(feed.value.node, &feed);
  for (const NodeId id : graph.topological_order()) {
    infer_node(graph, id);
    const auto [first, last] = feeds_by_node.equal_range(id);
    for (auto it = first; it != last; ++it) apply_feed(graph, graph.mutable_node(id), *it->second);
  }
}

}  // namespace braid
