#include "engine/import/onnx/any_graph.h"

#include "engine/import/import.h"

namespace braid {

bool is_onnx(const std::filesystem::path& file) { return file.extension() == ".onnx"; }

GraphDef read_any_graph(const std::filesystem::path& file, const OnnxInputShapes& shapes) {
  return is_onnx(file) ? import_onnx(file, shapes).graph : read_graph_file(file);
}

}  // namespace braid
