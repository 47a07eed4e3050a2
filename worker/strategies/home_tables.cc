#include "worker/strategies/home_tables.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/table_row.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/strategies/homed_rows.h"
#include "worker/strategies/ordered_rows.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::string_view kHomePrefix = "ps_home/";

Ints home_widths(const OptimizerSpec& optimizer, std::int64_t dim) {
  Ints widths(optimizer_slots(optimizer).size() + 1, slot_width(optimizer, dim));
  widths[0] = dim;
  return widths;
}

}  // namespace

bool is_home_variable(std::string_view name) { return name.starts_with(kHomePrefix); }

void refuse_rows_alone() {
  throw Unavailable(
      "the servers hold rows of a run whose other variables, or newest rows, are gone with its workers, and "
      "there is no checkpoint of both: start the servers again, too");
}

std::optional<HomeTables::Ids> HomeTables::can_take(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  Ids ids;
  Graph sized = graph;
  infer_graph(sized, training.feeds);
  for (const VariableGradient& gradient : training.gradients) {
    if (!gradient.slices) continue;
    if (!gradient.variable.sparse || !OrderedRows::can_take(graph, gradient) || pads_indices(graph, gradient))
      return std::nullopt;
    for (const NodeId id : gathers_of(graph, gradient.variable.handle)) {
      const ValueRef read = graph.node(id).inputs[1];
      if (known_ids_of(graph, id) != read || !sized.info(read).shape.is_static()) return std::nullopt;
      ids[id] = sized.info(read).shape.elements();
    }
  }
  if (ids.empty()) return std::nullopt;
  return ids;
}

void HomeTables::add(const VariableGradient& gradient, int number, const OptimizerSpec& optimizer) {
  const Ints widths = home_widths(optimizer, gradient.variable.shape[1]);
  auto group = std::ranges::find(groups_, widths, &Group::widths);
  if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{widths, {}});
  group->tables.push_back({gradient, number, optimizer, {}});
}

/// Of a step, by table.
std::vector<std::int64_t> HomeTables::ids_of(const Group& group) const {
  Ints ids;
  for (const Table& table : group.tables) {
    ids.push_back(0);
    for (const NodeId gather : table.gathers) ids.back() += ids_.at(gather);
  }
  return ids;
}

ValueRef HomeTables::finish(TrainingGraph& training) {
  Graph& graph = training.graph;
  Node rows;
  rows.name = graph.unique_name("ps/home_rows");
  rows.op = &OpRegistry::global().require("braid.PsHomeRows");
  Ints tables, group_tables;
  std::vector<Ints> shares;
  for (Group& group : groups_) {
    std::vector<std::vector<NodeId>> gathers;
    Ints table_rows;
    for (Table& table : group.tables) {
      table.gathers = *in_order_of(graph, table.gradient.slices->indices,
                                   gathers_of(graph, table.gradient.variable.handle));
      gathers.push_back(table.gathers);
      table_rows.push_back(table.gradient.variable.shape[0]);
      tables.push_back(table.number);
    }
    shares.push_back(ps::share_home(options_.rows, group.widths[0], table_rows, ids_of(group)));
    group.keys = add_row_keys(training, group.widths[0], gathers, options_.servers, false);
    rows.inputs.push_back({group.keys, 0});
    rows.inputs.push_back({group.keys, 1});
    group_tables.push_back(std::ssize(group.tables));
  }
  rows.attrs = {{"tables", tables}, {"group_tables", group_tables}};
  make_service(shares);
  const NodeId id = graph.add(std::move(rows));
  Node leave;
  leave.name = graph.unique_name("ps/home_leave");
  leave.op = &OpRegistry::global().require("braid.PsHomeLeave");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    add_variables(training, group, {id, 0}, static_cast<std::int64_t>(g));
    int first_list = 0;
    for (std::size_t t = 0; t < group.tables.size(); ++t) {
      put_in_place(training, group, group.tables[t], shares[g][t], first_list);
      first_list += static_cast<int>(group.tables[t].gathers.size());
    }
    leave.inputs.push_back({group.swap, first_list});
  }
  training.targets.push_back(leave.name);
  graph.add(std::move(leave));
  return {id, 1};
}

