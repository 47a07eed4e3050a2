// GraphDef (binary or text) -> Graph. Lowers reference variables (VariableV2, Assign, Apply*) to handle form, strips "^name" and ":0" forms,
// fills default attributes, reads `_stream_id`, `_include_grad`, `_class`, and the device field. Refuses what is not supported with every offending
// node at once: its name, its op and why.
#pragma once

#include <filesystem>
#include <string_view>

#include "engine/ir/graph.h"

namespace braid {

class GraphDef;

/// Throws: InvalidArgument (unknown op, bad input, cycle, duplicate node: all of them in one message, with `source` in front).
Graph import_graph(const GraphDef& graph, std::string_view source = "graph");

/// Reads .pb and .pbtxt (by content, not by name). Throws: InvalidArgument with file and, for text, line.
GraphDef read_graph_file(const std::filesystem::path& file);
void write_graph_file(const GraphDef& graph, const std::filesystem::path& file);  // text when it ends in .pbtxt

}  // namespace braid
