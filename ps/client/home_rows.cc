#include "ps/client/home_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace braid::ps {
namespace {

// Entries are asked for so far ahead of their use.
constexpr std::size_t kEntriesAhead = 16;

}  // namespace

std::vector<std::int64_t> share_home(std::int64_t rows, std::int64_t dim,
                                     const std::vector<std::int64_t>& table_rows,
                                     const std::vector<std::int64_t>& ids) {
  std::vector<std::int64_t> shares(table_rows.size(), 0);
  std::int64_t needed = 0;
  for (std::size_t t = 0; t < shares.size(); ++t) needed += std::min(ids[t], table_rows[t]);
  if (rows < needed)
    throw InvalidArgument(
        fmt::format("strategy.ps.cache_rows is {}, and a batch may name {} rows of the tables of {} numbers "
                    "a row: set {} "
                    "or more, or 0 for no cache",
                    rows, needed, dim, needed));
  // Tables that get all their rows leave more for the others.
  std::vector<std::size_t> open(shares.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  double left = static_cast<double>(rows);
  for (bool again = true; again && !open.empty();) {
    double all = 0;
    for (const std::size_t t : open) all += static_cast<double>(ids[t]);
    const double times = all > 0 ? left / all : 0;
    const auto whole = std::stable_partition(open.begin(), open.end(), [&](std::size_t t) {
      return static_cast<double>(table_rows[t]) > times * static_cast<double>(ids[t]);
    });
    again = whole != open.end();
    for (auto t = whole; t != open.end(); ++t) left -= static_cast<double>(shares[*t] = table_rows[*t]);
    open.erase(whole, open.end());
    if (again) continue;
    for (const std::size_t t : open)
      shares[t] = std::max(std::min(ids[t], table_rows[t]),
                           static_cast<std::int64_t>(times * static_cast<double>(ids[t])));
  }
  for (std::int64_t& share : shares) share = std::max<std::int64_t>(share, 1);
  return shares;
}

HomeRows::HomeRows(Options options) : options_(std::move(options)), rounds_(options_.layout.steps) {
  for (const std::int64_t slots : options_.slots) plans_.emplace_back(static_cast<int>(plans_.size()), slots);
}

void HomeRows::plan_table(std::size_t table, std::uint64_t step, const OrderedKeys& keys, Round& round,
                          std::int32_t* slots) {
  HomePlan& plan = plans_[table];
  std::vector<Gone>& gone = round.gone[table];
  gone.clear();
  const auto for_keys = [&](const auto& body) {  // body(place, end of these places)
    std::size_t first = 0;
    for (std::size_t c = 0; c < keys.counts.size(); first += static_cast<std::size_t>(keys.counts[c++])) {
      if (c % plans_.size() != table) continue;
      const std::size_t end = first + static_cast<std::size_t>(keys.counts[c]);
      for (std::size_t at = first; at < end; ++at) body(at, end);
    }
  };
  plan.begin(step);
  // What is here is held before anything makes room: a row that left in the step that names it could not come
  // back in time.
  for_keys([&](std::size_t at, std::size_t end) {
    if (at + 2 * kEntriesAhead < end) plan.prefetch(keys.keys[at + 2 * kEntriesAhead]);
    if (at + kEntriesAhead < end) plan.prefetch_slot(keys.keys[at + kEntriesAhead]);
    const std::uint32_t slot = plan.find(keys.keys[at]);
    round.hits[at] = slot != HomePlan::kNone ? 1 : 0;
    slots[at] = static_cast<std::int32_t>(slot);
  });
  std::optional<HomePlan::Row> left;
  for_keys([&](std::size_t at, std::size_t) {
    if (round.hits[at] != 0) return;
    const std::uint32_t slot = plan.add(keys.keys[at], &left);
    if (slot == HomePlan::kNone)
      throw Internal(fmt::format("[ps] a step names more than {} rows of a table at its home", plan.slots()));
    slots[at] = static_cast<std::int32_t>(slot);
    if (left) gone.push_back({at, *std::exchange(left, std::nullopt)});
  });
}

/// What is pulled comes first, in the order of its keys.
void HomeRows::list_swaps(const OrderedKeys& keys, Round& round, const HomeBlock& block,
                          FunctionRef<bool(int, std::int64_t)> is_leaving) const {
  round.missing_keys.clear();
  round.missing_counts.assign(keys.counts.size(), 0);
  round.left.clear();
  round.returning.clear();
  round.returning_slots.clear();
  std::vector<std::size_t> next(plans_.size(), 0);  // of round.gone, by table
  std::size_t at = 0;
  for (std::size_t c = 0; c < keys.counts.size(); ++c) {
    const std::size_t table = c % plans_.size();
    const std::vector<Gone>& gone = round.gone[table];
    for (std::int64_t i = 0; i < keys.counts[c]; ++i, ++at) {
      if (round.hits[at] != 0) continue;
      HomePlan::Row left{-1, 0, 0};
      if (next[table] < gone.size() && gone[next[table]].at == at) left = gone[next[table]++].row;
      if (left.used < clean_before_) left.table = -1;
      if (is_leaving(static_cast<int>(table), keys.keys[at])) {
        round.returning.push_back({static_cast<int>(table), keys.keys[at], 0});
        round.returning_slots.emplace_back(block.slots[at], left);
        continue;
      }
      block.swaps[round.missing_keys.size()] = {static_cast<std::int32_t>(table), block.slots[at]};
      round.missing_keys.push_back(keys.keys[at]);
      ++round.missing_counts[c];
      round.left.push_back(left);
    }
  }
  for (std::size_t r = 0; r < round.returning.size(); ++r) {
    Returning& its = round.returning[r];
    its.swap = round.left.size();
    block.swaps[its.swap] = {its.table, round.returning_slots[r].first};
    round.left.push_back(round.returning_slots[r].second);
  }
  block.counts[0] = static_cast<std::int32_t>(at);
  block.counts[1] = static_cast<std::int32_t>(round.left.size());
}

OrderedPull HomeRows::plan(std::uint64_t step, const OrderedKeys& keys,
                           FunctionRef<bool(int, std::int64_t)> is_leaving) {
  Round& round = rounds_[step % rounds_.size()];
  const HomeBlock its = block(step);
  std::size_t count = 0;
  for (const std::int64_t of : keys.counts) count += static_cast<std::size_t>(of);
  round.hits.resize(count);
  round.gone.resize(plans_.size());
  const auto plan = [&](std::int64_t table) {
    plan_table(static_cast<std::size_t>(table), step, keys, round, its.slots);
  };
  if (options_.pool != nullptr && plans_.size() > 1)
    options_.pool->parallel_for(std::ssize(plans_), plan);
  else
    for (std::int64_t table = 0; table < std::ssize(plans_); ++table) plan(table);
  list_swaps(keys, round, its, is_leaving);
  const std::lock_guard lock(mutex_);
  counts_ = {};
  for (const HomePlan& each : plans_) add(counts_, each.counts());
  return {{options_.tables, round.missing_keys.data(), round.missing_counts}, its.in};
}

void HomeRows::put_back(std::uint64_t step, std::size_t swap, const float* row) const {
  const std::size_t width = options_.layout.width;
  std::memcpy(block(step).in + swap * width, row, width * sizeof(float));
}

void HomeRows::for_leaving(std::uint64_t step, FunctionRef<void(int, std::int64_t, std::size_t)> row) const {
  const std::vector<HomePlan::Row>& left = round(step).left;
  for (std::size_t swap = 0; swap < left.size(); ++swap)
    if (left[swap].table >= 0) row(left[swap].table, left[swap].key, swap);
}

/// By server and table.
std::shared_ptr<HomeRows::Written> HomeRows::sorted(std::size_t rows,
                                                    FunctionRef<const HomePlan::Row&(std::size_t)> row,
                                                    FunctionRef<void(std::size_t, float*)> values) const {
  const std::size_t tables = plans_.size(), width = options_.layout.width;
  auto written = std::make_shared<Written>();
  written->tables = options_.tables;
  written->width = width;
  written->places.assign(rows, 0);
  written->counts.assign(static_cast<std::size_t>(options_.servers) * tables, 0);
  const auto of = [&](const HomePlan::Row& its) {
    return static_cast<std::size_t>(server_of_hash(key_hash(its.key), options_.servers)) * tables +
           static_cast<std::size_t>(its.table);
  };
  std::size_t all = 0;
  for (std::size_t i = 0; i < rows; ++i)
    if (const HomePlan::Row& its = row(i); its.table >= 0) {
      ++written->counts[of(its)];
      ++all;
    }
  written->keys.resize(all);
  written->rows.resize(all * (width + 1));
  std::vector<std::size_t> next(written->counts.size(), 0);
  for (std::size_t c = 1; c < next.size(); ++c)
    next[c] = next[c - 1] + static_cast<std::size_t>(written->counts[c - 1]);
  for (std::size_t i = 0; i < rows; ++i) {
    const HomePlan::Row& its = row(i);
    if (its.table < 0) continue;
    const std::size_t at = next[of(its)]++;
    written->places[i] = static_cast<std::uint32_t>(at);
    written->keys[at] = its.key;
    float* const to = written->rows.data() + at * (width + 1);
    values(i, to);
    to[width] = std::bit_cast<float>(static_cast<std::uint32_t>(its.used));
  }
  return written;
}

std::shared_ptr<HomeRows::Written> HomeRows::leaving(std::uint64_t step) const {
  const Round& its = round(step);
  const float* const out = block(step).out;
  const std::size_t width = options_.layout.width;
  return sorted(
      its.left.size(), [&](std::size_t i) -> const HomePlan::Row& { return its.left[i]; },
      [&](std::size_t i, float* to) { std::memcpy(to, out + i * width, width * sizeof(float)); });
}

std::vector<HomeRows::Dirty> HomeRows::dirty() const {
  std::vector<Dirty> rows;
  for (std::size_t table = 0; table < plans_.size(); ++table)
    for (std::uint32_t slot = 0; slot < static_cast<std::uint32_t>(plans_[table].used()); ++slot)
      if (const HomePlan::Row row = plans_[table].row(slot); row.used >= clean_before_)
        rows.push_back({static_cast<std::int32_t>(table), slot, row});
  return rows;
}

std::shared_ptr<HomeRows::Written> HomeRows::written(
    std::span<const Dirty> rows, FunctionRef<void(std::int32_t, std::uint32_t, float*)> values) const {
  return sorted(
      rows.size(), [&](std::size_t i) -> const HomePlan::Row& { return rows[i].row; },
      [&](std::size_t i, float* to) { values(rows[i].table, rows[i].slot, to); });
}

void HomeRows::clear() {
  for (std::size_t table = 0; table < plans_.size(); ++table)
    plans_[table] = HomePlan(static_cast<int>(table), options_.slots[table]);
  for (Round& round : rounds_) round = {};
  clean_before_ = 0;
  const std::lock_guard lock(mutex_);
  counts_ = {};
}

CacheCounts HomeRows::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace braid::ps
