#include "worker/strategies/step_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/ir/op.h"
#include "engine/program/cost_model.h"
#include "engine/program/program.h"
#include "worker/watch/progress_line.h"

namespace braid::worker {
namespace {

/// Of tables, which table_loads.h predicts.
bool is_of_tables(const ProgramOp& node) {
  const std::string_view op = node.op;
  if (node.name.starts_with("columns_of/") || node.name.starts_with("gradient_columns_of/")) return true;
  constexpr std::array<std::string_view, 16> kStarts{
      "braid.SlicesToDense", "braid.SplitHotIds",  "braid.HotRows",
      "braid.BucketIds",     "braid.Unbucket",     "braid.SumBuckets",
      "braid.Bag",           "ResourceGather",     "braid.AllToAll",
      "braid.ToOwners",      "braid.FromOwners",   "braid.ResourceGather",
      "braid.SendToOwners",  "braid.TakeAtOwners", "braid.SendFromOwners",
      "braid.TakeFromOwners"};
  return op.find("SparseApply") != std::string_view::npos ||
         std::ranges::any_of(kStarts, [op](std::string_view start) { return op.starts_with(start); });
}

double bytes_of_inputs(const Program& step, const ProgramOp& op) {
  double bytes = 0;
  for (const Operand& input : op.inputs)
    if (input.buffer >= 0)
      bytes += static_cast<double>(step.buffers[static_cast<std::size_t>(input.buffer)].bytes);
  return bytes;
}

double dense_us(const StepCosts& costs, const Program& step, const ProgramOp& op) {
  const Cost cost = modelled_cost(step, op);
  const Node& node = step.graph.node(op.node);
  const bool is_half = !node.inputs.empty() && dtype_size(step.graph.info(node.inputs[0]).dtype) == 2;
  const double rate = is_half ? costs.half_flops_per_us : costs.flops_per_us;
  const double bytes_rate =
      cost.bytes <= costs.cache_bytes ? costs.cache_bytes_per_us : costs.memory_bytes_per_us;
  return costs.kernel_us + std::max(cost.flops / rate, cost.bytes / bytes_rate);
}

using Named = std::vector<std::pair<const char*, double>>;

Named parts_of(const StepPrediction& prediction) {
  const TableStep& tables = prediction.tables.step;
  return {{"lists of ids", tables.lists},
          {"exchange of ids", tables.ids},
          {"lookups", tables.lookup},
          {"exchange of rows", tables.rows},
          {"rows into place", tables.own},
          {"other layers", prediction.dense_us},
          {"exchange of gradients", tables.gradients},
          {"updates of tables", tables.update},
          {"all-reduce", prediction.all_reduce_us}};
}

}  // namespace

StepPrediction predict_step(const StepCosts& costs, int world, const TablesPrediction& tables,
                            const Program& step) {
  StepPrediction prediction;
  prediction.tables = tables;
  for (const ProgramOp& op : step.ops) {
    if (op.kind != OpKind::Kernel || is_of_tables(op)) continue;
    if (step.graph.node(op.node).op->lane == Lane::Comm)
      prediction.all_reduce_us += all_reduce_us(costs, world, bytes_of_inputs(step, op));
    else
      prediction.dense_us += dense_us(costs, step, op);
  }
  // Counted among the exchanges of gradients.
  const double of_tables = all_reduce_us(costs, world, tables.dense_sums_bytes) - costs.exchange_us;
  prediction.all_reduce_us = std::max(0.0, prediction.all_reduce_us - std::max(0.0, of_tables));
  double all = 0;
  for (const ProgramVariable& variable : step.variables)
    all += static_cast<double>(variable.shape.elements()) * static_cast<double>(dtype_size(variable.dtype));
  prediction.variable_bytes = all;
  return prediction;
}

std::string prediction_text(const StepCosts& costs, const StepPrediction& prediction) {
  const TablesPrediction& tables = prediction.tables;
  const Named parts = parts_of(prediction);
  const double total = prediction.total();
  std::string text = fmt::format(
      "tables: {} of memory on a worker at most, {} on average; at most {} received a step; the busiest "
      "worker has {:.2f} of the average work\n",
      bytes_text(tables.most_memory_bytes), bytes_text(tables.mean_memory_bytes),
      bytes_text(tables.received_bytes), tables.balance);
  text +=
      fmt::format("tables: predicted {:.1f} us a step; planned by bytes alone {:.1f} us, busiest {:.2f}\n",
                  tables.step.total(), tables.by_bytes_us, tables.by_bytes_balance);
  text += fmt::format("step: predicted {:.1f} us if nothing overlaps:", total);
  for (const auto& [name, us] : parts)
    if (us > 0) text += fmt::format(" {} {:.1f},", name, us);
  text.back() = '\n';
  const auto most = std::ranges::max_element(parts, {}, [](const auto& part) { return part.second; });
  text += fmt::format("step: limited by {} ({:.0f} %)\n", most->first,
                      100 * most->second / std::max(total, 1e-9));
  text += fmt::format(
      "step: costs of {}: {}; {:.0f} us an exchange, {:.1f} GB/s from workers of a host of {}", costs.card,
      costs.source, costs.exchange_us, costs.link_bytes_per_us / 1e3, costs.workers_per_host);
  text += fmt::format(", {:.1f} GB/s from others, {:.1f} GB/s of rows in memory\n",
                      costs.host_link_bytes_per_us / 1e3, costs.memory_bytes_per_us / 1e3);
  return text;
}

std::string prediction_json(const StepCosts& costs, const std::vector<PlannedTable>& tables,
                            const StepPrediction& prediction) {
  nlohmann::json json{{"card", costs.card},
                      {"costs", costs.source},
                      {"step_us", prediction.total()},
                      {"tables_us", prediction.tables.step.total()},
                      {"tables_by_bytes_us", prediction.tables.by_bytes_us},
                      {"balance", prediction.tables.balance},
                      {"memory_bytes", prediction.tables.most_memory_bytes},
                      {"received_bytes", prediction.tables.received_bytes}};
  for (const auto& [name, us] : parts_of(prediction)) json["parts"][name] = us;
  json["tables"] = nlohmann::json::array();
  for (const PlannedTable& table : tables) {
    const TableShard& shard = table.shard;
    const TableLoad load = load_of(costs, table, shard.plan, shard.all_ids);
    json["tables"].push_back(
        {{"name", shard.name},
         {"rows", shard.rows},
         {"dim", shard.dim},
         {"plan", table_plan_name(shard.plan)},
         {"worker", shard.plan == TablePlan::Table ? shard.owner : -1},
         {"asked_for", table.by_user},
         {"hot_rows", shard.hot.size()},
         {"ids", table.ids_of_step()},
         {"memory_bytes", load.owner.memory_bytes},
         {"received_bytes", std::max(load.owner.received_bytes(), load.everyone.received_bytes())}});
  }
  return json.dump();
}

}  // namespace braid::worker
