#include "worker/model/graph_half.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/import/convert.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "worker/model/def_graph.h"

namespace braid::worker {
namespace {

constexpr int kMostAlike = 4;

/// Feeds of the values that a node of tf.data gives, with their types and shapes.
std::string feeds_of(const NodeDef& node) {
  constexpr int kMost = 12;
  const auto types = node.attr().find("output_types"), shapes = node.attr().find("output_shapes");
  const int count = types == node.attr().end() ? 1 : types->second.list().type_size();
  std::string text = ": feed what it gives, by columns of the data:";
  for (int i = 0; i < std::min(count, kMost); ++i) {
    text += fmt::format("\n    feeds {{ value: \"{}:{}\" column: \"...\" }}", node.name(), i);
    if (types == node.attr().end()) continue;
    text += "    # " + std::string(dtype_name(from_proto(types->second.list().type(i))));
    if (shapes != node.attr().end() && i < shapes->second.list().shape_size())
      text += " " + from_proto(shapes->second.list().shape(i)).to_string();
  }
  return text + (count > kMost ? fmt::format("\n    and {} more", count - kMost) : "");
}

bool reads_elements(const std::string& op) {
  return op == "IteratorGetNext" || op == "IteratorGetNextSync" || op.starts_with("QueueDequeue");
}

/// What makes the elements that a node above gives, which are fed.
bool makes_elements(const std::string& op) {
  return op.ends_with("Dataset") || op.ends_with("DatasetV2") || op.ends_with("DatasetV3") ||
         op.ends_with("Iterator") || op.ends_with("IteratorV2");
}

/// What to write in the job where an op keeps the graph from loading.
std::string hint_for(const std::string& op, const NodeDef* node) {
  if (reads_elements(op) && node) return feeds_of(*node);
  if (op.starts_with("ParseExample") || op.starts_with("ParseSingleExample") || op.starts_with("DecodeCSV"))
    return ": feed what it parses: feeds { value: \"...\" column: \"...\" }";
  if (op.starts_with("While") || op.starts_with("StatelessWhile"))
    return ": give it maximum_iterations, or export the graph with its loop unrolled (Keras: unroll=True); "
           "write a loop over the rows of a batch (tf.map_fn) as tf.vectorized_map";
  if (op.starts_with("TensorList") || op == "EmptyTensorList")
    return ": of a loop, or of its gradient: train with gradients: REDO, and with loops of known length";
  if (op.starts_with("Stack") || op == "Enter")
    return ": of a loop, or of its gradient: train with gradients: REDO, and with loops of known length";
  if (op == "PyFunc" || op == "EagerPyFunc")
    return ": code of the program that wrote the graph: feed its result";
  return {};
}

}  // namespace

std::string value_for(const ModelFile& file, const char* field, const std::string& name, Problems& problems) {
  const auto found = file.value_of(name);
  if (!found) {
    problems.add(
        fmt::format("model.graph.{}: '{}' has no value '{}'{}", field, file.source, name, file.hint(name)));
    return {};
  }
  const NodeIndex index(file.graph);
  ValueName value = parse_value_name(*found);
  for (;;) {
    const NodeDef& node = *index.find(value.node);
    const bool waits = node.input_size() > 0 && node.input(node.input_size() - 1).starts_with('^');
    const bool passes = node.op() == "Identity" || node.op() == "IdentityN";
    if (!waits || !passes || value.output >= node.input_size()) return value.text();
    value = parse_value_name(node.input(value.output));
  }
}

void import_half(GraphHalf& half, const std::vector<std::string>& columns, Problems& problems) {
  std::erase(half.roots, std::string());  // told already
  if (half.roots.empty()) return;
  ImportOptions options{.roots = half.roots};
  for (const std::string& column : columns) options.roots.push_back(column);
  ImportResult result = try_import_graph(half.file.graph, options);
  const NodeIndex index(half.file.graph);
  const bool reads = std::any_of(result.problems.begin(), result.problems.end(),
                                 [](const ImportProblem& problem) { return reads_elements(problem.op); });
  std::map<std::string, int> alike;  // an op that is a hundred times in the way is told a few times
  for (const ImportProblem& problem : result.problems) {
    if (reads && makes_elements(problem.op)) continue;
    if (++alike[problem.op] > kMostAlike) continue;
    const auto call = half.file.call_problems.find(problem.node);
    problems.add(fmt::format("[{}] node '{}': {}{}", problem.op, problem.node,
                             call == half.file.call_problems.end() ? problem.reason : call->second,
                             hint_for(problem.op, index.find(problem.node))));
  }
  for (const auto& [op, count] : alike)
    if (count > kMostAlike)
      problems.add(fmt::format("[{}] and {} more nodes of this op", op, count - kMostAlike));
  half.graph = std::move(result.graph);
}

void refuse_unknown_sizes(const Graph& graph, const std::vector<NodeId>& readers, bool keeps,
                          Problems& problems) {
  int told = 0;
  for (const NodeId id : readers) {
    if (graph.node(id).removed || ++told > 4) continue;
    problems.add(fmt::format(
        "[{}] node '{}': the size of its input follows from the data, which this op does not take. Keep "
        "the size: tf.where(mask, x, 0) and sums in the place of tf.boolean_mask{}",
        graph.node(id).op->name, graph.node(id).name, keeps ? "; or train with gradients: REDO" : ""));
  }
  if (told > 4) problems.add(fmt::format("and {} more nodes that read such values", told - 4));
}

}  // namespace braid::worker
