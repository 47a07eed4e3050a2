#include "engine/import/op_forms.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <variant>

#include "engine/import/op_role.h"
#include "engine/ir/tensor.h"

namespace braid {
namespace {

struct Renamed {
  std::string_view from, to;
};

constexpr Renamed kRenamed[] = {
    {"AccumulateNV2", "AddN"},
    {"BiasAddV1", "BiasAdd"},
    {"ConjugateTranspose", "Transpose"},
    {"DebugIdentity", "Identity"},
    {"GuaranteeConst", "Identity"},
    {"ScatterNdNonAliasingAdd", "TensorScatterAdd"},
    {"IsVariableInitialized", "VarIsInitializedOp"},
};

template <class T>
const T* find_attr(const PendingNode& node, std::string_view name) {
  const Attr* attr = node.attrs.find(name);
  return attr ? std::get_if<T>(static_cast<const AttrValue_*>(attr)) : nullptr;
}

bool adds_strings(const PendingNode& node) {
  const auto* type = find_attr<DType>(node, "T");
  return type && *type == DType::String;
}

/// Hashes of integers that AsString has made strings of are those of the integers.
void hash_the_integers(const PendingGraph& graph, PendingNode& node) {
  if (node.inputs.empty()) return;
  const PendingInput input = node.inputs[0];
  const PendingNode& text = graph.nodes[static_cast<std::size_t>(input.node)];
  if (text.op != "AsString" || text.inputs.empty()) return;
  const auto* type = find_attr<DType>(text, "T");
  if (!type || (*type != DType::Int32 && *type != DType::Int64)) return;
  for (const char* form : {"width", "precision"})
    if (const auto* value = find_attr<std::int64_t>(text, form); value && *value != -1) return;
  node.inputs[0] = text.inputs[0];
}

/// A GatherV2 with batch axes is another op here.
void name_batch_gather(PendingNode& node) {
  const auto* batch_dims = find_attr<std::int64_t>(node, "batch_dims");
  if (batch_dims && *batch_dims != 0) node.op = "braid.BatchGather";
}

/// MaxPoolV2(x, ksize, strides) and MaxPoolGradV2(x, y, dy, ksize, strides): the last two become attributes.
void take_window_inputs(PendingGraph& graph, PendingNode& node, std::string_view op, std::size_t inputs) {
  if (node.inputs.size() != inputs + 2) return;
  const char* const names[] = {"ksize", "strides"};
  for (std::size_t i = 0; i < 2; ++i) {
    const PendingNode& source = graph.nodes[static_cast<std::size_t>(node.inputs[inputs + i].node)];
    const auto* value = role_of(source.op) == OpRole::Constant ? find_attr<Tensor>(source, "value") : nullptr;
    if (!value || (value->dtype() != DType::Int32 && value->dtype() != DType::Int64))
      return node.add_problem(std::string(names[i]) + " must be a constant");
    node.attrs.set(names[i], tensor_to_int64s(*value));
  }
  node.inputs.resize(inputs);
  node.op = op;
}

/// A node before `user`, named after it.
PendingInput add_before(PendingGraph& graph, std::size_t user, const char* op,
                        std::vector<PendingInput> inputs, AttrMap attrs = {}) {
  PendingNode node;
  node.name = graph.nodes[user].name + "/" + op;
  node.op = op;
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  node.device = graph.nodes[user].device;
  node.stream = graph.nodes[user].stream;
  return {graph.add(std::move(node)), 0};
}

/// EuclideanNorm(x, axes) is the root of a sum of squares.
void take_norm_apart(PendingGraph& graph, std::size_t index) {
  const std::vector<PendingInput> inputs = graph.nodes[index].inputs;
  if (inputs.size() != 2) return;
  AttrMap attrs;
  if (const auto* keep = find_attr<bool>(graph.nodes[index], "keep_dims")) attrs.set("keep_dims", *keep);
  const PendingInput squares = add_before(graph, index, "Square", {inputs[0]});
  const PendingInput sum = add_before(graph, index, "Sum", {squares, inputs[1]}, std::move(attrs));
  graph.nodes[index].op = "Sqrt";
  graph.nodes[index].inputs = {sum};
}

/// ResourceGatherNd(variable, indices) gathers from what the variable is.
void read_before_gather(PendingGraph& graph, std::size_t index) {
  if (graph.nodes[index].inputs.size() != 2) return;
  AttrMap attrs;
  if (const auto* type = find_attr<DType>(graph.nodes[index], "dtype")) attrs.set("dtype", *type);
  const PendingInput value =
      add_before(graph, index, "ReadVariableOp", {graph.nodes[index].inputs[0]}, std::move(attrs));
  graph.nodes[index].op = "GatherNd";
  graph.nodes[index].inputs[0] = value;
}

/// Whether nobody reads these nodes but they themselves and `reader`.
bool is_closed(const PendingGraph& graph, const std::set<int>& nodes, int reader) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (nodes.contains(static_cast<int>(i)) || static_cast<int>(i) == reader) continue;
    for (const PendingInput& input : graph.nodes[i].inputs)
      if (nodes.contains(input.node)) return false;
  }
  return true;
}

