// Tables that plans are made for. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/strategies/planned_table.h"

namespace braid::worker {

/// Of rows and dim, with one slot: "t0", "t1", ...
inline std::vector<PlannedTable> tables_of(int world,
                                           const std::vector<std::pair<std::int64_t, std::int64_t>>& sizes) {
  std::vector<PlannedTable> tables;
  for (const auto& [rows, dim] : sizes) {
    PlannedTable table;
    table.shard.name = "t" + std::to_string(tables.size());
    table.shard.rows = rows;
    table.shard.dim = dim;
    table.shard.world = world;
    table.shard.slots = {"accumulator"};
    table.ids = 1000;
    tables.push_back(table);
  }
  return tables;
}

/// The tables of MLPerf's DLRM-v2: rows, ids an example. Global batch 55296; sums of one column each.
inline std::vector<PlannedTable> dlrm_v2_tables(int world) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> columns{
      {40000000, 3},  {39060, 2},   {17295, 1},    {7424, 2},    {20265, 6},  {3, 1},         {7122, 1},
      {1543, 1},      {63, 1},      {40000000, 7}, {3067956, 3}, {405282, 8}, {10, 1},        {2209, 6},
      {11938, 9},     {155, 5},     {4, 1},        {976, 1},     {14, 1},     {40000000, 12}, {40000000, 100},
      {40000000, 27}, {590152, 10}, {12973, 3},    {108, 1},     {36, 1}};
  std::vector<PlannedTable> tables;
  for (const auto& [rows, ids] : columns) {
    PlannedTable table = tables_of(world, {{rows, 128}}).front();
    table.shard.name = "c" + std::to_string(tables.size());
    table.ids_per_example = ids;
    table.bags = 55296 / world;
    table.ids = ids * table.bags;
    tables.push_back(table);
  }
  return tables;
}

}  // namespace braid::worker
