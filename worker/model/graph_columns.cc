// What a graph needs of data, and what was found in it as text. worker/model/graph_model.h has both.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/input/schema/table.h"
#include "proto/job.pb.h"
#include "worker/model/def_graph.h"
#include "worker/model/graph_model.h"

namespace braid::worker {

std::string GraphModelReport::text() const {
  std::string text = nodes <= nodes_in_file
                         ? fmt::format("{} of {} nodes are needed\n", nodes, nodes_in_file)
                         : fmt::format("{} nodes are made of the file's {}\n", nodes, nodes_in_file);
  for (const std::string& feed : feeds) text += "  fed       " + feed + "\n";
  for (const Variable& variable : variables)
    text += fmt::format("  variable  '{}' {}: {}, begins with {}\n", variable.name, variable.type,
                        variable.role, variable.initial);
  for (const std::string& update : updates) text += "  update    '" + update + "'\n";
  return text;
}

std::string GraphModelReport::summary() const {
  const auto count = [this](std::string_view role) {
    return std::count_if(variables.begin(), variables.end(),
                         [&](const Variable& variable) { return variable.role == role; });
  };
  const auto by_rows = count("trained by rows");
  return fmt::format("{} of {} nodes, {} variables trained, {} of them by rows, {} updates", nodes,
                     nodes_in_file, count("trained") + by_rows, by_rows, updates.size());
}

std::vector<InputColumn> columns_of_table(const Table& table) {
  std::vector<InputColumn> columns;
  for (const TableColumn& column : table.columns) {
    const auto dims = column.data.shape().dims().subspan(1);
    const DType dtype = column.data.dtype() == DType::UInt8 ? DType::Float32 : column.data.dtype();
    std::int64_t ids = 0;
    if (!column.fields.empty() && std::ranges::all_of(column.fields, [](const auto& f) { return f.ids > 0; }))
      ids = std::ranges::max(column.fields, {}, &TableField::ids).ids;
    columns.push_back({column.name, dtype, Shape(std::vector<std::int64_t>(dims.begin(), dims.end())), ids});
  }
  return columns;
}

std::vector<InputColumn> columns_of_placeholders(const proto::Job& job) {
  const proto::TrainedGraph& asked = job.model().graph();
  std::vector<InputColumn> columns;
  const auto add = [&](const std::string& name, const DeclaredValue& value) {
    for (const InputColumn& column : columns)
      if (column.name == name) return;
    std::vector<std::int64_t> row;
    if (value.shape.has_rank() && value.shape.rank() > 0)
      for (const std::int64_t dim : value.shape.dims().subspan(1))
        row.push_back(std::max<std::int64_t>(dim, 1));
    // What columns can be: numbers and ids.
    const bool ids = value.dtype == DType::Int32 || value.dtype == DType::String;
    columns.push_back({name, ids ? DType::Int64 : value.dtype, Shape(std::move(row))});
  };
  std::vector<std::string> files{asked.file()};
  if (!asked.inference_file().empty()) files.push_back(asked.inference_file());
  for (const std::string& name : files) {
    const ModelFile file = read_model_file(name);
    std::set<std::string> fed;
    for (const proto::GraphFeed& feed : asked.feeds()) {
      const auto value = file.value_of(feed.value());
      if (!value) continue;
      fed.insert(*value);
      const ValueName at = parse_value_name(*value);
      if (!feed.column().empty())
        add(feed.column(), declared_value(file.graph, *NodeIndex(file.graph).find(at.node), at.output));
    }
    std::vector<std::string> roots;
    for (const std::string& root :
         {asked.loss(), asked.prediction(), asked.attach().prediction(), asked.train_op()})
      if (const auto value = root.empty() ? std::nullopt : file.value_of(root)) roots.push_back(*value);
    const NodeIndex index(file.graph);
    for (const NodeDef* node : index.above(roots))
      if (node->op() == "Placeholder" && !fed.contains(node->name()))
        add(node->name(), declared_value(file.graph, *node, 0));
  }
  if (asked.has_attach()) {
    const bool classes = asked.attach().kind() == proto::AttachedLoss::SOFTMAX;
    add(asked.attach().label().empty() ? "label" : asked.attach().label(),
        {classes ? DType::Int64 : DType::Float32, Shape{Shape::kUnknown}});
  }
  return columns;
}

}  // namespace braid::worker
