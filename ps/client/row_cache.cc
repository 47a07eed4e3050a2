#include "ps/client/row_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace braid::ps {
namespace {

// Rows and their entries are asked for so far ahead of their use.
constexpr std::int64_t kRowsAhead = 16;
constexpr std::int64_t kRowsOfPart = 4096;  // that a part of the cache has at least
constexpr std::int64_t kParts = 16;
constexpr std::int64_t kRowsOfBlock = 1024;  // that one thread works on at a time

std::size_t width_of(const RowCache::Options& options) {
  const std::int64_t width = table_row_width(options.optimizers.at(0), options.dim);
  for (const OptimizerSpec& optimizer : options.optimizers)
    if (table_row_width(optimizer, options.dim) != width)
      throw InvalidArgument("[ps] a cache of rows is of tables with as many slots each");
  return static_cast<std::size_t>(width);
}

/// By the number of rows alone, so that what is kept does not depend on the machine.
std::int64_t parts_of(std::int64_t rows) { return std::clamp<std::int64_t>(rows / kRowsOfPart, 1, kParts); }

/// Of a part. Keys are spread by their hash, so that a part may have more of them than its share; where all
/// rows of the tables are to be kept, it has room for these too.
std::int64_t slots_of_part(std::int64_t rows, std::int64_t table_rows) {
  const std::int64_t parts = parts_of(rows), share = (rows + parts - 1) / parts;
  if (parts == 1 || rows < table_rows) return share;
  return share + 6 * static_cast<std::int64_t>(std::sqrt(static_cast<double>(share)));
}

}  // namespace

RowCache::RowCache(Options options)
    : options_(std::move(options)), dim_(static_cast<std::size_t>(options_.dim)), width_(width_of(options_)) {
  const std::int64_t slots = slots_of_part(options_.rows, options_.table_rows);
  for (std::int64_t p = 0; p < parts_of(options_.rows); ++p) {
    parts_.emplace_back(CachePlan(slots, options_.most_age), static_cast<std::uint32_t>(slots_));
    slots_ += static_cast<std::size_t>(slots);
  }
  rows_ = ZeroedBlock(bytes());
}

void RowCache::require_room(std::int64_t ids) const {
  const std::int64_t needed = std::min(ids, options_.table_rows);
  if (options_.rows < needed)
    throw InvalidArgument(
        fmt::format("strategy.ps.cache_rows is {}, and a batch may name {} rows of the tables of {} numbers "
                    "a row: set {} "
                    "or more, or 0 for no cache",
                    options_.rows, needed, options_.dim, needed));
}

/// work(begin, end), each row once.
void RowCache::in_ranges(std::size_t rows, FunctionRef<void(std::size_t, std::size_t)> work) const {
  if (options_.pool == nullptr || rows <= kRowsOfBlock) return work(0, rows);
  options_.pool->parallel_range(static_cast<std::int64_t>(rows), kRowsOfBlock,
                                [&](std::int64_t begin, std::int64_t end) {
                                  work(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
                                });
}

/// The keys of each server and table rise by bucket, so that a part's lie together.
void RowCache::plan_part(std::size_t p, std::uint64_t step, const OrderedKeys& keys, Round& round) {
  Part& part = parts_[p];
  const auto parts = static_cast<int>(parts_.size()), own = static_cast<int>(p);
  const std::lock_guard lock(part.mutex);
  const std::int64_t* of_table = keys.keys;
  for (std::size_t c = 0; c < keys.counts.size(); of_table += keys.counts[c++]) {
    const auto table = static_cast<int>(c % keys.tables.size());
    const auto from = [&](int bucket) {
      return std::partition_point(of_table, of_table + keys.counts[c],
                                  [&](std::int64_t key) { return bucket_of_hash(key_hash(key)) < bucket; });
    };
    const std::int64_t* next = parts == 1 ? of_table : from(first_bucket_of(own, parts));
    const std::int64_t* const end =
        own + 1 == parts ? of_table + keys.counts[c] : from(first_bucket_of(own + 1, parts));
    for (auto at = static_cast<std::size_t>(next - keys.keys); next < end; ++next, ++at) {
      if (end - next > 2 * kRowsAhead) part.plan.prefetch(table, next[2 * kRowsAhead]);
      if (end - next > kRowsAhead) part.plan.prefetch_entry(table, next[kRowsAhead]);
      CachePlan::Place place = part.plan.use(table, *next, step);
      round.knowns[at] = place.hit ? place.known : 0;
      if (place.slot != CachePlan::kNone) place.slot += part.first;
      round.places[at] = place;
    }
  }
}

void RowCache::list_missing(const OrderedKeys& keys, Round& round) const {
  round.missing_keys.clear();
  round.missing_places.clear();
  round.missing_counts.assign(keys.counts.size(), 0);
  std::uint32_t at = 0;
  for (std::size_t c = 0; c < keys.counts.size(); ++c)
    for (std::int64_t i = 0; i < keys.counts[c]; ++i, ++at) {
      if (round.places[at].hit) continue;
      round.missing_keys.push_back(keys.keys[at]);
      round.missing_places.push_back(at);
      ++round.missing_counts[c];
    }
  round.rows.resize(round.missing_keys.size() * width_);
  round.missing = {keys.tables, round.missing_keys.data(), round.missing_counts};
  round.missing_rows = round.rows.data();
}

void RowCache::plan(std::uint64_t step, const OrderedKeys& keys) {
  std::unique_ptr<Round> made;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      made = std::make_unique<Round>();
    } else {
      made = std::move(free_.back());
      free_.pop_back();
    }
  }
  std::size_t count = 0;
  for (const std::int64_t its : keys.counts) count += static_cast<std::size_t>(its);
  made->step = step;
  made->places.resize(count);
  made->knowns.resize(count);
  made->known = made->knowns.data();
  if (options_.pool == nullptr || count <= kRowsOfBlock) {
    for (std::size_t p = 0; p < parts_.size(); ++p) plan_part(p, step, keys, *made);
  } else {
    options_.pool->parallel_for(std::ssize(parts_), [&](std::int64_t p) {
      plan_part(static_cast<std::size_t>(p), step, keys, *made);
    });
  }
  if (options_.most_age) list_missing(keys, *made);
  const std::lock_guard lock(mutex_);
  rounds_.push_back(std::move(made));
}

