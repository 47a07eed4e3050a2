#include "worker/strategies/homed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "engine/device/accelerator.h"

namespace braid::worker {
namespace {

// Servers that send no rows are asked this rarely whether they want the job to end.
constexpr std::uint64_t kStepsOfVote = 8;
constexpr std::size_t kRowsOfWrite = 1 << 16;

/// Calls `done` when two parts have ended, with the first error.
class Both {
 public:
  explicit Both(HomedRows::Done done) : done_(std::move(done)) {}
  void end(ErrorPtr error) {
    {
      const std::lock_guard lock(mutex_);
      if (error && !error_) error_ = std::move(error);
      if (--open_ > 0) return;
    }
    done_(error_);
  }

 private:
  const HomedRows::Done done_;
  std::mutex mutex_;
  ErrorPtr error_;
  int open_ = 2;
};

}  // namespace

/// The rows of a step, asked for and waited for by different ops.
class HomedRows::Coming {
 public:
  float vote = 0;

  void end(ErrorPtr error) {
    Done done;
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      ended_ = true;
      done.swap(done_);
    }
    if (!done) return;
    *out_ = vote;
    done(std::move(error));
  }
  void wait(float* out, Done done) {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        out_ = out;
        done_ = std::move(done);
        return;
      }
    }
    *out = vote;
    done(error_);
  }

 private:
  std::mutex mutex_;
  bool ended_ = false;
  ErrorPtr error_;
  float* out_ = nullptr;
  Done done_;
};

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
    std::fill_n(its.get(), bytes, std::byte{0});  // a trial without servers swaps nothing
    groups_[group]->set_memory(its.get());
  }
  return its.get();
}

/// The newest first.
std::vector<std::shared_ptr<HomedRows::Left>> HomedRows::under_way() const {
  const std::lock_guard lock(mutex_);
  return {left_.rbegin(), left_.rend()};
}

ps::PullRequest HomedRows::plan(std::uint64_t step, std::span<const ps::OrderedKeys> keys, Left& left,
                                std::vector<Return>& returns) {
  const std::vector<std::shared_ptr<Left>> before = under_way();
  ps::PullRequest request;
  request.slots = true;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    // Of rows that left more than once the newest copy counts.
    const auto find = [&](int table, std::int64_t key) -> std::optional<Return> {
      for (const std::shared_ptr<Left>& its : before)
        if (const auto swap = its->rows[g].find(table, key)) return Return{its, g, *swap, 0};
      return std::nullopt;
    };
    request.ordered.push_back(groups_[g]->plan(
        step, keys[g], [&](int table, std::int64_t key) { return find(table, key).has_value(); }));
    for (const ps::HomeRows::Returning& row : groups_[g]->returning(step)) {
      returns.push_back(*find(row.table, row.key));
      returns.back().swap = row.swap;
    }
    groups_[g]->for_leaving(step, [&](int table, std::int64_t key, std::size_t swap) {
      left.rows[g].add(table, key, swap);
      left.again = left.again || find(table, key).has_value();
    });
  }
  return request;
}

void HomedRows::begin(std::uint64_t step, std::span<const ps::OrderedKeys> keys, const WaitContext& wait) {
  auto left = std::make_shared<Left>(groups_.size());
  std::vector<Return> returns;
  ps::PullRequest request = plan(step, keys, *left, returns);
  const auto coming = std::make_shared<Coming>();
  const bool lacks = std::ranges::any_of(request.ordered, [](const ps::OrderedPull& its) {
    return std::ranges::any_of(its.keys.counts, [](auto n) { return n > 0; });
  });
  if (lacks || step >= asked_ + kStepsOfVote || step < asked_) {
    request.stop_vote = &coming->vote;
    asked_ = step;
  }
  ErrorPtr failed;
  {
    const std::lock_guard lock(mutex_);
    failed = failed_;
    coming_.insert_or_assign(step, coming);
    if (std::ranges::any_of(left->rows, [](const ps::LeftRows& its) { return !its.empty(); })) {
      left_.push_back(left);
      to_swap_.emplace(step, left);
    }
  }
  pull(
      step, std::move(request), std::move(returns), std::move(failed),
      [coming](ErrorPtr error) { coming->end(std::move(error)); }, wait);
}

void HomedRows::arrive(std::uint64_t step, float* vote, Done done) {
  std::shared_ptr<Coming> coming;
  {
    const std::lock_guard lock(mutex_);
    coming = std::move(coming_.at(step));
    coming_.erase(step);
  }
  coming->wait(vote, std::move(done));
}

