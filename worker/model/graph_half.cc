#include "worker/model/graph_half.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "engine/import/import.h"
#include "worker/model/def_graph.h"

namespace braid::worker {
namespace {

constexpr int kMostAlike = 4;

/// What to write in the job where an op keeps the graph from loading.
std::string hint_for(const std::string& op) {
  if (op.starts_with("Iterator") || op.ends_with("Dataset") || op.starts_with("Queue"))
    return ": feed what it gives: feeds { value: \"" + op + ":0\" column: \"...\" }";
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
  std::map<std::string, int> alike;  // an op that is a hundred times in the way is told a few times
  for (const ImportProblem& problem : result.problems) {
    if (++alike[problem.op] > kMostAlike) continue;
    const auto call = half.file.call_problems.find(problem.node);
    problems.add(fmt::format("[{}] node '{}': {}{}", problem.op, problem.node,
                             call == half.file.call_problems.end() ? problem.reason : call->second,
                             hint_for(problem.op)));
  }
  for (const auto& [op, count] : alike)
    if (count > kMostAlike)
      problems.add(fmt::format("[{}] and {} more nodes of this op", op, count - kMostAlike));
  half.graph = std::move(result.graph);
}

}  // namespace braid::worker