RowCache::Round* RowCache::round(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find_if(rounds_, [&](const auto& round) { return round->step == step; });
  return at == rounds_.end() ? nullptr : at->get();
}

void RowCache::when_turn(Round& round, std::function<void()> turn) {
  {
    const std::lock_guard lock(mutex_);
    if (rounds_.front().get() != &round) {
      round.turn = std::move(turn);
      return;
    }
  }
  turn();
}

void RowCache::gather(const Round& round, float* out) const {
  in_ranges(round.places.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; ++at) {
      prefetch_row(round, at + kRowsAhead, end);
      if (const CachePlan::Place& place = round.places[at]; place.hit)
        std::memcpy(out + at * dim_, row(place.slot), dim_ * sizeof(float));
    }
  });
}

void RowCache::land_row(const Round& round, std::uint32_t key, const float* values, float* out) const {
  if (const std::uint32_t slot = round.places[key].slot; slot != CachePlan::kNone)
    std::memcpy(row(slot), values, width_ * sizeof(float));
  std::memcpy(out + key * dim_, values, dim_ * sizeof(float));
}

void RowCache::land(Round& round, float* out) {
  if (options_.most_age)
    return in_ranges(round.missing_places.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        land_row(round, round.missing_places[i], round.missing_rows + i * width_, out);
    });
  std::uint64_t repairs = 0;
  for (ChangedRows::OfServer& server : round.changed.servers) {
    for (const ChangedRows::Row& its : server.rows) repairs += round.places[its.key].hit ? 1 : 0;
    in_ranges(server.rows.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        land_row(round, server.rows[i].key, server.rows[i].values, out);
    });
    server.rows.clear();
    server.memory.reset();
  }
  const std::lock_guard lock(mutex_);
  repairs_ += repairs;
}

void RowCache::update(std::uint64_t step, const OrderedKeys& keys, const UpdateParams& params,
                      const float* gradients) {
  Round* const its = round(step);
  if (its == nullptr) return;
  std::vector<PreparedUpdate> updates;
  for (const OptimizerSpec& optimizer : options_.optimizers)
    updates.push_back(prepare_update(optimizer, params));
  std::vector<std::size_t> ends;  // of the keys of each server and table
  for (std::size_t all = 0; const std::int64_t count : keys.counts)
    ends.push_back(all += static_cast<std::size_t>(count));
  in_ranges(its->places.size(), [&](std::size_t begin, std::size_t end) {
    auto c = static_cast<std::size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (std::size_t at = begin; at < end; ++at) {
      while (at >= ends[c]) ++c;
      prefetch_row(*its, at + kRowsAhead, end);
      const std::uint32_t slot = its->places[at].slot;
      if (slot == CachePlan::kNone) continue;
      update_table_row(updates[c % keys.tables.size()], row(slot), {gradients + at * dim_, dim_});
      Part& part = parts_[slot / static_cast<std::size_t>(parts_[0].plan.slots())];
      part.plan.release(slot - part.first);
    }
  });
  std::function<void()> turn;
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(rounds_.front()));
    rounds_.pop_front();
    if (!rounds_.empty()) turn = std::exchange(rounds_.front()->turn, {});
  }
  if (turn) turn();
}

void RowCache::clear() {
  const std::lock_guard lock(mutex_);
  rounds_.clear();
  repairs_ = 0;
  for (Part& part : parts_) {
    const std::lock_guard its(part.mutex);
    part.plan = CachePlan(part.plan.slots(), options_.most_age);
  }
}

CacheCounts RowCache::counts() const {
  CacheCounts sum;
  for (const Part& part : parts_) {
    const std::lock_guard lock(part.mutex);
    add(sum, part.plan.counts());
  }
  const std::lock_guard lock(mutex_);
  sum.repairs = repairs_;
  return sum;
}

}  // namespace braid::ps
