#include "ps/client/row_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace braid::ps {
namespace {

// Rows and their entries are asked for so far ahead of their use.
constexpr std::int64_t kRowsAhead = 16;

std::size_t width_of(const RowCache::Options& options) {
  const std::int64_t width = table_row_width(options.optimizers.at(0), options.dim);
  for (const OptimizerSpec& optimizer : options.optimizers)
    if (table_row_width(optimizer, options.dim) != width)
      throw InvalidArgument("[ps] a cache of rows is of tables with as many slots each");
  return static_cast<std::size_t>(width);
}

}  // namespace

RowCache::RowCache(Options options)
    : options_(std::move(options)),
      dim_(static_cast<std::size_t>(options_.dim)),
      width_(width_of(options_)),
      rows_(static_cast<std::size_t>(options_.rows) * width_ * sizeof(float)),
      plan_(options_.rows, options_.most_age) {}

void RowCache::require_room(std::int64_t ids) const {
  const std::int64_t needed = std::min(ids, options_.table_rows);
  if (options_.rows < needed)
    throw InvalidArgument(
        fmt::format("strategy.ps.cache_rows is {}, and a batch may name {} rows of the tables of {} numbers "
                    "a row: set {} "
                    "or more, or 0 for no cache",
                    options_.rows, needed, options_.dim, needed));
}

RowCache::Round& RowCache::plan(std::uint64_t step, const OrderedKeys& keys) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Round> made;
  if (free_.empty()) {
    made = std::make_unique<Round>();
  } else {
    made = std::move(free_.back());
    free_.pop_back();
  }
  Round& round = *made;
  round.step = step;
  round.places.clear();
  round.missing_keys.clear();
  round.held_keys.clear();
  round.knowns.clear();
  round.missing_counts.assign(keys.counts.size(), 0);
  round.held_counts.assign(keys.counts.size(), 0);
  const std::int64_t* next = keys.keys;
  for (std::size_t part = 0; part < keys.counts.size(); ++part) {
    const auto table = static_cast<int>(part % keys.tables.size());
    for (std::int64_t i = 0; i < keys.counts[part]; ++i, ++next) {
      if (i + 2 * kRowsAhead < keys.counts[part]) plan_.prefetch(table, next[2 * kRowsAhead]);
      if (i + kRowsAhead < keys.counts[part]) plan_.prefetch_entry(table, next[kRowsAhead]);
      const CachePlan::Place place = plan_.use(table, *next, step);
      round.places.push_back(place);
      if (!place.hit) {
        round.missing_keys.push_back(*next);
        ++round.missing_counts[part];
      } else if (!options_.most_age) {
        round.held_keys.push_back(*next);
        round.knowns.push_back(place.known);
        ++round.held_counts[part];
      }
    }
  }
  round.rows.resize((round.missing_keys.size() + round.held_keys.size()) * width_);
  round.missing = {keys.tables, round.missing_keys.data(), round.missing_counts};
  round.held = {keys.tables, round.held_keys.data(), round.held_counts};
  round.missing_rows = round.rows.data();
  round.held_rows = round.rows.data() + round.missing_keys.size() * width_;
  round.known = round.knowns.data();
  rounds_.push_back(std::move(made));
  return round;
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

void RowCache::land(Round& round, float* out) {
  const std::size_t bytes = width_ * sizeof(float), value_bytes = dim_ * sizeof(float);
  const float* missing = round.missing_rows;
  const float* held = round.held_rows;
  std::uint64_t repairs = 0;
  std::size_t h = 0, at = 0;
  for (const CachePlan::Place& place : round.places) {
    prefetch_row(round, at++ + kRowsAhead);
    const float* from = nullptr;
    if (!place.hit) {
      from = std::exchange(missing, missing + width_);
    } else if (!options_.most_age) {
      if (round.known[h++] == 0) {
        from = held;
        ++repairs;
      }
      held += width_;
    }
    if (from != nullptr && place.slot != CachePlan::kNone) std::memcpy(row(place.slot), from, bytes);
    std::memcpy(out, from != nullptr ? from : row(place.slot), value_bytes);
    out += dim_;
  }
  const std::lock_guard lock(mutex_);
  plan_.counts().repairs += repairs;
}

void RowCache::update(const OrderedKeys& keys, const UpdateParams& params, const float* gradients) {
  std::vector<PreparedUpdate> updates;
  for (const OptimizerSpec& optimizer : options_.optimizers)
    updates.push_back(prepare_update(optimizer, params));
  Round* round = nullptr;
  {
    const std::lock_guard lock(mutex_);
    round = rounds_.front().get();
  }
  std::size_t at = 0;
  for (std::size_t part = 0; part < keys.counts.size(); ++part) {
    const PreparedUpdate& update = updates[part % keys.tables.size()];
    for (std::int64_t i = 0; i < keys.counts[part]; ++i, ++at, gradients += dim_) {
      prefetch_row(*round, at + kRowsAhead);
      const std::uint32_t slot = round->places[at].slot;
      if (slot == CachePlan::kNone) continue;
      update_table_row(update, row(slot), {gradients, dim_});
    }
  }
  std::function<void()> turn;
  {
    const std::lock_guard lock(mutex_);
    for (const CachePlan::Place& place : round->places)
      if (place.slot != CachePlan::kNone) plan_.release(place.slot);
    free_.push_back(std::move(rounds_.front()));
    rounds_.pop_front();
    if (!rounds_.empty()) turn = std::exchange(rounds_.front()->turn, {});
  }
  if (turn) turn();
}

void RowCache::clear() {
  const std::lock_guard lock(mutex_);
  rounds_.clear();
  plan_ = CachePlan(options_.rows, options_.most_age);
}

CacheCounts RowCache::counts() const {
  const std::lock_guard lock(mutex_);
  return plan_.counts();
}

}  // namespace braid::ps
