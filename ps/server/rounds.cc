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

RoundLedger::RoundLedger(std::size_t tables, std::uint64_t version)
    : tables_(tables), first_version_(version) {
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
  if (open == t.open.end()) return {};
  if (open->second.contains(push.sender.worker))
    return fmt::format("worker {} has pushed this table in round {} already", push.sender.worker, round);
  const Contribution& first = open->second.begin()->second;
  if (!same(first.push->params, push.params))
    return fmt::format("round {}: worker {} has {}, worker {} has {}", round, push.sender.worker,
                       text(push.params), first.worker, text(first.push->params));
  return {};
}

void RoundLedger::contribute(TableId table, std::uint64_t round, Contribution contribution) {
  const std::int32_t worker = contribution.worker;
  tables_[index_of(table)].open[round][worker] = std::move(contribution);
}

const Contribution* RoundLedger::contribution(TableId table, std::uint64_t round, std::int32_t worker) const {
  const auto open = tables_[index_of(table)].open.find(round);
  if (open == tables_[index_of(table)].open.end()) return nullptr;
  const auto at = open->second.find(worker);
  return at == open->second.end() ? nullptr : &at->second;
}

std::vector<ReadyRound> RoundLedger::take_ready(TableId table, int workers,
                                                const std::function<bool(int)>& waited_for) {
  Table& t = tables_[index_of(table)];
  std::vector<ReadyRound> ready;
  for (auto open = t.open.find(t.handed_out); open != t.open.end(); open = t.open.find(t.handed_out)) {
    for (int worker = 0; worker < workers; ++worker)
      if (waited_for(worker) && !open->second.contains(worker)) return ready;
    ReadyRound& round = ready.emplace_back(ReadyRound{table, t.handed_out, {}});
    for (auto& [worker, contribution] : open->second) round.contributions.push_back(std::move(contribution));
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
    if (waited_for(worker) && (open == t.open.end() || !open->second.contains(worker))) out.push_back(worker);
  return out;
}

}  // namespace braid::ps
