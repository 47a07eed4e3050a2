#include "comm/membership/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace braid::comm {
namespace {

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

/// The rank whose variables count, and whether all have the same already.
void choose_source(World& world, const std::vector<Holding>& holdings) {
  for (std::size_t rank = 0; rank < holdings.size(); ++rank) {
    const Holding& holding = holdings[rank];
    if (!holding.whole || (world.source >= 0 && holding.step <= world.step)) continue;
    world.source = static_cast<int>(rank);
    world.step = holding.step;
  }
  world.spread = std::any_of(holdings.begin(), holdings.end(), [&](const Holding& holding) {
    return !holding.whole || holding.step != world.step;
  });
}

}  // namespace

Membership::Membership(const MembershipLimits& limits, const std::string& leader, Time now)
    : limits_(limits), since_(now) {
  members_[kLeaderId].name = leader;
}

void Membership::join(MemberId id, const std::string& name, int place) {
  if (ended_) return;
  Member& member = members_[id];
  member.name = name;
  member.place = place;
}

void Membership::ready(MemberId id, std::uint64_t left, const Holding& holding, Time now) {
  const auto found = members_.find(id);
  if (found == members_.end() || ended_) return;
  Member& member = found->second;
  if (member.refused) return refuse(id);
  if (left != (member.rank < 0 ? 0 : generation_)) return;
  member.ready = true;
  member.holding = holding;
  if (member.rank >= 0) begin_gathering(now);
  form_or_end(now);
}

void Membership::leave(MemberId id, const std::string& why, bool in_order, Time now) {
  const auto found = members_.find(id);
  if (found == members_.end() || ended_ || id == kLeaderId) return;
  const Member member = found->second;
  members_.erase(found);
  if (member.rank < 0 || member.refused) return form_or_end(now);
  lost_.push_back(fmt::format("{} ({})", member.name, why));
  begin_gathering(now);
  if (!in_order)
    for (const auto& [other, its] : members_)
      if (its.rank >= 0 && !its.ready)
        events_.push_back({.kind = MembershipEvent::Kind::Over,
                           .member = other,
                           .generation = generation_,
                           .text = lost_.back()});
  form_or_end(now);
}

void Membership::tick(Time now) { form_or_end(now); }

std::vector<MembershipEvent> Membership::take_events() { return std::exchange(events_, {}); }

void Membership::begin_gathering(Time now) {
  if (gathering_) return;
  gathering_ = true;
  since_ = now;
}

std::vector<MemberId> Membership::survivors(bool ready) const {
  std::vector<MemberId> found;
  for (const auto& [id, member] : members_)
    if (member.rank >= 0 && member.ready == ready) found.push_back(id);
  std::sort(found.begin(), found.end(),
            [&](MemberId a, MemberId b) { return members_.at(a).rank < members_.at(b).rank; });
  return found;
}

std::vector<MemberId> Membership::newcomers() const {
  std::vector<MemberId> found;
  for (const auto& [id, member] : members_)
    if (member.rank < 0 && member.ready) found.push_back(id);
  if (generation_ == 0)
    std::stable_sort(found.begin(), found.end(), [&](MemberId a, MemberId b) {
      return a == kLeaderId || (b != kLeaderId && members_.at(a).place < members_.at(b).place);
    });
  return found;
}

bool Membership::wants_newcomers() const {
  return !gathering_ && !ended_ && size_ < limits_.max_workers && !newcomers().empty();
}

/// Of those for whom a world that could form would still wait.
bool Membership::may_still_come(Time now) const {
  if (generation_ == 0) {
    const bool all = static_cast<int>(newcomers().size()) >= std::min(limits_.listed, limits_.max_workers);
    return !all && now < since_ + limits_.first_wait;
  }
  return !survivors(false).empty() && now < since_ + limits_.silence;
}

void Membership::form_or_end(Time now) {
  if (!gathering_ || ended_) return;
  std::vector<MemberId> seats = survivors(true);
  const std::vector<MemberId> others = newcomers();
  const std::size_t room = static_cast<std::size_t>(limits_.max_workers);
  for (std::size_t i = 0; i < others.size() && seats.size() < room; ++i) seats.push_back(others[i]);
  const bool enough = static_cast<int>(seats.size()) >= limits_.min_workers;
  if (!enough && now >= since_ + std::max(limits_.wait, generation_ == 0 ? limits_.first_wait : limits_.wait))
    return end(now);
  if (!enough || !members_.at(kLeaderId).ready || may_still_come(now)) return;
  form(std::move(seats));
}

void Membership::form(std::vector<MemberId> seats) {
  for (const MemberId id : survivors(false)) refuse(id);
  World world;
  world.generation = ++generation_;
  std::vector<Holding> holdings;
  for (const MemberId id : seats) {
    Member& member = members_.at(id);
    world.names.push_back(member.name);
    holdings.push_back(member.holding);
    member.rank = static_cast<int>(holdings.size()) - 1;
    member.ready = false;
  }
  choose_source(world, holdings);
  for (const MemberId id : seats) {
    world.rank = members_.at(id).rank;
    events_.push_back({.kind = MembershipEvent::Kind::Formed, .member = id, .world = world});
  }
  size_ = world.size();
  gathering_ = false;
  lost_.clear();
}

void Membership::refuse(MemberId id) {
  Member& member = members_.at(id);
  member.refused = true;
  member.ready = false;
  member.rank = -1;
  events_.push_back(
      {.kind = MembershipEvent::Kind::Refused,
       .member = id,
       .text = fmt::format("the job went on without {}, which did not answer in time", member.name)});
}

void Membership::end(Time now) {
  ended_ = true;
  events_.push_back({.kind = MembershipEvent::Kind::Ended, .text = describe(now)});
}

std::string Membership::missing() const {
  std::vector<std::string> parts = lost_;
  for (const MemberId id : survivors(false))
    if (id != kLeaderId) parts.push_back(members_.at(id).name + " (silent)");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string Membership::describe(Time now) const {
  const std::size_t there = survivors(true).size() + newcomers().size();
  std::string text = fmt::format("{} of at least {} workers {} there", there, limits_.min_workers,
                                 there == 1 ? "is" : "are");
  if (generation_ == 0 && limits_.listed > limits_.min_workers)
    text += fmt::format(", {} are listed", limits_.listed);
  if (const std::string gone = missing(); !gone.empty()) text += "; missing: " + gone;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - since_);
  return text + fmt::format("; waited {:.1f} s", seconds(waited));
}

std::optional<Membership::Time> Membership::next_deadline(Time now) const {
  if (!gathering_ || ended_) return std::nullopt;
  std::optional<Time> next;
  const auto take = [&](std::chrono::milliseconds after) {
    const Time at = since_ + after;
    if (at > now && (!next || at < *next)) next = at;
  };
  take(limits_.wait);
  take(generation_ == 0 ? limits_.first_wait : limits_.silence);
  if (generation_ == 0) take(std::max(limits_.wait, limits_.first_wait));
  return next;
}

}  // namespace braid::comm
