// What a program is, for people (`braid graph plan`) and for comparing it between ranks and runs.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/program/program.h"

namespace braid {

struct MemoryReport {
  std::uint64_t arena_bytes = 0;
  std::uint64_t serial_arena_bytes = 0;  // the same ops on one stream in this program's issue order
  std::uint64_t largest_live_bytes = 0;  // what is needed at once in that order: no plan of it can be smaller
  std::uint64_t slot_bytes = 0;          // fetched and pulled values, for all steps in flight
  std::uint64_t constant_bytes = 0;
  std::uint64_t variable_bytes = 0;
};
MemoryReport memory_report(const Program& program);

struct StreamReport {
  std::string name;
  int nodes = 0;
  double cost_us = 0;
  int waits = 0;
  int waits_previous = 0;
};
std::vector<StreamReport> stream_report(const Program& program);

/// The plan as text: totals, a table with a row for each stream, decisions, the critical path, and each
/// stream's nodes in their order. Memory is compared with that of `one_stream`, the same program compiled for
/// one, which has an order of its own; null: there is none.
std::string plan_report(const Program& program, const Program* one_stream = nullptr);

/// Equal for programs that run the same nodes in the same order, with the same waits, in the same memory.
std::uint64_t plan_hash(const Program& program);

}  // namespace braid
