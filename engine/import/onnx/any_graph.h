// Graphs of whatever format Braid loads, told apart by name and content: GraphDef (binary or text),
// MetaGraphDef, SavedModel (its file or its folder), ONNX. Thread rule: pure functions.
#pragma once

#include <filesystem>

#include "engine/import/onnx/onnx.h"

namespace braid {

/// By the name's end, ".onnx".
bool is_onnx(const std::filesystem::path& file);

/// `shapes` of its inputs are what an ONNX model is translated for. Throws: InvalidArgument, what
/// read_graph_file() and import_onnx() throw.
GraphDef read_any_graph(const std::filesystem::path& file, const OnnxInputShapes& shapes = {});

}  // namespace braid
