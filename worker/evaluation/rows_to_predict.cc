#include "worker/evaluation/rows_to_predict.h"

#include <algorithm>
#include <set>

#include "engine/input/schema/table.h"
#include "models/model.h"
#include "proto/job.pb.h"
#include "worker/model/def_graph.h"
#include "worker/model/graph_model.h"

namespace braid::worker {

std::vector<std::string> columns_apart(const ModelGraph& model, const std::vector<std::string>& outputs) {
  std::vector<std::string> columns{model.label, "weight"};
  for (const ModelTask& task : model.tasks) columns.push_back(task.label);
  const GraphDef& graph = model.inference ? *model.inference : *model.graph;
  std::set<std::string> needed;
  for (const NodeDef* node : NodeIndex(graph).above(outputs)) needed.insert(node->name());
  for (const std::string& column : model.columns)
    if (!needed.contains(column)) columns.push_back(column);
  return columns;
}

std::shared_ptr<const Table> with_graph_columns(const proto::Job& job,
                                                const std::shared_ptr<const Table>& shapes) {
  if (!job.model().has_graph()) return shapes;
  auto whole = std::make_shared<Table>(*shapes);
  for (const InputColumn& column : columns_of_placeholders(job)) {
    if (whole->find(column.name)) continue;
    std::vector<std::int64_t> dims{shapes->rows};
    dims.insert(dims.end(), column.row.dims().begin(), column.row.dims().end());
    whole->columns.push_back({column.name, Tensor::zeros(column.dtype, Shape(std::move(dims)))});
  }
  return whole;
}

std::shared_ptr<const Table> completed(const std::shared_ptr<const Table>& rows, const Table& shapes,
                                       const std::vector<std::string>& apart) {
  auto whole = std::make_shared<Table>(*rows);
  for (const TableColumn& column : shapes.columns) {
    if (rows->find(column.name) || std::find(apart.begin(), apart.end(), column.name) == apart.end())
      continue;
    Shape shape = column.data.shape();
    shape.set_dim(0, rows->rows);
    whole->columns.push_back({column.name, Tensor::zeros(column.data.dtype(), shape)});
  }
  return whole;
}

}  // namespace braid::worker
