#include "worker/strategies/table_loads.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace braid::worker {
namespace {

using enum LoadPart;
constexpr double kIdBytes = 8, kNumberBytes = 4;
// Kernels of several tables run as one, or beside each other: of 26 tables lookups took 7 us together, and
// updates 28 (docs/design/performance.md).
constexpr double kLookupKernels = 0.1, kOwnKernels = 1, kUpdateKernels = 1;
// Making a table's rows dense, counting and masking them: 25 to 39 us a table on two H200, with 4096 and
// 16384 ids a worker into 12 to 200 rows. On hosts the bytes are what counts.
constexpr double kDenseSumKernels = 10;
// Of a row's gradients, one after another in their order: 65536 skewed ids into 10 to 976 rows took 140 to
// 300 us, once for the sums and once for how often rows were read.
constexpr double kSerialUs = 0.017;
constexpr double kEuler = 0.5772;      // sums of 1 / x are log(x) and this
constexpr double kGroupingBytes = 88;  // an id, as engine/ops/common/row_entries.h counts it

/// What the formulas have in common.
struct Sizes {
  double world, others;
  double ids;         // of a worker
  double travels;     // rows or sums of a worker, of tables whose ids all travel
  bool pooled;        //   sums
  double distinct;    // rows of a worker's ids
  double touched;     // rows of all workers' ids
  double row, state;  // bytes of a row that a worker holds, and of its slots
  double whole;       // bytes of a whole row
  double sent;        // bytes of the worker's part of a row, or of a sum, as layers read it
};

Sizes sizes_of(const PlannedTable& table, TablePlan plan, bool all_ids) {
  const TableShard& shard = table.shard;
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  Sizes s{};
  s.world = shard.world;
  s.others = s.world - 1;
  s.ids = number(table.ids_of_step());
  s.pooled = all_ids && table.bags > 0;
  s.travels = s.pooled ? number(table.bags) : s.ids;
  const double rows = std::max(1.0, number(shard.rows));
  s.distinct = distinct_rows(s.ids, rows);
  s.touched = distinct_rows(s.ids * s.world, rows);
  s.whole = kNumberBytes * number(shard.dim);
  const double parts = plan == TablePlan::Column ? s.world : 1;
  s.row = s.whole / parts;
  s.sent = number(table.number_bytes) * number(shard.dim) / parts;
  s.state = kNumberBytes * number(std::ssize(shard.slots) * shard.slot_dim()) / parts;
  return s;
}

bool is_device(const StepCosts& costs) { return costs.card != "CPU"; }

double memory_us(const StepCosts& costs, double count, double bytes) {
  const double each = std::max(bytes, costs.granule_bytes);
  return count * each / costs.memory_bytes_per_us;
}
double flow_us(const StepCosts& costs, double bytes) {
  return bytes / (bytes <= costs.cache_bytes ? costs.cache_bytes_per_us : costs.memory_bytes_per_us);
}

/// Of `ids` gradients of `each` bytes; `from` are the different ones that are read for them.
double update_us(const StepCosts& costs, const Sizes& s, double ids, double from, double touched,
                 double each) {
  const double sums = flow_us(costs, from * each) + ids * each / costs.cache_bytes_per_us;
  return kUpdateKernels * costs.kernel_us + ids * kGroupingBytes / costs.memory_bytes_per_us + sums +
         2 * memory_us(costs, touched, s.row) + (s.state > 0 ? 2 * memory_us(costs, touched, s.state) : 0);
}

/// Whose ids travel as the batch has them.
TableLoad of_all_ids(const StepCosts& costs, const Sizes& s, bool by_columns) {
  const double lookup = kLookupKernels * costs.kernel_us + memory_us(costs, s.world * s.ids, s.row) +
                        flow_us(costs, s.world * s.travels * s.sent);
  const double update = update_us(costs, s, s.world * s.ids, s.world * s.travels, s.touched, s.sent);
  TableLoad load;
  Load& owner = load.owner;
  owner[IdsIn] = s.others * s.ids * kIdBytes;
  owner[Lookup] = lookup;
  owner[RowsOut] = owner[GradientsIn] = s.others * s.travels * s.sent;
  owner[Update] = update;
  if (by_columns) {
    owner[IdsOut] = owner[IdsIn];
    owner[RowsIn] = owner[GradientsOut] = owner[RowsOut];
    owner[Own] = kOwnKernels * costs.kernel_us + 4 * flow_us(costs, s.travels * s.whole);
    load.everyone = owner;
  } else {
    load.everyone[IdsOut] = s.ids * kIdBytes;
    load.everyone[RowsIn] = load.everyone[GradientsOut] = s.travels * s.sent;
  }
  return load;
}

/// Replicated, with dense gradients that ride in the buckets of others: an all-reduce moves them twice.
TableLoad of_dense_sums(const StepCosts& costs, const Sizes& s, double rows) {
  TableLoad load;
  Load& all = load.owner;
  all[Lookup] =
      kLookupKernels * costs.kernel_us + memory_us(costs, s.ids, s.row) + flow_us(costs, s.travels * s.row);
  const double kernels = is_device(costs) ? kDenseSumKernels : kOwnKernels;
  all[Own] = kernels * costs.kernel_us + 2 * s.ids * kGroupingBytes / costs.memory_bytes_per_us +
             3 * flow_us(costs, s.ids * s.row) + flow_us(costs, rows * s.row);
  if (is_device(costs)) all[Own] += 2 * kSerialUs * s.ids / (std::log(rows) + kEuler);  // the longest
  all[GradientsIn] = all[GradientsOut] = 2 * s.others / s.world * rows * (s.row + kNumberBytes);
  all[Update] = update_us(costs, s, rows, rows, s.touched, s.row);
  load.everyone = load.owner;
  return load;
}

/// Rows into the batch's order, and its gradients into lists.
double own_us(const StepCosts& costs, const Sizes& s) {
  return kOwnKernels * costs.kernel_us +
         2 * (flow_us(costs, s.ids * s.whole) + memory_us(costs, s.ids, s.whole));
}

/// Whose distinct ids travel in lists. On a device a list travels with all of its room.
TableLoad of_lists(const StepCosts& costs, const Sizes& s, TablePlan plan, double room) {
  const double sent = room > 0 ? room : plan == TablePlan::Row ? s.distinct / s.world : s.distinct;
  const double holders = plan == TablePlan::Row ? s.world : 1;
  TableLoad load;
  Load& holder = load.owner;
  holder[Lists] = s.ids * costs.list_us_per_id;
  holder[Own] = own_us(costs, s);
  holder[IdsIn] = s.others * sent * kIdBytes;
  holder[RowsOut] = holder[GradientsIn] = s.others * sent * s.row;
  holder[Lookup] = kLookupKernels * costs.kernel_us +
                   memory_us(costs, s.world * s.distinct / holders, s.row) +
                   flow_us(costs, s.world * sent * s.row);
  holder[Update] = update_us(costs, s, s.world * sent, s.world * sent, s.touched / holders, s.row);
  if (plan == TablePlan::Replicate) {  // rows are here; ids travel with their gradients
    holder[RowsOut] = holder[IdsIn] = 0;
    holder[GradientsIn] = holder[GradientsOut] = s.others * sent * (kIdBytes + s.row);
    holder[Lookup] = kLookupKernels * costs.kernel_us + memory_us(costs, s.ids, s.row);
    holder[Own] = own_us(costs, s) / 2;
  } else if (plan != TablePlan::Table) {
    holder[IdsOut] = holder[IdsIn];
    holder[RowsIn] = holder[GradientsOut] = holder[RowsOut];
  }
  load.everyone = holder;
  if (plan == TablePlan::Table) {
    load.everyone = {};
    load.everyone[Lists] = holder[Lists];
    load.everyone[Own] = holder[Own];
    load.everyone[IdsOut] = sent * kIdBytes;
    load.everyone[RowsIn] = load.everyone[GradientsOut] = sent * s.row;
  }
  return load;
}

/// Zipf's law, continuous: of x in 1..rows, 1 - exp(-ids / (H x)); this is what it integrates to.
double integral(double x, double a) { return x * -std::expm1(-a / x) - a * std::expint(-a / x); }

/// Of the `first` most frequent ones.
double distinct_first(double ids, double rows, double first) {
  const double a = std::max(ids, 1.0) / (std::log(std::max(rows, 1.0)) + kEuler);
  return std::clamp(1 + integral(first, a) - integral(1, a), 1.0, std::min(std::max(ids, 1.0), first));
}

/// Those of the `hot` most frequent rows: their part of the ids, and how many of them a worker reads.
Sizes of_hot(Sizes s, double hot, double rows) {
  const double ids = s.ids;
  s.ids *= (std::log(hot) + kEuler) / (std::log(rows) + kEuler);
  s.distinct = distinct_first(ids, rows, hot);
  s.touched = distinct_first(ids * s.world, rows, hot);
  return s;
}

/// Plan ROW whose most frequent rows are on all workers.
TableLoad of_row_and_hot(const StepCosts& costs, const Sizes& all, const TableShard& table, double room,
                         bool is_dense) {
  const auto hot = static_cast<double>(table.most_hot());
  const Sizes of_all = of_hot(all, hot, std::max(hot, static_cast<double>(table.rows)));
  Sizes cold = all;
  cold.ids -= of_all.ids;
  cold.distinct = std::max(0.0, cold.distinct - of_all.distinct);
  cold.touched = std::max(0.0, cold.touched - of_all.touched);
  TableLoad load = of_lists(costs, cold, TablePlan::Row, room);
  TableLoad added = of_lists(costs, of_all, TablePlan::Replicate, room > 0 ? std::min(room, hot) : 0);
  if (is_dense)
    for (const LoadPart part : {GradientsIn, GradientsOut})
      added.owner[part] = added.everyone[part] = 2 * all.others / all.world * hot * (all.row + kNumberBytes);
  load.owner.add(added.owner);
  load.everyone.add(added.everyone);
  return load;
}

}  // namespace

