// Graphs as other programs write them, in a file of a directory that is removed at the end, and the models
// that jobs make of them. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/ir/graph.h"
#include "proto/job.pb.h"
#include "tests/support/temp_dir.h"
#include "worker/model/graph_model.h"

namespace braid::testing {

class GraphModelTest : public ::testing::Test {
 protected:
  /// A resource variable, an assignment of `first` to it, and its value.
  Output variable(const std::string& name, Shape shape, const Output& first);
  Output zeros(const std::vector<std::int64_t>& shape);
  /// A job whose graph is what `b` has, with text protobuf of further fields of model.graph.
  proto::Job job(const std::string& fields);
  ModelGraph build(const std::string& fields, worker::GraphModelReport* report = nullptr);
  std::string error_of(const std::string& fields);
  /// Of the model's training graph, with shapes.
  static Graph graph_of(const ModelGraph& model);
  static const Node& node_of(const Graph& graph, const std::string& name);
  /// The handle of a variable.
  static const Node& handle_of(const Graph& graph, const std::string& variable);

  GraphBuilder b;
  std::vector<worker::InputColumn> columns{
      {"x", DType::Float32, {3}}, {"ids", DType::Int64, {2}}, {"label", DType::Float32, {}}};
  TempDir dir;
};

}  // namespace braid::testing
