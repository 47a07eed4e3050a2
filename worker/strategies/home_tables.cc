#include "worker/strategies/home_tables.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/table_row.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_buckets.h"
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

std::string home_name(const std::string& table) { return std::string(kHomePrefix) + table; }

}  // namespace

bool is_home_variable(std::string_view name) { return name.starts_with(kHomePrefix); }

void refuse_rows_alone() {
  throw Unavailable(
      "the servers hold rows of a run whose other variables, or newest rows, are gone with its workers, and "
      "there is no checkpoint of both: start the servers again, too");
}

std::optional<HomeTables::Ids> HomeTables::can_take(const TrainingGraph& training, int world) {
  const Graph& graph = training.graph;
  Ids ids;
  Graph sized = graph;
  infer_graph(sized, training.feeds);
  for (const VariableGradient& gradient : training.gradients) {
    if (!gradient.slices) continue;
    if (!gradient.variable.sparse || !OrderedRows::can_take(graph, gradient)) return std::nullopt;
    if (world == 1 && pads_indices(graph, gradient)) return std::nullopt;
    std::int64_t count = 0;
    for (const NodeId id : gathers_of(graph, gradient.variable.handle)) {
      const ValueRef read = known_ids_of(graph, id);
      if (world == 1 && read != graph.node(id).inputs[1]) return std::nullopt;
      if (!sized.info(read).shape.is_static()) return std::nullopt;
      count += sized.info(read).shape.elements();
    }
    if (const auto rows = training.slice_rows.find(gradient.variable.name); rows != training.slice_rows.end())
      count = std::max(count, *std::ranges::max_element(rows->second.indices));
    ids[gradient.variable.name] = count;
  }
  if (ids.empty()) return std::nullopt;
  return ids;
}

void HomeTables::add(const VariableGradient& gradient, int number, const OptimizerSpec& optimizer) {
  const Ints widths = home_widths(optimizer, gradient.variable.shape[1]);
  auto group = std::ranges::find(groups_, widths, &Group::widths);
  if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{widths, {}});
  group->tables.push_back({gradient, number, optimizer, added_++});
}

std::int64_t HomeTables::held_of(const Table& table) const {
  return RowBuckets{.rows = table.gradient.variable.shape[0], .ranks = options_.world}.held();
}

std::int64_t HomeTables::capacity_of(const Table& table) const {
  return std::min(ids_.at(table.gradient.variable.name), held_of(table));
}

/// That a step may name here, by table.
std::vector<std::int64_t> HomeTables::ids_of(const Group& group) const {
  Ints ids;
  for (const Table& table : group.tables)
    ids.push_back(alone() ? ids_.at(table.gradient.variable.name)
                          : std::min(options_.world * capacity_of(table), held_of(table)));
  return ids;
}

void HomeTables::share_room() {
  for (Group& group : groups_) {
    Ints held;
    for (const Table& table : group.tables) held.push_back(held_of(table));
    const Ints shares = ps::share_home(options_.rows, group.widths[0], held, ids_of(group));
    for (std::size_t t = 0; t < shares.size(); ++t) group.tables[t].rows = shares[t];
  }
}

void HomeTables::finish(TrainingGraph& training) {
  Graph& graph = training.graph;
  share_room();
  for (Group& group : groups_) {
    std::vector<std::vector<NodeId>> gathers;
    for (Table& table : group.tables) {
      table.gathers = *in_order_of(graph, table.gradient.slices->indices,
                                   gathers_of(graph, table.gradient.variable.handle));
      gathers.push_back(table.gathers);
    }
    const NodeId keys = add_row_keys(training, group.widths[0], gathers, options_.servers, false);
    group.keys = {keys, 0};
    group.counts = {keys, 1};
    int output = 3;
    for (const Table& table : group.tables)
      for (std::size_t g = 0; g < table.gathers.size(); ++g) group.places.push_back({keys, output++});
  }
  add_swaps(training);
  for (Group& group : groups_) {
    int first_list = 0;
    for (Table& table : group.tables) {
      put_in_place(training, group, table, first_list);
      first_list += static_cast<int>(table.gathers.size());
    }
  }
}

/// `lists`: in the order of tables within groups.
NodeId HomeTables::add_home_keys(TrainingGraph& training, const std::vector<ValueRef>& lists) {
  Graph& graph = training.graph;
  Ints rows, group_tables;
  for (const ValueRef list : lists) training.ahead.push_back(graph.node(list.node).name);
  for (const Group& group : groups_) {
    group_tables.push_back(std::ssize(group.tables));
    for (const Table& table : group.tables) rows.push_back(table.gradient.variable.shape[0]);
  }
  return add_node(graph, "braid.HomeKeys", "ps/home_keys", lists,
                  {{"rows", rows},
                   {"group_tables", group_tables},
                   {"servers", static_cast<std::int64_t>(options_.servers)},
                   {"rank", static_cast<std::int64_t>(options_.rank)}})
      .node;
}

