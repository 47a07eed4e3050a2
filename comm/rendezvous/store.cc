#include "comm/rendezvous/store.h"

#include <fmt/core.h>

namespace braid::comm {
namespace {

void run(std::vector<std::function<void()>>& callbacks) {
  for (auto& callback : callbacks) callback();
}

std::size_t bytes_of(const Member& member) {
  std::size_t bytes = member.name.size();
  for (const auto& [name, value] : member.attributes) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

RendezvousStore::Generation& RendezvousStore::enter(const RendezvousScope& scope, Callbacks& ended) {
  require_name("job", scope.job);
  if (!jobs_.contains(scope.job) && jobs_.size() >= limits_.jobs)
    throw InvalidArgument(
        fmt::format("[rendezvous] it serves {} jobs already, which is the most", jobs_.size()));
  auto [found, is_new] = jobs_.try_emplace(scope.job);
  auto& current = found->second;
  if (is_new) current.number = scope.generation;
  if (scope.generation < current.number)
    throw Unavailable(fmt::format("[rendezvous] generation {} of job '{}' is over: generation {} has begun",
                                  scope.generation, scope.job, current.number));
  if (scope.generation - current.number > limits_.generation_step)
    throw InvalidArgument(
        fmt::format("[rendezvous] job '{}' is in generation {}; {} is more than {} beyond it", scope.job,
                    current.number, scope.generation, limits_.generation_step));
  if (scope.generation > current.number) {
    auto text = fmt::format("[rendezvous] generation {} of job '{}' is over: generation {} has begun",
                            current.number, scope.job, scope.generation);
    end_waits(current, make_error(ErrorCode::Unavailable, text), ended);
    current = {};
    current.number = scope.generation;
  }
  return current;
}

void RendezvousStore::require_name(const std::string& what, const std::string& name) const {
  if (name.size() > limits_.name_bytes)
    throw InvalidArgument(fmt::format("[rendezvous] the name of a {} has {} bytes, at most {} are allowed",
                                      what, name.size(), limits_.name_bytes));
}

void RendezvousStore::require_room(const std::string& what, std::size_t entries) const {
  if (entries >= limits_.entries)
    throw InvalidArgument(
        fmt::format("[rendezvous] there are {} {} already, which is the most", entries, what));
}

void RendezvousStore::charge(Generation& generation, const std::string& what, std::size_t bytes,
                             std::size_t before) const {
  if (generation.bytes - before + bytes > limits_.total_bytes)
    throw InvalidArgument(
        fmt::format("[rendezvous] {} of {} bytes: all values together have at most {} bytes", what, bytes,
                    limits_.total_bytes));
  generation.bytes += bytes - before;
}

void RendezvousStore::end_stay(Present& present, const ErrorPtr& error, Callbacks& ended) {
  if (present.stay) ended.push_back([done = std::move(present.done), error] { done(error); });
  present.stay.reset();
  present.gone.reset();
}

void RendezvousStore::end_waits(Generation& generation, const ErrorPtr& error, Callbacks& ended) {
  for (auto& [ticket, waiter] : generation.waiters)
    ended.push_back([done = std::move(waiter.done), error] { done(error, {}); });
  generation.waiters.clear();
  for (auto& [name, barrier] : generation.barriers)
    for (auto& [rank, tickets] : barrier.arrived)
      for (auto& [ticket, done] : tickets) ended.push_back([done = std::move(done), error] { done(error); });
  generation.barriers.clear();
  for (auto& [name, present] : generation.members) end_stay(present, error, ended);
}

void RendezvousStore::set(const RendezvousScope& scope, const std::string& key, Value value) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    require_name("key", key);
    if (value.size() > limits_.value_bytes)
      throw InvalidArgument(fmt::format("[rendezvous] the value of '{}' has {} bytes, at most {} are allowed",
                                        key, value.size(), limits_.value_bytes));
    auto& generation = enter(scope, ended);
    const auto there = generation.values.find(key);
    if (there == generation.values.end()) require_room("keys", generation.values.size());
    charge(generation, "a value", key.size() + value.size(),
           there == generation.values.end() ? 0 : key.size() + there->second.size());
    for (auto waiter = generation.waiters.begin(); waiter != generation.waiters.end();) {
      if (waiter->second.key != key) {
        ++waiter;
        continue;
      }
      ended.push_back([done = std::move(waiter->second.done), value] { done(nullptr, value); });
      waiter = generation.waiters.erase(waiter);
    }
    generation.values[key] = std::move(value);
  }
  run(ended);
}

std::optional<RendezvousStore::Ticket> RendezvousStore::get(const RendezvousScope& scope,
                                                            const std::string& key, GetDone done) {
  Callbacks ended;
  std::optional<Ticket> ticket;
  {
    std::lock_guard lock(mutex_);
    require_name("key", key);
    auto& generation = enter(scope, ended);
    require_room("waits", generation.waiters.size());
    if (auto value = generation.values.find(key); value != generation.values.end()) {
      ended.push_back([done = std::move(done), value = value->second] { done(nullptr, value); });
    } else {
      ticket = next_ticket_++;
      generation.waiters.emplace(*ticket, Waiter{key, std::move(done)});
    }
  }
  run(ended);
  return ticket;
}

std::optional<RendezvousStore::Ticket> RendezvousStore::barrier(const RendezvousScope& scope,
                                                                const std::string& name, std::uint64_t round,
                                                                int rank, int size, BarrierDone done) {
  require_name("barrier", name);
  if (size < 1 || size > limits_.ranks || rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("[rendezvous] barrier '{}': rank {} of {}", name, rank, size));
  Callbacks ended;
  std::optional<Ticket> ticket;
  {
    std::lock_guard lock(mutex_);
    auto& barriers = enter(scope, ended).barriers;
    if (!barriers.contains(name)) require_room("barriers", barriers.size());
    auto& barrier = barriers[name];
    if (round < barrier.round) {
      ended.push_back([done = std::move(done)] { done(nullptr); });
    } else {
      if (barrier.arrived.empty()) barrier.size = size;
      if (barrier.size != size)
        throw InvalidArgument(
            fmt::format("[rendezvous] barrier '{}': rank {} says that there are {} ranks, others say {}",
                        name, rank, size, barrier.size));
      if (barrier.arrived.contains(rank)) require_room("waits of a rank", barrier.arrived[rank].size());
      ticket = next_ticket_++;
      barrier.arrived[rank].emplace(*ticket, std::move(done));
      if (static_cast<int>(barrier.arrived.size()) == size) {
        for (auto& [arrived, tickets] : barrier.arrived)
          for (auto& [other, callback] : tickets)
            ended.push_back([callback = std::move(callback)] { callback(nullptr); });
        barrier.arrived.clear();
        ++barrier.round;
        ticket.reset();
      }
    }
  }
  run(ended);
  return ticket;
}

void RendezvousStore::cancel(Ticket ticket) {
  std::lock_guard lock(mutex_);
  for (auto& [job, generation] : jobs_) {
    generation.waiters.erase(ticket);
    for (auto& [name, present] : generation.members) {
      if (present.stay != ticket) continue;
      present.stay.reset();
      present.done = nullptr;
      present.gone = WaitContext::Clock::now();
    }
    for (auto& [name, barrier] : generation.barriers) {
      for (auto rank = barrier.arrived.begin(); rank != barrier.arrived.end();) {
        rank->second.erase(ticket);
        rank = rank->second.empty() ? barrier.arrived.erase(rank) : std::next(rank);
      }
    }
  }
}

std::vector<int> RendezvousStore::missing(const RendezvousScope& scope, const std::string& name, int size) {
  if (size < 0 || size > limits_.ranks)
    throw InvalidArgument(fmt::format("[rendezvous] barrier '{}' of {} ranks", name, size));
  Callbacks ended;
  std::vector<int> missing;
  {
    std::lock_guard lock(mutex_);
    const auto& barriers = enter(scope, ended).barriers;
    const auto barrier = barriers.find(name);
    for (int rank = 0; rank < size; ++rank)
      if (barrier == barriers.end() || !barrier->second.arrived.contains(rank)) missing.push_back(rank);
  }
  run(ended);
  return missing;
}

void RendezvousStore::add_member(const RendezvousScope& scope, const Member& member) {
  if (member.name.empty()) throw InvalidArgument("[rendezvous] a member needs a name");
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    require_name("member", member.name);
    for (const auto& [name, value] : member.attributes) require_name("attribute", name);
    auto& generation = enter(scope, ended);
    const auto there = generation.members.find(member.name);
    if (there == generation.members.end()) require_room("members", generation.members.size());
    charge(generation, "a member", bytes_of(member),
           there == generation.members.end() ? 0 : bytes_of(there->second.member));
    Present& present = generation.members[member.name];
    present.member = member;
    present.heard = WaitContext::Clock::now();
  }
  run(ended);
}

