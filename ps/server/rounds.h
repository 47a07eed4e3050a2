// The rounds of BSP: for each table, which workers have pushed which step, and which rounds are applied.
// Round s is made of the pushes of step s. Rounds of a table become ready in order; the ready ones are handed
// out once. Thread rule: one thread at a time (the core's lock).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ps/server/late_workers.h"
#include "ps/server/requests.h"
#include "ps/server/table_id.h"

namespace braid::ps {

/// A worker's part in a round of one table: parts [part] of the push's list of that kind of table.
struct Contribution {
  std::int32_t worker = 0;
  std::shared_ptr<const PushJob> push;
  std::size_t part = 0;
};

/// A round to apply; contributions by rising worker.
struct ReadyRound {
  TableId table = {};
  std::uint64_t round = 0;
  std::vector<Contribution> contributions;
  UpdateParams params;  // of its own step
};

/// How a round of TIMED closes (ps/table_set.h).
struct ClosingRule {
  std::chrono::milliseconds timeout;
  int quorum;
  bool never;  // but with all
};

class RoundLedger {
 public:
  /// Rounds may be pushed this far ahead of the applied ones.
  static constexpr std::uint64_t kAhead = 64;

  /// All tables start with `version` rounds applied. `same_params`: pushes of a round must agree in theirs.
  RoundLedger(std::size_t tables, std::uint64_t version, bool same_params = true);

  /// Rounds of the table that are applied.
  std::uint64_t version(TableId table) const { return tables_[index_of(table)].applied; }
  /// Rounds of the table that take_ready() has given.
  std::uint64_t handed_out(TableId table) const { return tables_[index_of(table)].handed_out; }
  /// The largest number of rounds applied to a table; `version` of the constructor without tables.
  std::uint64_t newest() const;
  /// Every push of a step below `step` that was taken is applied.
  bool settled(std::uint64_t step) const;

  /// The round was handed out or is applied: nothing more goes into it.
  bool over(TableId table, std::uint64_t round) const { return round < tables_[index_of(table)].handed_out; }
  /// Why a contribution to a round that is not over cannot be taken; empty when it can.
  std::string refusal(TableId table, std::uint64_t round, const PushJob& push) const;
  void contribute(TableId table, std::uint64_t round, Contribution contribution,
                  Clock::time_point now = Clock::now());
  /// A worker's contribution to a round that is not handed out; null when there is none.
  const Contribution* contribution(TableId table, std::uint64_t round, std::int32_t worker) const;

  /// Takes out the next rounds of a table for which every worker that `waited_for` has contributed, and
  /// somebody has.
  std::vector<ReadyRound> take_ready(TableId table, int workers, const std::function<bool(int)>& waited_for);
  /// The same where a round may close without some, who are told to `late`: the workers that are here (of
  /// those `waited_for`) have all contributed, or the rule's time is over; and a quorum has. Its params are
  /// made for those that contributed.
  std::vector<ReadyRound> take_closed(TableId table, int workers, const std::function<bool(int)>& waited_for,
                                      const ClosingRule& rule, LateWorkers& late, Clock::time_point now);
  /// What comes too late for its own round, into the one that is open.
  void contribute_late(TableId table, Contribution contribution, Clock::time_point now);
  std::uint64_t open_round(TableId table) const { return tables_[index_of(table)].handed_out; }
  /// The round is applied.
  void applied(TableId table, std::uint64_t round);

  /// The workers whose contribution to the first unapplied round of the table is not here.
  std::vector<int> missing(TableId table, int workers, const std::function<bool(int)>& waited_for) const;

 private:
  struct Open {
    std::map<std::int32_t, Contribution> by_worker;
    std::vector<Contribution> late;  // of other rounds
    Clock::time_point since;         // the first one came
  };
  struct Table {
    std::uint64_t applied = 0;
    std::uint64_t handed_out = 0;  // rounds below were taken by take_ready
    std::map<std::uint64_t, Open> open;
  };
  std::vector<Table> tables_;
  std::uint64_t first_version_;
  bool same_params_;
};

}  // namespace braid::ps