/// SparseToDense of what ComputeAccidentalHits(true [B, T], sampled [S]) gives, as sampled losses have it:
/// where a sampled class is one of the row's true ones the least number, else the default.
void compare_classes(PendingGraph& graph, std::size_t index) {
  const std::vector<PendingInput> inputs = graph.nodes[index].inputs;
  if (inputs.size() != 4) return;
  const PendingInput hits = inputs[2];
  const PendingNode& found = graph.nodes[static_cast<std::size_t>(hits.node)];
  const PendingNode& pairs = graph.nodes[static_cast<std::size_t>(inputs[0].node)];
  if (found.op != "ComputeAccidentalHits" || found.inputs.size() != 2 || hits.output != 2) return;
  if (pairs.op != "ConcatV2" || pairs.inputs.size() != 3) return;
  std::set<int> gone{hits.node, inputs[0].node};
  for (const int part : {0, 1}) {
    PendingInput of = pairs.inputs[static_cast<std::size_t>(part)];
    for (;;) {
      const PendingNode& node = graph.nodes[static_cast<std::size_t>(of.node)];
      if ((node.op != "Cast" && node.op != "Reshape") || node.inputs.empty()) break;
      gone.insert(of.node);
      of = node.inputs[0];
    }
    if (of.node != hits.node || of.output != part) return;
  }
  if (!is_closed(graph, gone, static_cast<int>(index))) return;
  const std::vector<PendingInput> classes = found.inputs;
  for (const int node : gone) {  // nobody reads them any more
    PendingNode& unread = graph.nodes[static_cast<std::size_t>(node)];
    unread.op = "Const";
    unread.attrs = {{"value", Tensor::scalar(std::int32_t{0})}, {"dtype", DType::Int32}};
    unread.inputs.clear();
    unread.controls.clear();
  }
  const auto constant = [&](const Tensor& value) {
    return add_before(graph, index, "Const", {}, {{"value", value}, {"dtype", value.dtype()}});
  };
  const PendingInput column =
      add_before(graph, index, "ExpandDims", {classes[0], constant(Tensor::scalar(std::int32_t{2}))});
  const PendingInput equal = add_before(graph, index, "Equal", {column, classes[1]});
  const PendingInput any =
      add_before(graph, index, "Any", {equal, constant(Tensor::from<std::int32_t>({1}, std::vector{1}))},
                 {{"keep_dims", false}});
  const PendingInput least = constant(Tensor::scalar(std::numeric_limits<float>::lowest()));
  graph.nodes[index].op = "SelectV2";
  graph.nodes[index].attrs = {{"T", DType::Float32}};
  graph.nodes[index].inputs = {any, least, inputs[3]};
}

