#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/worker/model/graph_model.h"

#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"
#include "worker/job/job.h"

namespace braid::testing {

Output GraphModelTest::variable(const std::string& name, Shape shape, const Output& first) {
  const Output handle =
      b.op("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", shape}, {"shared_name", name}}, name);
  b.op("AssignVariableOp", {handle, first}, {{"dtype", DType::Float32}}, name + "/Assign");
  return b.op("ReadVariableOp", {handle}, {{"dtype", DType::Float32}}, name + "/Read");
}

Output GraphModelTest::zeros(const std::vector<std::int64_t>& shape) {
  return b.constant(Tensor::zeros(DType::Float32, Shape(shape)));
}

proto::Job GraphModelTest::job(const std::string& fields) {
  const auto file = dir.path() / "graph.pbtxt";
  write_graph_file(b.graph(), file);
  proto::Job job = worker::parse_job(
      "seed: 5 steps: 1 input { format: SYNTHETIC global_batch_size: 4 } "
      "optimizer { learning_rate: 0.5 } model { graph { file: '" +
          file.string() + "' " + fields + " } }",
      "job");
  worker::fill_job_defaults(job);
  worker::check_job(job);
  return job;
}

ModelGraph GraphModelTest::build(const std::string& fields, worker::GraphModelReport* report) {
  return worker::build_graph_model(job(fields), columns, report);
}

std::string GraphModelTest::error_of(const std::string& fields) {
  return message_of([&] { build(fields); });
}

Graph GraphModelTest::graph_of(const ModelGraph& model) { return import_graph(*model.graph, "model"); }

const Node& GraphModelTest::node_of(const Graph& graph, const std::string& name) {
  const NodeId id = graph.find(name);
  if (id == kNoNode) throw InvalidArgument("there is no node '" + name + "'");
  return graph.node(id);
}

const Node& GraphModelTest::handle_of(const Graph& graph, const std::string& variable) {
  for (const VariableInfo& info : list_variables(graph))
    if (info.name == variable) return graph.node(info.handle);
  throw InvalidArgument("there is no variable '" + variable + "'");
}

}  // namespace braid::testing
