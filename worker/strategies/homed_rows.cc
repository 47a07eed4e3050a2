#include "worker/strategies/homed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <future>
#include <utility>

#include "base/error.h"
#include "engine/device/accelerator.h"

namespace braid::worker {
namespace {

// Servers that send no rows are asked this rarely whether they want the job to end.
constexpr std::uint64_t kStepsOfVote = 8;
constexpr std::size_t kRowsOfWrite = 1 << 16;

std::uint64_t row_of(std::size_t group, int table, std::int64_t key) {
  return ps::key_hash(key ^
                      static_cast<std::int64_t>((group << 32 | static_cast<std::size_t>(table)) << 20)) |
         1U;
}

}  // namespace

void HomedRows::Rows::add(std::uint64_t row) {
  if (4 * ++used_ > places_.size()) {
    std::vector<std::uint64_t> old = std::exchange(places_, {});
    places_.resize(std::bit_ceil(std::max<std::size_t>(64, 8 * used_)), 0);
    used_ = 1;
    for (const std::uint64_t its : old)
      if (its != 0) add(its);
  }
  std::size_t at = (row >> 8) & (places_.size() - 1);
  while (places_[at] != 0) at = (at + 1) & (places_.size() - 1);
  places_[at] = row;
}

bool HomedRows::Rows::has(std::uint64_t row) const {
  if (places_.empty()) return false;
  std::size_t at = (row >> 8) & (places_.size() - 1);
  for (; places_[at] != 0; at = (at + 1) & (places_.size() - 1))
    if (places_[at] == row) return true;
  return false;
}

HomedRows::HomedRows(std::shared_ptr<ps::PsClient> servers, std::vector<ps::HomeRows::Options> groups,
                     std::chrono::nanoseconds deadline)
    : servers_(std::move(servers)), deadline_(deadline), memories_(groups.size()) {
  for (ps::HomeRows::Options& group : groups)
    groups_.push_back(std::make_unique<ps::HomeRows>(std::move(group)));
}

std::byte* HomedRows::memory(std::size_t group, Accelerator* device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<std::byte[]>& its = memories_[group];
  if (!its) {
    const std::size_t bytes = groups_[group]->layout().bytes();
    its = device != nullptr ? device->allocate_pinned(bytes, "rows that come from servers and go to them")
                            : std::make_shared<std::byte[]>(bytes);
    groups_[group]->set_memory(its.get());
  }
  return its.get();
}

/// REQUIRES: mutex_.
bool HomedRows::asks_for_leaving(std::uint64_t step) const {
  if (leaving_.empty()) return false;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g]->asks_for(step, [&](int table, std::int64_t key) {
          return std::ranges::any_of(leaving_,
                                     [&](const auto& its) { return its.second.has(row_of(g, table, key)); });
        }))
      return true;
  return false;
}

/// REQUIRES: mutex_.
void HomedRows::note_leaving(std::uint64_t step) {
  Rows rows;
  bool any = false;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    groups_[g]->for_leaving(step, [&](int table, std::int64_t key) {
      rows.add(row_of(g, table, key));
      any = true;
    });
  if (any) leaving_.emplace(step, std::move(rows));
}

void HomedRows::begin(std::uint64_t step, std::span<const ps::OrderedKeys> keys, float* vote, Done done,
                      const WaitContext& wait) {
  ps::PullRequest request;
  request.slots = true;
  bool lacks = false;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    request.ordered.push_back(groups_[g]->plan(step, keys[g]));
    lacks = lacks || std::ranges::any_of(request.ordered.back().keys.counts, [](auto n) { return n > 0; });
  }
  *vote = 0;
  if (lacks || step >= asked_ + kStepsOfVote || step < asked_) {
    request.stop_vote = vote;
    asked_ = step;
  }
  const auto pull = [servers = servers_, request = std::move(request), done = std::move(done),
                     wait](ErrorPtr error) {
    if (error) return done(std::move(error));
    servers->pull_async(request, done, wait);
  };
  ErrorPtr failed;
  std::shared_ptr<Parked> parked;
  {
    const std::lock_guard lock(mutex_);
    failed = failed_;
    const bool waits = !failed && asks_for_leaving(step);
    note_leaving(step);
    if (waits) {
      parked = std::make_shared<Parked>();
      parked->pull = pull;
      parked_.emplace(step, parked);
    }
  }
  if (!parked) return pull(std::move(failed));
  // Without the lock: a step that has been given up calls at once.
  parked->on_stop.emplace(wait.stop, [weak = weak_from_this(), step] {
    if (const auto self = weak.lock()) std::static_pointer_cast<HomedRows>(self)->give_up(step);
  });
}

