#include "ps/server/membership.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::ps {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Membership::reset(int workers) { members_.assign(static_cast<std::size_t>(workers), Member()); }

void Membership::enter(std::int32_t worker, std::uint64_t session, std::string address,
                       Clock::time_point now) {
  Member& m = members_[static_cast<std::size_t>(worker)];
  if (m.session != session || !m.entered) m = Member();
  m.entered = true;
  m.session = session;
  m.address = std::move(address);
  m.last_heard = now;
}

std::string Membership::refusal(const Sender& sender) const {
  if (sender.worker == kObserver) return {};
  if (sender.worker < 0 || sender.worker >= workers())
    return fmt::format("there is no worker {} in a job of {}", sender.worker, workers());
  const Member& m = member(sender.worker);
  if (!m.entered) return fmt::format("worker {} has not registered", sender.worker);
  if (m.session != sender.session)
    return fmt::format("worker {} was replaced by another process ({})", sender.worker, m.address);
  if (m.put_back_to)
    return fmt::format("a restore has put the job back to step {}, and worker {} was at another one",
                       *m.put_back_to, sender.worker);
  return {};
}

void Membership::heard(const Sender& sender, std::uint64_t connection, Clock::time_point now) {
  if (sender.worker == kObserver) return;
  Member& m = members_[static_cast<std::size_t>(sender.worker)];
  m.last_heard = now;
  if (connection == 0) return;
  m.connections.insert(connection);
  m.disconnected_at.reset();
}

void Membership::disconnected(std::uint64_t connection, Clock::time_point now) {
  for (Member& m : members_)
    if (m.connections.erase(connection) != 0 && m.connections.empty()) m.disconnected_at = now;
}

void Membership::leave(std::int32_t worker) {
  if (worker != kObserver) members_[static_cast<std::size_t>(worker)].left = true;
}

void Membership::served(std::int32_t worker) {
  if (worker != kObserver) members_[static_cast<std::size_t>(worker)].served = true;
}

void Membership::put_back(std::uint64_t step, std::int32_t by) {
  for (int worker = 0; worker < workers(); ++worker) {
    Member& m = members_[static_cast<std::size_t>(worker)];
    if (worker != by && m.served) m.put_back_to = step;
  }
}

void Membership::clear_left() {
  for (Member& m : members_) m.left = false;
}

bool Membership::occupied(int worker, std::uint64_t by_other_than, Clock::time_point now) const {
  const Member& m = member(worker);
  return m.entered && !m.left && !m.put_back_to && m.session != by_other_than && !lost_since(worker, now);
}

std::optional<int> Membership::present(Clock::time_point now) const {
  for (int worker = 0; worker < workers(); ++worker)
    if (member(worker).entered && !member(worker).left && !lost_since(worker, now)) return worker;
  return std::nullopt;
}

std::optional<Clock::time_point> Membership::lost_since(int worker, Clock::time_point now) const {
  const Member& m = member(worker);
  if (!m.entered || m.left) return std::nullopt;
  if (m.disconnected_at) return m.disconnected_at;
  if (now - m.last_heard >= heartbeat_timeout_) return m.last_heard;
  return std::nullopt;
}

std::string Membership::name(int worker) const {
  return fmt::format("worker {} ({})", worker, member(worker).address);
}

std::string Membership::describe(int worker, Clock::time_point now) const {
  const Member& m = member(worker);
  if (!m.entered) return fmt::format("worker {} has not registered", worker);
  if (m.left) return fmt::format("worker {} ({}) has left", worker, m.address);
  if (m.disconnected_at)
    return fmt::format("worker {} ({}) lost: its connection closed {:.1f} s ago", worker, m.address,
                       seconds(now - *m.disconnected_at));
  if (now - m.last_heard >= heartbeat_timeout_)
    return fmt::format("worker {} ({}) lost: silent for {:.1f} s", worker, m.address,
                       seconds(now - m.last_heard));
  return fmt::format("worker {} ({}) is late", worker, m.address);
}

}  // namespace braid::ps
