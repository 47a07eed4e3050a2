// The file of a graph that is to be trained: its nodes with all functions inlined, and what its format says
// beside. Thread rule: values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/import/meta_graph.h"
#include "engine/import/onnx/onnx.h"
#include "proto/graph.pb.h"

namespace braid::worker {

struct ModelFile {
  std::string source;  // its name
  GraphDef graph;
  std::map<std::string, std::string> call_problems;  // calls of functions that could not be inlined, and why
  MetaGraphFacts facts;
  std::map<std::string, std::string> renamed;  // nodes whose names columns have taken -> theirs now
  std::set<std::string> fed_wrongly;           // nodes of which a problem tells already
  // Of an ONNX model:
  std::optional<std::set<std::string>> initializers;  // nodes of its parameters
  std::set<std::string> statistics;                   // variables that normalisation which trains keeps
  bool trains = false;                                // it computes otherwise in inference

  /// `name` as a value of the graph: that of a node, or of a key of a signature's inputs or outputs
  /// ("logits", or "train/logits"; of signatures that have it for different values "serving_default" counts);
  /// nothing where there is none.
  std::optional<std::string> value_of(const std::string& name) const;
  /// Keys of signatures that mean the value, most specific last.
  std::vector<std::string> keys_of(const std::string& value) const;
  /// "; did you mean 'x'?", or nothing.
  std::string hint(const std::string& name) const;
};

/// `use`: how an ONNX model computes. Throws: InvalidArgument, DataLoss.
ModelFile read_model_file(const std::string& file, OnnxUse use = OnnxUse::AsWritten);

}  // namespace braid::worker
