#include "ps/server/work_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid::ps {
namespace {

constexpr std::uint64_t kMostBatches = std::uint64_t{1} << 56;
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;

/// Reads "name=number" behind a space, and moves `text` behind it. False: it is not there.
bool take_number(std::string_view& text, std::string_view before, std::uint64_t& number) {
  if (!text.starts_with(before)) return false;
  text.remove_prefix(before.size());
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || number > kMostBatches) return false;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return true;
}

}  // namespace

std::uint64_t BatchRanges::size() const {
  std::uint64_t size = 0;
  for (const auto& [first, end] : ranges_) size += end - first;
  return size;
}

void BatchRanges::add(std::uint64_t first, std::uint64_t end) {
  if (first >= end) return;
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second >= first) at = std::prev(at);
  while (at != ranges_.end() && at->first <= end) {
    first = std::min(first, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_[first] = end;
}

void BatchRanges::remove(std::uint64_t first, std::uint64_t end) {
  if (first >= end) return;
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second > first) at = std::prev(at);
  while (at != ranges_.end() && at->first < end) {
    const auto [begins, ends] = *at;
    at = ranges_.erase(at);
    if (begins < first) ranges_[begins] = first;
    if (ends > end) ranges_[end] = ends;
  }
}

std::string QueueState::text() const {
  std::string text =
      fmt::format("queue batch={} epoch_batches={} next={} open=", batch_rows, epoch_batches, next);
  const char* comma = "";
  for (const auto& [first, end] : open.all())
    text += fmt::format("{}{}-{}", std::exchange(comma, ","), first, end);
  return text;
}

QueueState QueueState::parse(const std::string& text) {
  const auto damaged = [&] {
    return DataLoss(
        fmt::format("the queue of batches in the checkpoint is '{}', not 'queue batch=<rows> "
                    "epoch_batches=<number> next=<number> open=<first>-<end>,...'",
                    text.substr(0, 200)));
  };
  QueueState state;
  std::string_view left = text;
  std::uint64_t rows = 0;
  if (!take_number(left, "queue batch=", rows) ||
      !take_number(left, " epoch_batches=", state.epoch_batches) ||
      !take_number(left, " next=", state.next) || !left.starts_with(" open="))
    throw damaged();
  if (rows == 0 || rows > static_cast<std::uint64_t>(kMostRows) || state.epoch_batches == 0) throw damaged();
  state.batch_rows = static_cast<std::int64_t>(rows);
  left.remove_prefix(std::string_view(" open=").size());
  for (std::string_view before; !left.empty(); before = ",") {
    std::uint64_t first = 0, end = 0;
    if (!take_number(left, before, first) || !take_number(left, "-", end) || first >= end || end > state.next)
      throw damaged();
    state.open.add(first, end);
  }
  return state;
}

QueueState QueueState::in_batches_of(std::int64_t rows, std::uint64_t batches) const {
  if (rows == batch_rows && batches == epoch_batches) return *this;
  const auto from = static_cast<std::uint64_t>(batch_rows), to = static_cast<std::uint64_t>(rows);
  // A batch of another epoch is another one, whatever an epoch's last rows come to.
  const auto down = [&](std::uint64_t ticket) {
    return ticket / epoch_batches * batches + std::min(ticket % epoch_batches * from / to, batches);
  };
  const auto up = [&](std::uint64_t last) {  // behind that one
    const std::uint64_t end = last % epoch_batches + 1;
    return last / epoch_batches * batches + std::min((end * from + to - 1) / to, batches);
  };
  QueueState state;
  state.batch_rows = rows;
  state.epoch_batches = batches;
  state.next = down(next);
  for (const auto& [first, end] : open.all()) {
    for (std::uint64_t at = first; at < end;) {
      const std::uint64_t stop = std::min(end, (at / epoch_batches + 1) * epoch_batches);
      state.open.add(down(at), up(stop - 1));
      at = stop;
    }
  }
  state.open.remove(state.next, kMostBatches);
  return state;
}

WorkQueue::WorkQueue(const QueuePlan& plan, const QueueState& from, std::uint64_t life,
                     Clock::duration patience)
    : plan_(plan), life_(life), patience_(patience) {
  if (plan.epoch_batches == 0 || plan.total == 0 || plan.total > kMostBatches || plan.take == 0 ||
      plan.batch_rows < 1 || plan.batch_rows > kMostRows || plan.workers < 1)
    throw InvalidArgument(fmt::format(
        "[queue] {} batches of {} rows, {} an epoch, {} at a time, for {} workers cannot be given out",
        plan.total, plan.batch_rows, plan.epoch_batches, plan.take, plan.workers));
  const QueueState state = from.in_batches_of(plan.batch_rows, plan.epoch_batches);
  next_ = std::min(state.next, plan.total);
  open_ = state.open;
  open_.remove(plan.total, kMostBatches);
}