/// Cross(a, b): with the last axis turned round by one and by two, a' b'' - a'' b'.
void take_cross_product_apart(PendingGraph& graph, std::size_t index) {
  const std::vector<PendingInput> inputs = graph.nodes[index].inputs;
  if (inputs.size() != 2) return;
  const auto constant = [&](const Tensor& value) {
    return add_before(graph, index, "Const", {}, {{"value", value}, {"dtype", DType::Int32}});
  };
  const PendingInput axis = constant(Tensor::scalar(std::int32_t{-1}));
  const PendingInput by_one = constant(Tensor::from<std::int32_t>({3}, std::vector<std::int32_t>{1, 2, 0}));
  const PendingInput by_two = constant(Tensor::from<std::int32_t>({3}, std::vector<std::int32_t>{2, 0, 1}));
  const auto product = [&](PendingInput of_a, PendingInput of_b) {
    const PendingInput a = add_before(graph, index, "GatherV2", {inputs[0], of_a, axis});
    const PendingInput b = add_before(graph, index, "GatherV2", {inputs[1], of_b, axis});
    return add_before(graph, index, "Mul", {a, b});
  };
  const PendingInput first = product(by_one, by_two), second = product(by_two, by_one);
  graph.nodes[index].op = "Sub";
  graph.nodes[index].inputs = {first, second};
}

/// The axes of `labels` that neither `other` nor `output` has; none where a label stands twice.
std::vector<std::int32_t> lonely_axes(std::string_view labels, std::string_view other,
                                      std::string_view output) {
  std::vector<std::int32_t> axes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels.find(labels[i], i + 1) != std::string_view::npos) return {};
    const bool is_lonely =
        other.find(labels[i]) == std::string_view::npos && output.find(labels[i]) == std::string_view::npos;
    if (is_lonely) axes.push_back(static_cast<std::int32_t>(i));
  }
  return axes;
}

/// A Sum of the node's input along these axes takes its place.
void sum_input(PendingGraph& graph, std::size_t user, std::size_t input,
               const std::vector<std::int32_t>& axes) {
  PendingNode constant, sum;
  constant.name = graph.nodes[user].name + "/axes";
  constant.op = "Const";
  constant.attrs = {{"value", Tensor::from<std::int32_t>({static_cast<std::int64_t>(axes.size())}, axes)},
                    {"dtype", DType::Int32}};
  sum.name = graph.nodes[user].name + "/Sum";
  sum.op = "Sum";
  for (PendingNode* node : {&constant, &sum}) node->device = graph.nodes[user].device;
  sum.stream = graph.nodes[user].stream;
  sum.inputs = {graph.nodes[user].inputs[input], {graph.add(std::move(constant)), 0}};
  const int added = graph.add(std::move(sum));
  graph.nodes[user].inputs[input] = {added, 0};
}

/// Einsum "ij,jk->k": what is summed over one operand alone is summed before, which leaves a product.
void sum_lonely_labels(PendingGraph& graph, std::size_t index) {
  const auto* equation = find_attr<std::string>(graph.nodes[index], "equation");
  if (!equation || graph.nodes[index].inputs.size() != 2) return;
  std::string text;
  std::copy_if(equation->begin(), equation->end(), std::back_inserter(text), [](char c) { return c != ' '; });
  const std::size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow ||
      text.find('.') != std::string::npos)
    return;
  std::string operands[] = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1)};
  const std::string output = text.substr(arrow + 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto axes = lonely_axes(operands[i], operands[1 - i], output);
    if (axes.empty()) continue;
    sum_input(graph, index, i, axes);
    for (std::size_t k = axes.size(); k-- > 0;) operands[i].erase(static_cast<std::size_t>(axes[k]), 1);
  }
  graph.nodes[index].attrs.set("equation", operands[0] + "," + operands[1] + "->" + output);
}

Tensor without(const Tensor& strings, const std::vector<bool>& dropped) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < dropped.size(); ++i)
    if (!dropped[i]) kept.emplace_back(strings.string_at(static_cast<std::int64_t>(i)));
  return Tensor::strings({static_cast<std::int64_t>(kept.size())}, kept);
}