double distinct_rows(double ids, double rows) {
  rows = std::max(rows, 1.0);
  return distinct_first(ids, rows, rows);
}

Load& Load::add(const Load& other, double times) {
  for (std::size_t i = 0; i < of.size(); ++i) of[i] += times * other.of[i];
  memory_bytes += times * other.memory_bytes;
  return *this;
}

Load& Load::raise_to(const Load& other) {
  for (std::size_t i = 0; i < of.size(); ++i) of[i] = std::max(of[i], other.of[i]);
  memory_bytes = std::max(memory_bytes, other.memory_bytes);
  return *this;
}

double Load::received_bytes() const { return (*this)[IdsIn] + (*this)[RowsIn] + (*this)[GradientsIn]; }

TableLoad load_of(const StepCosts& costs, const PlannedTable& table, TablePlan plan, bool all_ids) {
  const Sizes s = sizes_of(table, plan, all_ids);
  TableShard shard = table.shard;
  shard.plan = plan;
  TableLoad load;
  if (shard.world < 2) {
    load.owner[Lookup] = kLookupKernels * costs.kernel_us + memory_us(costs, s.ids, s.row);
    load.owner[Update] = update_us(costs, s, s.ids, s.ids, s.touched, s.sent);
    load.everyone = load.owner;
  } else if (all_ids && plan == TablePlan::Replicate) {
    load = of_dense_sums(costs, s, static_cast<double>(shard.rows));
  } else if (all_ids && plan != TablePlan::Row) {
    load = of_all_ids(costs, s, plan == TablePlan::Column);
  } else {
    const auto room = static_cast<double>(shard.buckets().capacity(table.ids_of_step()));
    const double sent = is_device(costs) ? room : 0;
    load = shard.most_hot() > 0
               ? of_row_and_hot(costs, s, shard, sent, table.sums_hot_densely(is_device(costs)))
               : of_lists(costs, s, plan, sent);
  }
  shard.owner = shard.rank = 0;
  load.owner.memory_bytes = static_cast<double>(shard.local_bytes());
  if (plan == TablePlan::Table && shard.world > 1) shard.rank = 1;
  load.everyone.memory_bytes = static_cast<double>(shard.local_bytes());
  if (plan == TablePlan::Replicate && all_ids) {  // the dense gradient, and its sum
    const double gradients = 2 * static_cast<double>(shard.rows) * (s.row + kNumberBytes);
    load.owner.memory_bytes += gradients;
    load.everyone.memory_bytes += gradients;
  }
  return load;
}

