// `braid graph stats`: nodes by op, parameters, floating-point operations. `braid graph dot`: the graph for
// Graphviz.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "cli/graph_tools.h"
#include "engine/import/import.h"
#include "engine/import/node_inputs.h"
#include "engine/import/onnx/any_graph.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "worker/strategies/strategy.h"

namespace braid::cli {
namespace {

struct StatsOptions {
  std::string file;
  std::string out;
  std::int64_t batch = 1;
};

struct OpStats {
  int nodes = 0;
  double flops = 0;
};

/// The graph with a batch of that size; what cannot be loaded is left out.
Graph with_batch(const GraphDef& def, std::int64_t batch) {
  Graph graph = try_import_graph(def).graph;
  std::vector<FeedInfo> feeds;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->role != OpRole::Placeholder) continue;
    Shape shape = node.outputs[0].shape;
    if (!shape.has_rank()) continue;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == Shape::kUnknown) shape.set_dim(axis, batch);
    feeds.push_back({{id, 0}, node.outputs[0].dtype, shape});
  }
  infer_graph(graph, feeds);
  return graph;
}

double flops_of(const Graph& graph, const Node& node) {
  if (!node.op->cost) return 0;
  std::vector<OutputInfo> inputs;
  std::vector<const Tensor*> values;
  for (const ValueRef input : node.inputs) {
    inputs.push_back(graph.info(input));
    values.push_back(graph.known_value(input));
  }
  return node.op->cost(InferContext(node, inputs, values), node.outputs).flops;
}

std::string in_words(double count) {
  for (const auto& [unit, name] : {std::pair{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}})
    if (count >= unit) return fmt::format("{:.3g}{}", count / unit, name);
  return fmt::format("{:.0f}", count);
}

/// Floating-point constants of at least one axis: the weights of a frozen graph.
std::int64_t constant_weights(const Graph& graph) {
  std::int64_t elements = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->role != OpRole::Constant || !is_floating(node.outputs[0].dtype)) continue;
    if (node.outputs[0].shape.rank() > 0) elements += node.outputs[0].shape.elements();
  }
  return elements;
}

int stats(const StatsOptions& options) {
  const GraphDef def = read_any_graph(options.file);
  std::string misfit;  // why the graph does not take the batch
  const Graph graph = [&] {
    try {
      return with_batch(def, options.batch);
    } catch (const InvalidArgument& error) {
      misfit = error.message();
      return try_import_graph(def).graph;
    }
  }();
  std::map<std::string, OpStats> ops;
  for (const NodeDef& node : def.node()) ++ops[node.op()].nodes;
  double flops = 0;
  int loaded = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed) continue;
    ++loaded;
    const double own = flops_of(graph, node);
    flops += own;
    ops[node.op->name].flops += own;
  }
  std::vector<std::pair<std::string, OpStats>> rows(ops.begin(), ops.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.flops > b.second.flops; });
  fmt::print("{:<32} {:>7} {:>12}\n", "op", "nodes", "flops");
  for (const auto& [op, row] : rows) fmt::print("{:<32} {:>7} {:>12}\n", op, row.nodes, in_words(row.flops));
  std::int64_t parameters = 0;
  const std::vector<VariableInfo> variables = list_variables(graph);
  for (const VariableInfo& variable : variables) parameters += variable.shape.elements();
  fmt::print("nodes: {}  ops: {}\n", def.node_size(), rows.size());
  fmt::print("variables: {} with {} parameters\n", variables.size(), parameters);
  fmt::print("constants: {} weights\n", constant_weights(graph));
  if (misfit.empty())
    fmt::print("flops: {:.0f} (about {}, batch {})\n", flops, in_words(flops), options.batch);
  else
    fmt::print(
        "flops: {:.0f} (about {}, where shapes are known; {} for unknown dimensions does not fit: {})\n",
        flops, in_words(flops), options.batch, misfit);
  if (loaded < def.node_size())
    fmt::print("{} nodes could not be loaded and count nothing; see braid graph check\n",
               def.node_size() - loaded);
  return kExitSuccess;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  result += '"';
  return result;
}

/// The edge's label: the value's shape, where the graph has that value.
std::string value_style(const Graph& graph, const std::string& input) {
  try {
    return fmt::format(" [label=\"{}\", fontsize=8]", graph.info(graph.parse_value(input)).shape.to_string());
  } catch (const InvalidArgument&) {
    return "";  // drawn all the same: the node could not be loaded, or has become one without outputs
  }
}

std::string drawing(const GraphDef& def, const Graph& graph) {
  std::string text =
      "digraph graph_def {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
  for (const NodeDef& node : def.node()) {
    const bool is_source = node.op() == "Const" || node.op() == "Placeholder" || node.op().starts_with("Var");
    text += fmt::format("  {} [label=\"{}\\n{}\"{}];\n", quoted(node.name()), node.op(),
                        quoted(node.name()).substr(1, quoted(node.name()).size() - 2),
                        is_source ? ", style=filled, fillcolor=lightgrey" : "");
  }
  for (const NodeDef& node : def.node())
    for (const std::string& input : node.input()) {
      const std::string style = input.starts_with('^') ? " [style=dashed]" : value_style(graph, input);
      text += fmt::format("  {} -> {}{};\n", quoted(node_of(input)), quoted(node.name()), style);
    }
  text += "}\n";
  return text;
}

int dot(const StatsOptions& options) {
  const GraphDef def = read_any_graph(options.file);
  const std::string text = drawing(def, try_import_graph(def).graph);
  if (options.out.empty())
    fmt::print("{}", text);
  else
    write_file_atomically(options.out, text);
  return kExitSuccess;
}

}  // namespace

void add_graph_stats(CLI::App& graph, Action& action) {
  auto options = std::make_shared<StatsOptions>();
  const auto add = [&](const char* name, const char* text, int (*run)(const StatsOptions&)) {
    CLI::App* sub = graph.add_subcommand(name, text);
    add_op_library_option(*sub);
    sub->add_option("FILE", options->file, "GraphDef, binary or text, or an ONNX model")
        ->check(CLI::ExistingPath)
        ->required();
    sub->callback([options, run, &action] {
      action = [options, run] {
        worker::register_strategy_ops();
        return run(*options);
      };
    });
    return sub;
  };
  add("stats", "Count nodes by op, parameters and floating-point operations", stats)
      ->add_option("--batch", options->batch, "Stands for unknown dimensions of placeholders")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("dot", "Draw the graph for Graphviz", dot)
      ->add_option("--out", options->out, "A file instead of the output");
}

}  // namespace braid::cli