/// TensorFlow 2 restores a string beside the variables, the description of its objects, that nobody reads and
/// that a program could not hold: it is not restored.
void drop_unread_strings(PendingGraph& graph, std::size_t restore) {
  const auto* dtypes = find_attr<std::vector<DType>>(graph.nodes[restore], "dtypes");
  if (!dtypes || graph.nodes[restore].inputs.size() != 3) return;
  std::vector<bool> dropped;
  for (const DType dtype : *dtypes) dropped.push_back(dtype == DType::String);
  std::vector<PendingInput*> uses;
  for (PendingNode& node : graph.nodes)
    for (PendingInput& input : node.inputs)
      if (static_cast<std::size_t>(input.node) == restore) uses.push_back(&input);
  for (const PendingInput* use : uses)
    if (static_cast<std::size_t>(use->output) < dropped.size())
      dropped[static_cast<std::size_t>(use->output)] = false;
  if (std::find(dropped.begin(), dropped.end(), true) == dropped.end()) return;
  const Tensor* texts[2] = {};  // names and slices
  for (std::size_t i = 0; i < 2; ++i) {
    const PendingNode& source =
        graph.nodes[static_cast<std::size_t>(graph.nodes[restore].inputs[i + 1].node)];
    texts[i] = role_of(source.op) == OpRole::Constant ? find_attr<Tensor>(source, "value") : nullptr;
    const auto count = static_cast<std::int64_t>(dropped.size());
    if (!texts[i] || texts[i]->dtype() != DType::String || texts[i]->shape() != Shape{count}) return;
  }
  for (PendingInput* use : uses)
    use->output -= static_cast<int>(std::count(dropped.begin(), dropped.begin() + use->output, true));
  std::vector<DType> kept;
  for (std::size_t i = 0; i < dropped.size(); ++i)
    if (!dropped[i]) kept.push_back((*dtypes)[i]);
  const Tensor rest[] = {without(*texts[0], dropped), without(*texts[1], dropped)};
  graph.nodes[restore].attrs.set("dtypes", std::move(kept));
  for (std::size_t i = 0; i < 2; ++i) {
    PendingNode constant;
    constant.name = graph.nodes[restore].name + (i == 0 ? "/names" : "/slices");
    constant.op = "Const";
    constant.attrs = {{"value", rest[i]}, {"dtype", DType::String}};
    const int added = graph.add(std::move(constant));
    graph.nodes[restore].inputs[i + 1] = {added, 0};
  }
}

}  // namespace

void rename_forms(PendingGraph& graph) {
  for (PendingNode& node : graph.nodes) {
    const auto* row = std::find_if(std::begin(kRenamed), std::end(kRenamed),
                                   [&](const Renamed& r) { return r.from == node.op; });
    if (row != std::end(kRenamed)) node.op = row->to;
    if (node.op == "GatherV2") name_batch_gather(node);
    if ((node.op == "Add" || node.op == "AddV2") && adds_strings(node)) node.op = "StringJoin";
    if (node.op.starts_with("StringToHashBucket")) hash_the_integers(graph, node);
    if (node.op == "MaxPoolV2") take_window_inputs(graph, node, "MaxPool", 1);
    if (node.op == "MaxPoolGradV2") take_window_inputs(graph, node, "MaxPoolGrad", 3);
  }
  for (std::size_t i = 0, count = graph.nodes.size(); i < count; ++i) {
    if (graph.nodes[i].op == "Einsum") sum_lonely_labels(graph, i);
    if (graph.nodes[i].op == "RestoreV2") drop_unread_strings(graph, i);
    if (graph.nodes[i].op == "EuclideanNorm") take_norm_apart(graph, i);
    if (graph.nodes[i].op == "SparseToDense") compare_classes(graph, i);
    if (graph.nodes[i].op == "ResourceGatherNd") read_before_gather(graph, i);
    if (graph.nodes[i].op == "Cross") take_cross_product_apart(graph, i);
  }
}

}  // namespace braid