TableStep step_of(const StepCosts& costs, int world, const Load& peak) {
  const auto exchange = [&](LoadPart in, LoadPart out) {
    return exchange_us(costs, world, std::max(peak[in], peak[out]));
  };
  return {.ids = exchange(IdsIn, IdsOut),
          .lookup = peak[Lookup],
          .rows = exchange(RowsIn, RowsOut),
          .own = peak[Own],
          .gradients = exchange(GradientsIn, GradientsOut),
          .update = peak[Update],
          .lists = peak[Lists]};
}

double busy_us(const StepCosts& costs, int world, const Load& load) {
  return step_of(costs, world, load).total();
}

void WorkerLoads::add(const TableLoad& load, int owner, double times) {
  all_.add(load.everyone, times);
  if (owner < 0) return;
  Load& its = beside_[static_cast<std::size_t>(owner)];
  its.add(load.owner, times).add(load.everyone, -times);
  find_most();
}

void WorkerLoads::find_most() {
  most_ = beside_.front();
  for (const Load& its : beside_) most_.raise_to(its);
}

Load WorkerLoads::of(int rank) const { return Load(all_).add(beside(rank)); }

Load WorkerLoads::peak() const { return Load(all_).add(most_); }

Load WorkerLoads::peak_with(const TableLoad& load, int owner) const {
  Load peak = Load(all_).add(load.everyone);
  if (owner < 0) return peak.add(most_);
  const Load its = Load(beside(owner)).add(load.owner).add(load.everyone, -1);
  return peak.add(Load(most_).raise_to(its));
}

double WorkerLoads::mean_bytes() const {
  double sum = 0;
  for (const Load& its : beside_) sum += its.memory_bytes;
  return all_.memory_bytes + sum / static_cast<double>(beside_.size());
}

WorkerLoads loads_of(const StepCosts& costs, std::span<const PlannedTable> tables) {
  WorkerLoads loads(tables.empty() ? 1 : tables.front().shard.world);
  for (const PlannedTable& table : tables) {
    const bool has_owner = table.shard.plan == TablePlan::Table;
    loads.add(load_of(costs, table, table.shard.plan, table.shard.all_ids),
              has_owner ? table.shard.owner : -1);
  }
  return loads;
}

}  // namespace braid::worker