/// The swap; its variables follow table by table.
void HomeTables::add_variables(TrainingGraph& training, Group& group, ValueRef ready, std::int64_t number) {
  std::vector<ValueRef> inputs{ready};
  int output = 3;
  for (const Table& table : group.tables)
    for (std::size_t g = 0; g < table.gathers.size(); ++g) inputs.push_back({group.keys, output++});
  const std::int64_t lists = std::ssize(inputs) - 1;
  group.swap = add_node(training.graph, "braid.PsHomeSwap", "ps/home_swap" + std::to_string(group.widths[0]),
                        std::move(inputs),
                        {{"group", number},
                         {"lists", lists},
                         {"tables", static_cast<std::int64_t>(group.tables.size())},
                         {"widths", group.widths}})
                   .node;
}

/// A table's variable with room for `rows`, what reads it, and its update.
void HomeTables::put_in_place(TrainingGraph& training, Group& group, Table& table, std::int64_t rows,
                              int first_list) {
  Graph& graph = training.graph;
  VariableGradient home = table.gradient;
  const std::string name = std::string(kHomePrefix) + home.variable.name;
  const Shape shape{rows, home.variable.shape[1]};
  home.variable.name = name;
  home.variable.shape = shape;
  home.variable.handle = add_state(graph, name, shape, 0, 0).node;
  std::vector<ValueRef> indices;
  for (const NodeId id : table.gathers) {
    Node& gather = graph.mutable_node(id);
    gather.inputs[0] = {home.variable.handle, 0};
    gather.inputs[1] = {group.swap, first_list++};
    if (gather.attrs.find("Tindices") != nullptr) gather.attrs.set("Tindices", DType::Int32);
    indices.push_back(gather.inputs[1]);
  }
  for (ValueRef& list : indices) list = reshaped(graph, list, {-1}, "ps/home_ids/" + home.variable.name);
  home.slices->indices = indices[0];
  if (const auto count = std::ssize(indices); count > 1) {
    indices.push_back(add_node(graph, "Const", "ps/axis", {},
                               {{"dtype", DType::Int32}, {"value", Tensor::scalar<std::int32_t>(0)}}));
    home.slices->indices = add_node(graph, "ConcatV2", "ps/home_indices/" + home.variable.name,
                                    std::move(indices), {{"N", count}, {"T", DType::Int32}});
  }
  add_update(training, home, table.optimizer);
  table.variables = {name};
  for (const SlotSpec& slot : optimizer_slots(table.optimizer))
    table.variables.push_back(name + "/" + std::string(slot.name));
  for (const std::string& variable : table.variables)
    graph.mutable_node(group.swap).inputs.push_back({graph.find(variable), 0});
}

void HomeTables::make_service(const std::vector<Ints>& shares) {
  if (!servers_) return;
  std::vector<ps::HomeRows::Options> groups;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    ps::HomeRows::Options& options = groups.emplace_back();
    for (const Table& table : groups_[g].tables) options.tables.push_back(table.number);
    options.slots = shares[g];
    options.servers = options_.servers;
    options.pool = &runtime_.pool();
    const Ints ids = ids_of(groups_[g]), &widths = groups_[g].widths;
    std::int64_t swaps = 0;
    for (std::size_t t = 0; t < ids.size(); ++t) swaps += std::min(ids[t], shares[g][t]);
    options.layout = {
        .keys = static_cast<std::size_t>(std::accumulate(ids.begin(), ids.end(), std::int64_t{0})),
        .swaps = static_cast<std::size_t>(swaps),
        .width = static_cast<std::size_t>(std::accumulate(widths.begin(), widths.end(), std::int64_t{0})),
        .steps = static_cast<std::size_t>(options_.steps)};
  }
  const auto deadline = runtime_.services().find<StepServices>()->peer_deadline;
  homed_ = std::make_shared<HomedRows>(servers_, std::move(groups), deadline);
  runtime_.services().provide<HomedRows>(homed_);
  runtime_.services().provide<KeptRows>(homed_);
}

void HomeTables::flush(std::uint64_t step, const WaitContext& wait) {
  std::map<std::string, Tensor> values;  // of the table that is read
  homed_->flush(
      step,
      [&](std::size_t group, std::int32_t table, std::uint32_t slot, float* out) {
        const Group& its = groups_[group];
        const std::vector<std::string>& names = its.tables[static_cast<std::size_t>(table)].variables;
        if (!values.contains(names[0])) {
          values.clear();
          for (const std::string& name : names) values.emplace(name, *runtime_.variables().read(name));
        }
        for (std::size_t piece = 0; piece < names.size(); ++piece) {
          const auto width = static_cast<std::size_t>(its.widths[piece]);
          std::copy_n(values.at(names[piece]).data<float>().data() + slot * width, width, out);
          out += width;
        }
      },
      wait);
}

void HomeTables::clear() {
  if (homed_) homed_->clear();
}

}  // namespace braid::worker
