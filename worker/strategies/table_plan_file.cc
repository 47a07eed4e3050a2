#include "worker/strategies/table_plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/init.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

constexpr std::string_view kFirstLine = "braid table plan 1";
constexpr int kPlanner = 1;  // raised whenever another plan is made from the same

/// In the order of the file.
template <class Costs>
auto numbers_of(Costs& costs) {
  return std::array{&costs.exchange_us,         &costs.link_bytes_per_us,  &costs.host_link_bytes_per_us,
                    &costs.memory_bytes_per_us, &costs.cache_bytes_per_us, &costs.cache_bytes,
                    &costs.card_bytes,          &costs.granule_bytes,      &costs.kernel_us,
                    &costs.list_us_per_id,      &costs.flops_per_us,       &costs.half_flops_per_us};
}

std::optional<TablePlan> plan_named(const std::string& name) {
  for (const TablePlan plan : {TablePlan::Replicate, TablePlan::Table, TablePlan::Column, TablePlan::Row})
    if (table_plan_name(plan) == name) return plan;
  return std::nullopt;
}

std::uint64_t hexadecimal(const std::string& text, const std::string& place) {
  std::size_t used = 0;
  try {
    const std::uint64_t value = std::stoull(text, &used, 16);
    if (used == text.size()) return value;
  } catch (const std::exception&) {
  }
  throw InvalidArgument(place + ": '" + text + "' is not a number");
}

void read_costs(std::istringstream& line, const std::string& place, StepCosts& costs) {
  line >> costs.workers_per_host;
  for (double* number : numbers_of(costs)) line >> *number;
  if (!line || !(costs.link_bytes_per_us > 0) || costs.workers_per_host < 1)
    throw InvalidArgument(place + ": not the costs of a step");
}

TableShard& read_table(std::istringstream& line, const std::string& place,
                       std::map<std::string, PlannedTable*>& missing) {
  std::string plan, ids, name;
  int owner = -1;
  std::int64_t count = -1, bags = -1;
  line >> plan >> owner >> ids >> count >> bags >> std::ws;
  std::getline(line, name);
  const std::optional<TablePlan> known = plan_named(plan);
  const auto at = missing.find(name);
  if (at == missing.end())
    throw InvalidArgument(place + ": '" + name + "' is not a table of this model, or is there twice");
  const PlannedTable& table = *at->second;
  TableShard& shard = at->second->shard;
  if (!known || owner < 0 || owner >= shard.world || (ids != "ALL" && ids != "DISTINCT") || count < 0 ||
      bags < 0)
    throw InvalidArgument(place + ": not the plan of a table");
  if ((*known != TablePlan::Replicate && !table.can_be_sharded) ||
      (*known == TablePlan::Column && !table.can_have_columns()) || (ids == "ALL" && !table.can_send_all))
    throw InvalidArgument(place + ": '" + name + "' cannot have this plan");
  shard.plan = *known;
  shard.owner = owner;
  shard.all_ids = ids == "ALL";
  at->second->ids = count;
  at->second->bags = bags;
  shard.hot.clear();
  missing.erase(at);
  return shard;
}

void read_hot(std::istringstream& line, const std::string& place, TableShard* table) {
  if (!table || !table->hot.empty() || table->plan != TablePlan::Row)
    throw InvalidArgument(place + ": not behind the line of a table with plan ROW");
  for (std::int64_t row = 0; line >> row;) {
    if (row < 0 || row >= table->rows || (!table->hot.empty() && row <= table->hot.back()))
      throw InvalidArgument(fmt::format("{}: {} is no hot row of '{}'", place, row, table->name));
    table->hot.push_back(row);
  }
  if (!line.eof()) throw InvalidArgument(place + ": hot rows are numbers");
}

}  // namespace

std::uint64_t table_plan_key(const proto::Strategy& strategy, bool on_device, const std::string& card,
                             const std::vector<PlannedTable>& tables) {
  std::string text = fmt::format("planner {} card {} device {}\n", kPlanner, card, on_device);
  text += strategy.hybrid().ShortDebugString() + "\n";
  for (const PlannedTable& table : tables) {
    const TableShard& shard = table.shard;
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {} {} {} {} {} {}\n", shard.name, shard.rows,
                   shard.dim, shard.world, shard.slots.size(), shard.row_wise, table.can_be_sharded,
                   table.can_send_all, table.ids, table.bags);
  }
  return stable_hash(text);
}

std::string table_plan_text(std::uint64_t made_for, const StepCosts& costs,
                            const std::vector<PlannedTable>& tables) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}\nmade for {:016x}\ncard {}\nsource {}\ncosts {}", kFirstLine, made_for, costs.card,
                 costs.source, costs.workers_per_host);
  for (const double* number : numbers_of(costs)) fmt::format_to(out, " {}", *number);
  text += '\n';
  for (const PlannedTable& table : tables) {
    fmt::format_to(out, "table {} {} {} {} {} {}\n", table_plan_name(table.shard.plan), table.shard.owner,
                   table.shard.all_ids ? "ALL" : "DISTINCT", table.ids, table.bags, table.shard.name);
    if (!table.shard.hot.empty()) fmt::format_to(out, "hot {}\n", fmt::join(table.shard.hot, " "));
  }
  return text;
}

TablePlanFile take_table_plan(std::string_view text, const std::string& source,
                              std::vector<PlannedTable>& tables) {
  TablePlanFile file;
  std::map<std::string, PlannedTable*> missing;
  for (PlannedTable& table : tables) missing.emplace(table.shard.name, &table);
  std::istringstream lines{std::string(text)};
  bool has_costs = false;
  TableShard* last = nullptr;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = source + ":" + std::to_string(++number);
    std::istringstream words(line);
    std::string key, rest;
    words >> key >> std::ws;
    if (number == 1) {
      if (line != kFirstLine) throw InvalidArgument(place + ": not a table plan of this version");
    } else if (line.starts_with("made for ")) {
      file.made_for = hexadecimal(line.substr(9), place);
    } else if (key == "card") {
      std::getline(words, file.costs.card);
    } else if (key == "source") {
      std::getline(words, file.costs.source);
    } else if (key == "costs") {
      read_costs(words, place, file.costs);
      has_costs = true;
    } else if (key == "table") {
      last = &read_table(words, place, missing);
    } else if (key == "hot") {
      read_hot(words, place, last);
    } else {
      throw InvalidArgument(place + ": '" + line + "' is not a line of a table plan");
    }
  }
  if (!has_costs || !missing.empty())
    throw InvalidArgument(source + ": the table plan is not complete" +
                          (missing.empty() ? "" : ": '" + missing.begin()->first + "' is missing"));
  return file;
}

}  // namespace braid::worker
