// ONNX models -> GraphDef with TensorFlow's ops, and a few of Braid's own. What a model's values
// are called stays: its inputs are placeholders, its outputs nodes, of their names (without ":" and the like,
// clean_name). Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"
#include "proto/graph.pb.h"

namespace braid {

struct OnnxProblem {
  std::string node;  // its name, or that of its first output
  std::string op;
  std::string reason;
};

struct OnnxValue {
  std::string name;
  DType dtype = DType::Invalid;
  Shape shape;
};

/// A running statistic of normalisation that trains.
struct OnnxStatistic {
  std::string node;  // of its initializer
  std::string next;  // the value that a step makes of it; "" for inference
};

struct OnnxImport {
  GraphDef graph;  // without the nodes that have problems and what depends on them
  std::vector<OnnxValue> inputs, outputs;
  std::vector<OnnxProblem> problems;    // in the order of the file
  std::vector<std::string> parameters;  // nodes of the float initializers that training would change
  std::vector<OnnxStatistic> statistics;
  std::vector<std::string> remarks;  // what whoever trains the model should know
  bool trains = false;               // it has normalisation or dropout that computes otherwise in inference
  int nodes = 0;                     // in the file
};

/// By an input's name as the GraphDef has it: the shape that it will be fed with. What must
/// be known while a model is translated, e.g. how long a sequence is, follows from it.
using OnnxInputShapes = std::map<std::string, Shape>;

/// Whether the graph may have nodes of Braid's own: for recurrent layers, which are unrolled otherwise, and
/// for sums by index.
enum class OwnNodes { Made, None };

/// Inference: normalisation in training mode takes the statistics that are kept, where those are
/// initializers, and dropout keeps everything.
enum class OnnxUse { AsWritten, Inference };

/// Throws: InvalidArgument when the file is no ONNX model, or a shape contradicts the model's.
OnnxImport try_import_onnx(const std::filesystem::path& file, const OnnxInputShapes& shapes = {},
                           OwnNodes own = OwnNodes::Made, OnnxUse use = OnnxUse::AsWritten);

/// A model in memory; external data is looked for in `folder`, and `source` says in errors where the bytes
/// are from. Throws: as above.
OnnxImport try_parse_onnx(std::string_view model, const std::string& source,
                          const std::filesystem::path& folder, const OnnxInputShapes& shapes = {},
                          OwnNodes own = OwnNodes::Made, OnnxUse use = OnnxUse::AsWritten);

/// Throws: InvalidArgument with every node that cannot be translated and why.
OnnxImport import_onnx(const std::filesystem::path& file, const OnnxInputShapes& shapes = {},
                       OwnNodes own = OwnNodes::Made, OnnxUse use = OnnxUse::AsWritten);

}  // namespace braid