void HomedRows::give_up(std::uint64_t step) {
  std::shared_ptr<Parked> parked;
  {
    const std::lock_guard lock(mutex_);
    if (const auto its = parked_.find(step); its != parked_.end()) {
      parked = std::move(its->second);
      parked_.erase(its);
    }
  }
  if (parked)
    parked->pull(make_error(ErrorCode::Cancelled, "a pull of rows that go back to the servers: cancelled"));
}

void HomedRows::write(const std::vector<std::shared_ptr<ps::HomeRows::Written>>& rows, Done done,
                      const WaitContext& wait) {
  std::vector<ps::OrderedPush> pushes;
  for (const auto& its : rows) pushes.push_back(its->push());
  servers_->write_rows_async(
      std::move(pushes), [rows, done = std::move(done)](ErrorPtr error) { done(std::move(error)); }, wait);
}

void HomedRows::leave(std::uint64_t step, Done done) {
  std::vector<std::shared_ptr<ps::HomeRows::Written>> rows;
  for (const auto& group : groups_)
    if (auto its = group->leaving(step); !its->empty()) rows.push_back(std::move(its));
  if (!rows.empty())
    write(
        rows,
        [self = std::static_pointer_cast<HomedRows>(shared_from_this()), step](ErrorPtr error) {
          self->arrived(step, std::move(error));
        },
        WaitContext::with_timeout(deadline_));
  done(nullptr);
}

void HomedRows::arrived(std::uint64_t step, ErrorPtr error) {
  std::vector<std::shared_ptr<Parked>> next;
  {
    const std::lock_guard lock(mutex_);
    if (error && !failed_) failed_ = error;
    leaving_.erase(step);
    while (!parked_.empty() &&
           (failed_ || leaving_.empty() || leaving_.begin()->first >= parked_.begin()->first)) {
      next.push_back(std::move(parked_.begin()->second));
      parked_.erase(parked_.begin());
    }
    error = failed_;
  }
  arrived_.notify_all();
  for (const auto& parked : next) parked->pull(error);
}

void HomedRows::flush(std::uint64_t step, const Read& read, const WaitContext& wait) {
  {
    std::unique_lock lock(mutex_);
    const bool all = arrived_.wait_until(lock, wait.stop, wait.deadline,
                                         [this] { return leaving_.empty() || failed_ != nullptr; });
    if (failed_) throw_error(*failed_);
    if (!all) throw DeadlineExceeded("[ps] rows that go back to the servers have not arrived in time");
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<ps::HomeRows::Dirty> dirty = groups_[g]->dirty();
    for (std::size_t first = 0; first < dirty.size(); first += kRowsOfWrite) {
      const auto part = std::span(dirty).subspan(first, std::min(kRowsOfWrite, dirty.size() - first));
      auto rows = groups_[g]->written(
          part, [&](std::int32_t table, std::uint32_t slot, float* out) { read(g, table, slot, out); });
      auto ended = std::make_shared<std::promise<ErrorPtr>>();  // whoever sets it may return late
      auto result = ended->get_future();
      write(
          {std::move(rows)}, [ended](ErrorPtr error) { ended->set_value(std::move(error)); }, wait);
      if (const ErrorPtr error = result.get()) throw_error(*error);
    }
    groups_[g]->cleaned(step);
  }
}

void HomedRows::clear() {
  for (const auto& group : groups_) group->clear();
  const std::lock_guard lock(mutex_);
  asked_ = 0;
  leaving_.clear();
}

ps::CacheCounts HomedRows::counts() const {
  ps::CacheCounts sum;
  for (const auto& group : groups_) add(sum, group->counts());
  return sum;
}

std::string HomedRows::text() const {
  const ps::CacheCounts its = counts();
  const std::uint64_t all = its.hits + its.misses;
  if (all == 0) return {};
  return fmt::format("row cache: {} rows asked for, {:.1f} % were here, their home, {} made room for others",
                     all, 100 * static_cast<double>(its.hits) / static_cast<double>(all), its.evictions);
}

}  // namespace braid::worker