QueueState WorkQueue::state() const {
  QueueState state{plan_.batch_rows, plan_.epoch_batches, next_, open_};
  for (const auto& [worker, member] : members_)
    for (const auto& [id, unit] : member.units)
      state.open.add(unit.first + unit.done, unit.first + unit.count);
  return state;
}

void WorkQueue::give_back(Member& member) {
  for (const auto& [id, unit] : member.units) open_.add(unit.first + unit.done, unit.first + unit.count);
  member.units.clear();
}

void WorkQueue::give_back_of_silent(Clock::time_point now) {
  for (auto& [worker, member] : members_)
    if (now - member.heard >= patience_) give_back(member);
}

WorkQueue::Member& WorkQueue::enter(const QueueCall& call, Clock::time_point now) {
  if (call.worker < 0 || call.worker >= plan_.workers)
    throw InvalidArgument(
        fmt::format("[queue] there is no worker {} in a job of {}", call.worker, plan_.workers));
  if (former_.contains({call.worker, call.session}))
    throw Unavailable(fmt::format("[queue] another process has taken the place of worker {}", call.worker));
  Member& member = members_[call.worker];
  if (member.session != call.session) {
    give_back(member);
    if (member.session != 0) former_.insert({call.worker, member.session});
    member.session = call.session;
    member.number = 0;
  }
  if (call.number <= member.number)
    throw Unavailable(fmt::format("[queue] call {} of worker {} comes behind its call {}", call.number,
                                  call.worker, member.number));
  member.number = call.number;
  member.heard = now;
  return member;
}

void WorkQueue::note(Member& member, const QueueCall& call, QueueAnswer& answer) {
  std::map<std::uint64_t, Unit> kept;
  for (const HeldUnit& held : call.held) {
    const auto found = call.life == life_ ? member.units.find(held.id) : member.units.end();
    if (found == member.units.end()) {
      // What it has done of it all the same is done, unless somebody else has begun it meanwhile.
      if (call.life == life_) open_.remove(held.first, held.first + std::min(held.done, plan_.total));
      answer.revoked.push_back(held.id);
      continue;
    }
    Unit unit = found->second;
    unit.done = std::max(unit.done, std::min(held.done, unit.count));
    member.units.erase(found);
    if (unit.done < unit.count) kept.emplace(held.id, unit);
  }
  give_back(member);  // given out by an answer that it has not got
  member.units = std::move(kept);
}

bool WorkQueue::all_done() const {
  return next_ == plan_.total && open_.empty() &&
         std::ranges::all_of(members_, [](const auto& member) { return member.second.units.empty(); });
}

/// Smaller ones towards the end, so that all workers come to it together.
std::uint64_t WorkQueue::unit_batches() const {
  const std::uint64_t left = plan_.total - next_ + open_.size();
  return std::clamp<std::uint64_t>(left / (2 * static_cast<std::uint64_t>(plan_.workers)), 1, plan_.take);
}

void WorkQueue::give(Member& member, QueueAnswer& answer) {
  if (ended_ || all_done()) {
    answer.kind = QueueAnswer::Kind::End;
    return;
  }
  if (open_.empty() && next_ == plan_.total) {
    answer.kind = QueueAnswer::Kind::Wait;
    return;
  }
  const auto [first, end] = open_.empty() ? std::pair(next_, plan_.total) : open_.front();
  const std::uint64_t epoch_end = (first / plan_.epoch_batches + 1) * plan_.epoch_batches;
  const std::uint64_t count = std::min({unit_batches(), end - first, epoch_end - first});
  if (open_.empty())
    next_ = first + count;
  else
    open_.remove(first, first + count);
  answer.kind = QueueAnswer::Kind::Unit;
  answer.unit = {++ids_, first, count};
  member.units[ids_] = {first, count, 0};
}

QueueAnswer WorkQueue::talk(const QueueCall& call, Clock::time_point now) {
  Member& member = enter(call, now);
  give_back_of_silent(now);
  QueueAnswer answer;
  answer.life = life_;
  note(member, call, answer);
  ended_ = ended_ || call.ends;
  if (call.leaves)
    give_back(member);
  else if (call.wants)
    give(member, answer);
  return answer;
}

}  // namespace braid::ps