/// Beside what the servers send, rows come back that the swaps of steps before have brought, or bring yet.
void HomedRows::pull(std::uint64_t step, ps::PullRequest request, std::vector<Return> returns,
                     ErrorPtr failed, Done done, const WaitContext& wait) {
  if (failed) return done(std::move(failed));
  if (returns.empty()) return servers_->pull_async(std::move(request), std::move(done), wait);
  auto both = std::make_shared<Both>(std::move(done));
  servers_->pull_async(
      std::move(request), [both](ErrorPtr error) { both->end(std::move(error)); }, wait);
  const auto parked = std::make_shared<Parked>();
  parked->returns = std::move(returns);
  parked->ended = [both](ErrorPtr error) { both->end(std::move(error)); };
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    waits = std::ranges::any_of(parked->returns, [](const Return& its) { return its.from->written.empty(); });
    if (waits) parked_.emplace(step, parked);
  }
  if (!waits) {
    take_back(step, parked->returns);
    return parked->ended(nullptr);
  }
  // Without the lock: a step that has been given up calls at once.
  parked->on_stop.emplace(wait.stop, [weak = weak_from_this(), step] {
    if (const auto self = weak.lock()) std::static_pointer_cast<HomedRows>(self)->give_up(step);
  });
}

/// REQUIRES: those steps have swapped, so that nobody writes their copies any more.
void HomedRows::take_back(std::uint64_t step, const std::vector<Return>& returns) const {
  for (const Return& its : returns)
    groups_[its.group]->put_back(step, its.swap, its.from->written[its.group]->row_of(its.swap_from));
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
    parked->ended(make_error(ErrorCode::Cancelled, "rows that left in a step that has ended: cancelled"));
}

void HomedRows::write(const std::vector<std::shared_ptr<ps::HomeRows::Written>>& rows, Done done,
                      const WaitContext& wait) {
  std::vector<ps::OrderedPush> pushes;
  for (const auto& its : rows) pushes.push_back(its->push());
  servers_->write_rows_async(
      std::move(pushes), [rows, done = std::move(done)](ErrorPtr error) { done(std::move(error)); }, wait);
}

void HomedRows::leave(std::uint64_t step, Done done) {
  std::vector<std::shared_ptr<ps::HomeRows::Written>> written;
  for (const auto& group : groups_) written.push_back(group->leaving(step));
  std::shared_ptr<Left> left;
  std::map<std::uint64_t, std::shared_ptr<Parked>> ready;
  {
    const std::lock_guard lock(mutex_);
    if (const auto its = to_swap_.find(step); its != to_swap_.end()) {
      left = std::move(its->second);
      to_swap_.erase(its);
      left->written = std::move(written);
      left->waits = left->again && left_.front() != left;
    }
    for (auto its = parked_.begin(); left && its != parked_.end();) {
      const bool has_all = std::ranges::none_of(its->second->returns,
                                                [](const Return& row) { return row.from->written.empty(); });
      const auto next = std::next(its);
      if (has_all) ready.insert(parked_.extract(its));
      its = next;
    }
  }
  for (const auto& [waiting, parked] : ready) {
    take_back(waiting, parked->returns);
    parked->ended(nullptr);
  }
  if (left && !left->waits) send(left);
  done(nullptr);
}

/// REQUIRES: its step has swapped.
void HomedRows::send(const std::shared_ptr<Left>& left) {
  std::vector<std::shared_ptr<ps::HomeRows::Written>> rows;
  for (const auto& its : left->written)
    if (!its->empty()) rows.push_back(its);
  write(
      rows,
      [self = std::static_pointer_cast<HomedRows>(shared_from_this()), left](ErrorPtr error) {
        self->arrived(left, std::move(error));
      },
      WaitContext::with_timeout(deadline_));
}

void HomedRows::arrived(const std::shared_ptr<Left>& left, ErrorPtr error) {
  std::map<std::uint64_t, std::shared_ptr<Parked>> given_up;
  std::shared_ptr<Left> next;
  {
    const std::lock_guard lock(mutex_);
    left->arrived = true;
    // What clear() has forgotten says nothing of what came behind it.
    if (std::ranges::find(left_, left) == left_.end()) return;
    if (error && !failed_) failed_ = error;
    // In the order of steps, so that an older copy of a row is never the newest here.
    while (!left_.empty() && left_.front()->arrived) left_.pop_front();
    if (failed_)
      given_up.swap(parked_);
    else if (!left_.empty() && std::exchange(left_.front()->waits, false))
      next = left_.front();
    error = failed_;
  }
  arrived_.notify_all();
  for (const auto& [step, parked] : given_up) parked->ended(error);
  if (next) send(next);
}

void HomedRows::flush(std::uint64_t step, const Read& read, const WaitContext& wait) {
  {
    std::unique_lock lock(mutex_);
    const bool all = arrived_.wait_until(lock, wait.stop, wait.deadline,
                                         [this] { return left_.empty() || failed_ != nullptr; });
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
  coming_.clear();
  left_.clear();
  to_swap_.clear();
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
