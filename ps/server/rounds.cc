#include "ps/server/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace braid::ps {
namespace {

bool same(const UpdateParams& a, const UpdateParams& b) {
  return std::bit_cast<std::uint32_t>(a.learning_rate) == std::bit_cast<std::uint32_t>(b.learning_rate) &&
         std::bit_cast<std::uint32_t>(a.grad_scale) == std::bit_cast<std::uint32_t>(b.grad_scale) &&
         a.step == b.step;
}

std::string text(const UpdateParams& p) {
  return fmt::format("(learning rate {}, gradient scale {}, step {})", p.learning_rate, p.grad_scale, p.step);
}

}  // namespace

RoundLedger::RoundLedger(std::size_t tables, std::uint64_t version, bool same_params)
    : tables_(tables), first_version_(version), same_params_(same_params) {
  for (Table& table : tables_) table.applied = table.handed_out = version;
}

std::uint64_t RoundLedger::newest() const {
  std::uint64_t newest = first_version_;
  for (const Table& table : tables_) newest = std::max(newest, table.applied);
  return newest;
}

bool RoundLedger::settled(std::uint64_t step) const {
  return std::all_of(tables_.begin(), tables_.end(), [&](const Table& table) {
    return table.applied == table.handed_out && (table.open.empty() || table.open.begin()->first >= step);
  });
}

std::string RoundLedger::refusal(TableId table, std::uint64_t round, const PushJob& push) const {
  const Table& t = tables_[index_of(table)];
  if (round >= t.applied + kAhead)
    return fmt::format("round {} is too far ahead: {} rounds are applied", round, t.applied);
  const auto open = t.open.find(round);
  if (open == t.open.end() || open->second.by_worker.empty()) return {};
  if (open->second.by_worker.contains(push.sender.worker))
    return fmt::format("worker {} has pushed this table in round {} already", push.sender.worker, round);
  const Contribution& first = open->second.by_worker.begin()->second;
  if (same_params_ && !same(first.push->params, push.params))
    return fmt::format("round {}: worker {} has {}, worker {} has {}", round, push.sender.worker,
                       text(push.params), first.worker, text(first.push->params));
  return {};
}

void RoundLedger::contribute(TableId table, std::uint64_t round, Contribution contribution,
                             Clock::time_point now) {
  const std::int32_t worker = contribution.worker;
  Open& open = tables_[index_of(table)].open[round];
  if (open.by_worker.empty()) open.since = now;
  open.by_worker[worker] = std::move(contribution);
}

void RoundLedger::contribute_late(TableId table, Contribution contribution, Clock::time_point now) {
  Table& t = tables_[index_of(table)];
  const auto [open, made] = t.open.try_emplace(t.handed_out);
  if (made) open->second.since = now;
  open->second.late.push_back(std::move(contribution));
}

const Contribution* RoundLedger::contribution(TableId table, std::uint64_t round, std::int32_t worker) const {
  const auto open = tables_[index_of(table)].open.find(round);
  if (open == tables_[index_of(table)].open.end()) return nullptr;
  const auto at = open->second.by_worker.find(worker);
  return at == open->second.by_worker.end() ? nullptr : &at->second;
}

std::vector<ReadyRound> RoundLedger::take_ready(TableId table, int workers,
                                                const std::function<bool(int)>& waited_for) {
  Table& t = tables_[index_of(table)];
  std::vector<ReadyRound> ready;
  for (auto open = t.open.find(t.handed_out); open != t.open.end(); open = t.open.find(t.handed_out)) {
    for (int worker = 0; worker < workers; ++worker)
      if (waited_for(worker) && !open->second.by_worker.contains(worker)) return ready;
    ReadyRound& round = ready.emplace_back(ReadyRound{table, t.handed_out, {}, {}});
    round.params = open->second.by_worker.begin()->second.push->params;
    for (auto& [worker, contribution] : open->second.by_worker)
      round.contributions.push_back(std::move(contribution));
    t.open.erase(open);
    ++t.handed_out;
  }
  return ready;
}

std::vector<ReadyRound> RoundLedger::take_closed(TableId table, int workers,
                                                 const std::function<bool(int)>& waited_for,
                                                 const ClosingRule& rule, LateWorkers& late,
                                                 Clock::time_point now) {
  Table& t = tables_[index_of(table)];
  std::vector<ReadyRound> ready;
  for (auto open = t.open.find(t.handed_out); open != t.open.end(); open = t.open.find(t.handed_out)) {
    auto& there = open->second.by_worker;
    int waited = 0;
    std::vector<int> missing, away;
    for (int worker = 0; worker < workers; ++worker) {
      if (!waited_for(worker)) continue;
      ++waited;
      if (there.contains(worker)) continue;
      (late.is_here(worker) ? missing : away).push_back(worker);
    }
    const bool in_time = rule.never || now < open->second.since + rule.timeout;
    if (there.empty() || std::ssize(there) < std::min(rule.quorum, waited)) return ready;
    if (rule.never ? !missing.empty() || !away.empty() : !missing.empty() && in_time) return ready;
    for (const auto* absent : {&missing, &away})
      for (const int worker : *absent) late.left_out(worker, t.handed_out);
    ReadyRound& round = ready.emplace_back(ReadyRound{table, t.handed_out, {}, {}});
    const auto own = std::find_if(there.begin(), there.end(), [&](const auto& item) {
      return item.second.push->params.step == t.handed_out;
    });
    round.params = (own == there.end() ? there.begin() : own)->second.push->params;
    round.params.step = t.handed_out;
    // The mean over those that are there: a factor of 1 where that is all.
    if (const auto count = static_cast<int>(there.size()); count < waited)
      round.params.grad_scale *= static_cast<float>(waited) / static_cast<float>(count);
    for (auto& [worker, contribution] : there) round.contributions.push_back(std::move(contribution));
    for (Contribution& contribution : open->second.late)
      round.contributions.push_back(std::move(contribution));
    t.open.erase(open);
    ++t.handed_out;
  }
  return ready;
}

void RoundLedger::applied(TableId table, std::uint64_t round) {
  tables_[index_of(table)].applied = std::max(tables_[index_of(table)].applied, round + 1);
}

std::vector<int> RoundLedger::missing(TableId table, int workers,
                                      const std::function<bool(int)>& waited_for) const {
  const Table& t = tables_[index_of(table)];
  std::vector<int> out;
  if (t.handed_out > t.applied) return out;
  const auto open = t.open.find(t.handed_out);
  for (int worker = 0; worker < workers; ++worker)
    if (waited_for(worker) && (open == t.open.end() || !open->second.by_worker.contains(worker)))
      out.push_back(worker);
  return out;
}

}  // namespace braid::ps
