// What the parts of a HYBRID step cost where it runs: links between workers, memory that tables lie in,
// kernels. Defaults by card; links and memory of hosts are measured before step 0 (table_measure.h).
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::worker {

/// Rates are bytes, or operations, a microsecond.
struct StepCosts {
  std::string card;    // "H100"; "CPU"
  std::string source;  // where the numbers come from, for people
  int workers_per_host = 1;
  double exchange_us = 0;             // of one exchange of all workers, however little travels
  double link_bytes_per_us = 1;       // that a worker takes in, or gives, to workers of its host
  double host_link_bytes_per_us = 1;  // and to those of other hosts
  double memory_bytes_per_us = 1;     // rows that are read and written at random places
  double cache_bytes_per_us = 1;      // the same of what fits into cache_bytes
  double cache_bytes = 0;
  double card_bytes = 0;      // of memory; 0: not known
  double granule_bytes = 64;  // less of a row costs as much
  double kernel_us = 0;
  double list_us_per_id = 0;  // making lists of ids, on the host
  double flops_per_us = 1;    // products of float32, as TF32 where the card has it
  double half_flops_per_us = 1;
};

/// That tables may take of a card where the job says nothing: three quarters; 0: no limit.
std::int64_t memory_for_tables(const StepCosts& costs);

/// Names that card_costs() knows, "CPU" among them.
std::vector<std::string> known_cards();
/// The first known card whose name is in `description` ("cuda:0 NVIDIA H200"); of another GPU those of
/// an H100, and `source` says so. Empty: of hosts without GPUs.
StepCosts card_costs(std::string_view description);

/// Of an exchange in which each worker sends and receives so many bytes, evenly to and from all others.
double exchange_us(const StepCosts& costs, int world, double bytes);
/// Of a sum over all workers of so many bytes on each.
double all_reduce_us(const StepCosts& costs, int world, double bytes);

}  // namespace braid::worker