void RendezvousStore::heartbeat(const RendezvousScope& scope, const std::string& name) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    auto& members = enter(scope, ended).members;
    auto member = members.find(name);
    if (member == members.end())
      throw InvalidArgument(fmt::format("[rendezvous] no member '{}' was added", name));
    member->second.heard = WaitContext::Clock::now();
  }
  run(ended);
}

RendezvousStore::Ticket RendezvousStore::stay(const RendezvousScope& scope, const std::string& name,
                                              StayDone done) {
  Callbacks ended;
  Ticket ticket = 0;
  {
    std::lock_guard lock(mutex_);
    auto& members = enter(scope, ended).members;
    const auto member = members.find(name);
    if (member == members.end())
      throw InvalidArgument(fmt::format("[rendezvous] no member '{}' was added", name));
    end_stay(member->second, nullptr, ended);
    ticket = next_ticket_++;
    member->second.stay = ticket;
    member->second.done = std::move(done);
  }
  run(ended);
  return ticket;
}

void RendezvousStore::leave(const RendezvousScope& scope, const std::string& name) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    auto& members = enter(scope, ended).members;
    if (const auto member = members.find(name); member != members.end())
      end_stay(member->second, nullptr, ended);
  }
  run(ended);
}

std::vector<MemberStatus> RendezvousStore::members(const RendezvousScope& scope) {
  Callbacks ended;
  std::vector<MemberStatus> result;
  {
    std::lock_guard lock(mutex_);
    using std::chrono::duration_cast, std::chrono::milliseconds;
    const auto now = WaitContext::Clock::now();
    for (auto& [name, present] : enter(scope, ended).members) {
      result.push_back({present.member, duration_cast<milliseconds>(now - present.heard), std::nullopt});
      if (present.gone) result.back().since_gone = duration_cast<milliseconds>(now - *present.gone);
    }
  }
  run(ended);
  return result;
}

