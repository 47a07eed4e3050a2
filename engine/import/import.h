// GraphDef (binary or text) -> Graph. Inlines calls of the library's functions, lowers reference variables
// (VariableV2, Assign, Apply*) to handle form, widens types without kernels (widen.h), strips "^name" and
// ":0" forms, reads `_stream_id`, `_include_grad`, `_class` and the device field; absent attributes keep the
// ops' defaults. Refuses what is not supported with every offending node at once: its name, its op and why.
// Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"

namespace braid {

class GraphDef;

struct ImportOptions {
  /// Values and nodes ("name", "name:1"); only what they need is loaded and checked, e.g. not the Save and
  /// Restore ops of a training graph. Empty: everything.
  std::vector<std::string> roots;
};

/// Why one node cannot be loaded. Nodes that only depend on it are not reported.
struct ImportProblem {
  std::string node;
  std::string op;
  std::string reason;
};

struct ImportResult {
  Graph graph;                          // without the nodes that have problems and what depends on them
  std::vector<ImportProblem> problems;  // in the order of the file
};
ImportResult try_import_graph(const GraphDef& graph, const ImportOptions& options = {});

/// Throws: InvalidArgument (unknown op, bad input, cycle, duplicate node: all of them in one message, with
/// `source` in front).
Graph import_graph(const GraphDef& graph, std::string_view source = "graph",
                   const ImportOptions& options = {});

/// Reads .pb and .pbtxt (by content, not by name), and the graph of a binary MetaGraphDef (TensorFlow 1's
/// .meta) or of the one that a SavedModel (saved_model.pb, or the folder with it) has for serving. Throws:
/// InvalidArgument with file and, for text, line; for ops that only Braid itself makes, with the nodes.
GraphDef read_graph_file(const std::filesystem::path& file);
void write_graph_file(const GraphDef& graph,
                      const std::filesystem::path& file);  // text when it ends in .pbtxt

}  // namespace braid
