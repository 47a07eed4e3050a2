// The subcommands of `braid graph` beside those of graph.cc, a file each.
#pragma once

#include <map>
#include <string>

#include "cli/commands.h"
#include "engine/ir/shape.h"

namespace braid {
class GraphDef;
}

namespace braid::cli {

bool is_onnx(const std::string& file);
/// A graph's file: GraphDef, binary or text, or an ONNX model when its name ends in .onnx. Throws:
/// InvalidArgument. `shapes` of its inputs are what an ONNX model is translated for.
GraphDef read_graph(const std::string& file, const std::map<std::string, Shape>& shapes = {});

/// `braid graph run FILE --feed name=x.npy --fetch name --out y.npy`: a graph once, on arrays.
void add_graph_run(CLI::App& graph, Action& action);
/// `braid graph stats FILE` and `braid graph dot FILE`: what a graph has in it, and a drawing of it.
void add_graph_stats(CLI::App& graph, Action& action);
/// `braid graph export --model NAME --out FILE`: a model of the zoo as a GraphDef.
void add_graph_export(CLI::App& graph, Action& action);
/// `braid graph import --onnx FILE --out FILE`: an ONNX model as a GraphDef.
void add_graph_import(CLI::App& graph, Action& action);

}  // namespace braid::cli