void RendezvousStore::post_progress(const RendezvousScope& scope, const RankProgress& progress) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    require_name("collective", progress.last_collective);
    if (progress.rank < 0 || progress.rank >= limits_.ranks)
      throw InvalidArgument(fmt::format("[rendezvous] there is no rank {}", progress.rank));
    enter(scope, ended).progress[progress.rank] = progress;
  }
  run(ended);
}

std::vector<RankProgress> RendezvousStore::progress(const RendezvousScope& scope) {
  Callbacks ended;
  std::vector<RankProgress> result;
  {
    std::lock_guard lock(mutex_);
    for (auto& [rank, progress] : enter(scope, ended).progress) result.push_back(progress);
  }
  run(ended);
  return result;
}

std::size_t RendezvousStore::waits() const {
  std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (auto& [job, generation] : jobs_) {
    count += generation.waiters.size();
    for (auto& [name, barrier] : generation.barriers)
      for (auto& [rank, tickets] : barrier.arrived) count += tickets.size();
  }
  return count;
}

std::size_t RendezvousStore::stays() const {
  std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [job, generation] : jobs_)
    for (const auto& [name, present] : generation.members) count += present.stay.has_value() ? 1 : 0;
  return count;
}

void RendezvousStore::fail_waits(const std::string& text) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    for (auto& [job, generation] : jobs_)
      end_waits(generation, make_error(ErrorCode::Unavailable, text), ended);
  }
  run(ended);
}

}  // namespace braid::comm
