// The subcommands of `braid graph` beside those of graph.cc, a file each.
#pragma once

#include <cstdint>

#include "cli/commands.h"
#include "cli/graph_model_flags.h"

namespace braid::cli {

/// `braid graph run FILE --feed name=x.npy --fetch name --out y.npy`: a graph once, on arrays.
void add_graph_run(CLI::App& graph, Action& action);
/// `braid graph stats FILE` and `braid graph dot FILE`: what a graph has in it, and a drawing of it.
void add_graph_stats(CLI::App& graph, Action& action);
/// `braid graph export --model NAME --out FILE`: a model of the zoo as a GraphDef.
void add_graph_export(CLI::App& graph, Action& action);
/// `braid graph import --onnx FILE --out FILE`: an ONNX model as a GraphDef.
void add_graph_import(CLI::App& graph, Action& action);

/// `braid graph check FILE --train --loss NAME`: prints what would be trained, or all that keeps it from
/// that, and gives the exit code. `batch`: rows of the step that is compiled.
int check_graph_for_training(const GraphModelFlags& flags, std::int64_t batch);

}  // namespace braid::cli