std::vector<OwnRows> HomeTables::find_rows(TrainingGraph& training, const std::vector<ValueRef>& lists,
                                           bool counted) {
  share_room();
  std::vector<ValueRef> in_order;
  for (const Group& group : groups_)
    for (const Table& table : group.tables) in_order.push_back(lists[table.added]);
  const NodeId keys = add_home_keys(training, in_order);
  const auto tables = static_cast<int>(lists.size());
  int list = 0, output = tables;
  for (Group& group : groups_) {
    group.places = {{keys, output++}};
    group.keys = {keys, output++};
    group.counts = {keys, output++};
  }
  add_swaps(training);
  std::vector<OwnRows> found(lists.size());
  for (const Group& group : groups_)
    for (std::size_t t = 0; t < group.tables.size(); ++t, ++list)
      found[group.tables[t].added] = {add_variable(training, group.tables[t]),
                                      {group.swap, static_cast<int>(t)},
                                      counted ? ValueRef{keys, list} : ValueRef{}};
  return found;
}

void HomeTables::update(TrainingGraph& training, const VariableGradient& gradient) {
  for (Group& group : groups_)
    for (Table& table : group.tables) {
      if (gradient.variable.name != home_name(table.gradient.variable.name)) continue;
      add_update(training, gradient, table.optimizer);
      training.graph.mutable_node(training.graph.size() - 1).attrs.set(kSkipNegative, true);
      return add_to_swap(training, group, table);
    }
  throw Internal("variable '" + gradient.variable.name + "' is no home of rows");
}

/// What a step pulls, its swaps, whose variables are added later, and what they send.
void HomeTables::add_swaps(TrainingGraph& training) {
  Graph& graph = training.graph;
  Node rows;
  rows.name = graph.unique_name("ps/home_rows");
  rows.op = &OpRegistry::global().require("braid.PsHomeRows");
  Ints tables, group_tables;
  for (const Group& group : groups_) {
    rows.inputs.push_back(group.keys);
    rows.inputs.push_back(group.counts);
    group_tables.push_back(std::ssize(group.tables));
    for (const Table& table : group.tables) tables.push_back(table.number);
  }
  rows.attrs = {{"tables", tables}, {"group_tables", group_tables}};
  make_service();
  const ValueRef planned{graph.add(std::move(rows)), 0};
  const NodeId arrived = add_node(graph, "braid.PsHomeArrive", "ps/home_arrive", {planned}).node;
  Node leave;
  leave.name = graph.unique_name("ps/home_leave");
  leave.op = &OpRegistry::global().require("braid.PsHomeLeave");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    std::vector<ValueRef> inputs{{arrived, 0}};
    std::ranges::copy(group.places, std::back_inserter(inputs));
    Ints capacities;  // of several workers
    for (const Table& table : group.tables)
      if (!alone()) capacities.push_back(capacity_of(table));
    const auto lists = alone() ? std::ssize(group.places) : std::ssize(group.tables);
    group.swap = add_node(graph, "braid.PsHomeSwap", "ps/home_swap" + std::to_string(group.widths[0]),
                          std::move(inputs),
                          {{"group", static_cast<std::int64_t>(g)},
                           {"lists", static_cast<std::int64_t>(lists)},
                           {"tables", static_cast<std::int64_t>(group.tables.size())},
                           {"capacities", capacities},
                           {"ranks", static_cast<std::int64_t>(options_.world)},
                           {"widths", group.widths}})
                     .node;
    leave.inputs.push_back({group.swap, static_cast<int>(lists)});
  }
  training.targets.push_back(leave.name);
  graph.add(std::move(leave));
  votes_ = {arrived, 1};
}

VariableInfo HomeTables::add_variable(TrainingGraph& training, const Table& table) const {
  VariableInfo home = table.gradient.variable;
  home.name = home_name(home.name);
  home.shape = Shape{table.rows, home.shape[1]};
  home.handle = add_state(training.graph, home.name, home.shape, 0, 0).node;
  return home;
}

/// A table's variable, what reads it, and its update.
void HomeTables::put_in_place(TrainingGraph& training, Group& group, Table& table, int first_list) {
  Graph& graph = training.graph;
  VariableGradient home = table.gradient;
  home.variable = add_variable(training, table);
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
  add_to_swap(training, group, table);
}

/// Its variable and slots. REQUIRES: tables of a group come in their order.
void HomeTables::add_to_swap(TrainingGraph& training, Group& group, Table& table) {
  const std::string name = home_name(table.gradient.variable.name);
  table.variables = {name};
  for (const SlotSpec& slot : optimizer_slots(table.optimizer))
    table.variables.push_back(name + "/" + std::string(slot.name));
  for (const std::string& variable : table.variables)
    training.graph.mutable_node(group.swap).inputs.push_back({training.graph.find(variable), 0});
}

void HomeTables::make_service() {
  if (!servers_) return;
  std::vector<ps::HomeRows::Options> groups;
  for (const Group& group : groups_) {
    ps::HomeRows::Options& options = groups.emplace_back();
    const Ints ids = ids_of(group), &widths = group.widths;
    std::int64_t swaps = 0;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      options.tables.push_back(group.tables[t].number);
      options.slots.push_back(group.tables[t].rows);
      swaps += std::min(ids[t], group.tables[t].rows);
    }
    options.servers = options_.servers;
    options.pool = &runtime_.pool();
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
