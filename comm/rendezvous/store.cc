#include "comm/rendezvous/store.h"

#include <fmt/core.h>

namespace braid::comm {
namespace {

void run(std::vector<std::function<void()>>& callbacks) {
  for (auto& callback : callbacks) callback();
}

}  // namespace

RendezvousStore::Generation& RendezvousStore::enter(const RendezvousScope& scope, Callbacks& ended) {
  auto [found, is_new] = jobs_.try_emplace(scope.job);
  auto& current = found->second;
  if (is_new) current.number = scope.generation;
  if (scope.generation < current.number)
    throw Unavailable(fmt::format("[rendezvous] generation {} of job '{}' is over: generation {} has begun",
                                  scope.generation, scope.job, current.number));
  if (scope.generation > current.number) {
    auto text = fmt::format("[rendezvous] generation {} of job '{}' is over: generation {} has begun",
                            current.number, scope.job, scope.generation);
    end_waits(current, make_error(ErrorCode::Unavailable, text), ended);
    current = {};
    current.number = scope.generation;
  }
  return current;
}

void RendezvousStore::end_waits(Generation& generation, const ErrorPtr& error, Callbacks& ended) {
  for (auto& [ticket, waiter] : generation.waiters)
    ended.push_back([done = std::move(waiter.done), error] { done(error, {}); });
  generation.waiters.clear();
  for (auto& [name, barrier] : generation.barriers)
    for (auto& [rank, tickets] : barrier.arrived)
      for (auto& [ticket, done] : tickets) ended.push_back([done = std::move(done), error] { done(error); });
  generation.barriers.clear();
}

void RendezvousStore::set(const RendezvousScope& scope, const std::string& key, Value value) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    auto& generation = enter(scope, ended);
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
    auto& generation = enter(scope, ended);
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
  if (size < 1 || rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("[rendezvous] barrier '{}': rank {} of {}", name, rank, size));
  Callbacks ended;
  std::optional<Ticket> ticket;
  {
    std::lock_guard lock(mutex_);
    auto& barrier = enter(scope, ended).barriers[name];
    if (round < barrier.round) {
      ended.push_back([done = std::move(done)] { done(nullptr); });
    } else {
      if (barrier.arrived.empty()) barrier.size = size;
      if (barrier.size != size)
        throw InvalidArgument(
            fmt::format("[rendezvous] barrier '{}': rank {} says that there are {} ranks, others say {}",
                        name, rank, size, barrier.size));
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
    for (auto& [name, barrier] : generation.barriers) {
      for (auto rank = barrier.arrived.begin(); rank != barrier.arrived.end();) {
        rank->second.erase(ticket);
        rank = rank->second.empty() ? barrier.arrived.erase(rank) : std::next(rank);
      }
    }
  }
}

std::vector<int> RendezvousStore::missing(const RendezvousScope& scope, const std::string& name, int size) {
  Callbacks ended;
  std::vector<int> missing;
  {
    std::lock_guard lock(mutex_);
    auto& barrier = enter(scope, ended).barriers[name];
    for (int rank = 0; rank < size; ++rank)
      if (!barrier.arrived.contains(rank)) missing.push_back(rank);
  }
  run(ended);
  return missing;
}

void RendezvousStore::add_member(const RendezvousScope& scope, const Member& member) {
  if (member.name.empty()) throw InvalidArgument("[rendezvous] a member needs a name");
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
    enter(scope, ended).members[member.name] = {member, WaitContext::Clock::now()};
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
    member->second.second = WaitContext::Clock::now();
  }
  run(ended);
}

std::vector<MemberStatus> RendezvousStore::members(const RendezvousScope& scope) {
  Callbacks ended;
  std::vector<MemberStatus> result;
  {
    std::lock_guard lock(mutex_);
    auto now = WaitContext::Clock::now();
    for (auto& [name, entry] : enter(scope, ended).members)
      result.push_back(
          {entry.first, std::chrono::duration_cast<std::chrono::milliseconds>(now - entry.second)});
  }
  run(ended);
  return result;
}

void RendezvousStore::post_progress(const RendezvousScope& scope, const RankProgress& progress) {
  Callbacks ended;
  {
    std::lock_guard lock(mutex_);
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
