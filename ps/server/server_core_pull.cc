// Pulls of a server: which wait for what, what they get, and when they are given up.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ps/server/server_core.h"

namespace braid::ps {
namespace {

constexpr std::size_t kPullsAhead = 4;  // of a worker, that can be repaired

}  // namespace

void ServerCore::pull(PullJob job_in) {
  auto job = std::make_shared<PullJob>(std::move(job_in));
  bool unknown = false;
  try {
    std::lock_guard lock(mutex_);
    require(job->sender);
    if (job->trial) return trial().pull(job, pool_, table_threads_);
    if (!tables_) throw InvalidArgument("[ps] pull before create_tables");
    tables_->check_pull(*job);
    if (job->kind == PullKind::Changed && (!bsp() || job->sender.worker == kObserver))
      throw InvalidArgument("[ps] a pull of changed rows is of a worker and of BSP");
    if (job->sender.worker == kObserver) job->insert = false;
    if (job->kind == PullKind::Ahead && (!bsp() || job->sender.worker == kObserver))
      job->kind = PullKind::Plain;
    look_for_round(*job);
    if (job->kind == PullKind::Repair && !find_ahead(*job)) {
      unknown = true;
    } else if (counters_->add(Count::Pulls); satisfied(*job)) {
      post_pull(job);
    } else {
      counters_->add(Count::PullsParked);
      parked_.push_back(job);
      counters_->set_parked_now(parked_.size());
    }
  } catch (...) {
    counters_->add(Count::RequestsRefused);
    return job->done({capture_current_exception(), 0, {}, nullptr});
  }
  if (!unknown) return;
  PullAnswer answer;
  answer.unknown = true;
  job->done(std::move(answer));
}

/// A repair gets the parts of the pull that it names. False: that is not here any more.
bool ServerCore::find_ahead(PullJob& job) const {
  const auto kept = ahead_.find(job.sender.worker);
  if (kept == ahead_.end()) return false;
  for (const auto& ahead : kept->second)
    if (ahead->pull->ahead == job.ahead && ahead->pull->sender.session == job.sender.session) {
      job.repairs = ahead;
      job.sparse = ahead->pull->sparse;
      job.slots = ahead->pull->slots;
      return true;
    }
  return false;
}

/// REQUIRES: its rows are read by what is posted next.
void ServerCore::keep_ahead(const std::shared_ptr<PullJob>& job) {
  auto& kept = ahead_[job->sender.worker];
  std::erase_if(kept, [&](const auto& old) {
    return old->pull->ahead == job->ahead || old->pull->sender.session != job->sender.session;
  });
  if (kept.size() == kPullsAhead) kept.pop_front();
  auto pull = std::make_shared<PullJob>();
  pull->sender = job->sender;
  pull->ahead = job->ahead;
  pull->sparse = job->sparse;
  pull->slots = job->slots;
  pull->hold = job->hold;
  PulledAhead ahead{std::move(pull), {}};
  for (const SparsePart& part : job->sparse)
    ahead.rounds.push_back(rounds_->handed_out(tables_->sparse_id(part.table)));
  kept.push_back(std::make_shared<const PulledAhead>(std::move(ahead)));
  job->insert = false;
}

/// TIMED: the round that the pull's step is in. A worker that is back from being late begins with a round, as
/// the others do.
void ServerCore::look_for_round(PullJob& job) const {
  job.step = job.min_version;
  if (!started_ || !timed() || job.sender.worker == kObserver) return;
  job.min_version = late_->round_to_pull(job.sender.worker, job.step);
  // Behind the last round there is none to wait for: the answer says that it is over.
  if (const std::uint64_t rounds = tables_->set().timed.rounds; rounds > 0)
    job.min_version = std::min(job.min_version, rounds);
  // What is pulled beside steps, to evaluate, begins none.
  if (late_->is_here(job.sender.worker) || !job.insert) return;
  for (TableId table : tables_->ids_of(job))
    job.begins_at = std::max(job.begins_at, rounds_->open_round(table) + 1);
}

/// Enough workers to close a round are here without those that are away.
bool ServerCore::rounds_go_on() const {
  int here = 0, waited = 0;
  for (int w = 0; w < members_.workers(); ++w) {
    if (!waited_for(w)) continue;
    ++waited;
    here += late_->is_here(w) ? 1 : 0;
  }
  const TimedRule& rule = tables_->set().timed;
  return here > 0 && here >= std::min(rule.quorum, waited) &&
         (rule.rounds == 0 || rounds_->newest() < rule.rounds);
}

bool ServerCore::satisfied(const PullJob& job) const {
  if (!started_) return false;
  for (TableId table : tables_->ids_of(job))
    if (!satisfied(job, table)) return false;
  return true;
}

bool ServerCore::satisfied(const PullJob& job, TableId table) const {
  if (timed() && rounds_->version(table) < job.begins_at && rounds_go_on()) return false;
  if (bsp()) return rounds_->version(table) >= job.min_version;
  return !ssp() || job.sender.worker == kObserver || missing(job, table).empty();
}

std::vector<int> ServerCore::missing(const PullJob& job, TableId table) const {
  const auto waits = [&](int w) { return waited_for(w); };
  if (!ssp()) return rounds_->missing(table, members_.workers(), waits);
  const std::uint64_t staleness = tables_->set().staleness;
  return job.min_version <= staleness ? std::vector<int>{}
                                      : clocks_->behind(table, job.min_version - staleness, waits);
}

/// What a pull says of who is late or how far behind.
void ServerCore::count_served(const PullJob& job) {
  const int worker = job.sender.worker;
  const std::vector<TableId> tables = tables_->ids_of(job);
  if (worker == kObserver || !job.insert || tables.empty()) return;
  if (timed()) {
    std::uint64_t round = ~std::uint64_t{0};
    for (TableId table : tables) round = std::min(round, rounds_->version(table));
    late_->served(worker, job.step, round);
  }
  if (ssp() && job.min_version > 0) {
    std::uint64_t slowest = ~std::uint64_t{0};
    for (TableId table : tables)
      slowest = std::min(slowest, clocks_->slowest(table, [&](int w) { return waited_for(w); }));
    counters_->add_staleness(job.min_version > slowest ? job.min_version - slowest : 0);
  }
}

void ServerCore::post_pull(const std::shared_ptr<PullJob>& job) {
  auto work = std::make_shared<PullWork>(tables_->begin_pull(*job, pool_));
  auto repair = std::make_shared<RepairWork>();
  const bool has_changed = job->kind == PullKind::Changed;
  if (job->repairs || has_changed) repair->shares.resize(static_cast<std::size_t>(table_threads_.threads()));
  if (job->kind == PullKind::Ahead) keep_ahead(job);
  const std::uint64_t version = applied_everywhere();
  // Whoever pulls this version hears the same, whatever was pushed since. Without rounds each stops by
  // itself.
  const bool stop = bsp() ? stop_round_ < job->min_version : ends_;
  const bool over = timed() && tables_->set().timed.rounds > 0 && version >= tables_->set().timed.rounds;
  const bool finish = over || (bsp() ? finish_round_ < job->min_version : finish_round_ != kNoRound);
  newest_pulled_ = std::max(newest_pulled_, job->min_version);
  count_served(*job);
  members_.served(job->sender.worker);
  table_threads_.post(
      [this, tables = tables_, job, work, repair, has_changed](int thread) {
        std::int64_t made = tables->pull(thread, *job, *work);
        if (job->repairs) made += tables->repair(thread, *job->repairs, job->min_version, *repair);
        if (has_changed) made += tables->changed(thread, *job, *repair);
        counters_->add(Count::RowsMade, static_cast<std::uint64_t>(made));
      },
      [this, job, work, repair, version, stop, finish, has_changed](ErrorPtr error) {
        PullAnswer answer;
        answer.version = version;
        answer.stop = stop;
        answer.finish = finish;
        if (error) {
          answer.error = std::move(error);
        } else {
          if (!job->repairs && !has_changed)
            for (const auto& part : job->sparse) counters_->add(Count::RowsPulled, part.keys.size());
          add_pieces(*work, *repair, answer);
          std::uint64_t lacked = 0;
          for (const auto& part : job->sparse)
            lacked += static_cast<std::uint64_t>(std::ranges::count(part.known, 0U));
          if (has_changed) counters_->add(Count::RowsPulled, lacked);
          counters_->add(has_changed ? Count::RowsChanged : Count::RowsRepaired, answer.repaired - lacked);
          for (const auto& piece : answer.pieces) counters_->add(Count::BytesSent, piece.size_bytes());
          answer.hold = std::make_shared<std::pair<std::shared_ptr<PullWork>, std::shared_ptr<RepairWork>>>(
              work, repair);
        }
        job->done(std::move(answer));
      });
}

/// Rounds applied to each table of this server; the largest number when it holds none.
std::uint64_t ServerCore::applied_everywhere() const {
  std::uint64_t oldest = ~std::uint64_t{0};
  for (TableId table : tables_->ids())
    if (tables_->present(table)) oldest = std::min(oldest, rounds_->version(table));
  return oldest;
}

void ServerCore::release_parked() {
  for (auto it = parked_.begin(); it != parked_.end();) {
    const auto job = *it;
    const ErrorPtr refused = admit(job->sender);
    if (!refused && !satisfied(*job)) {
      ++it;
      continue;
    }
    it = parked_.erase(it);
    try {
      if (refused) throw_error(*refused);
      post_pull(job);
    } catch (...) {
      job->done({capture_current_exception(), 0, {}, nullptr});
    }
  }
  counters_->set_parked_now(parked_.size());
}

std::string ServerCore::who_is_missing(TableId table, Clock::time_point now) const {
  PullJob any;
  any.min_version = kNoRound;
  return who_is_missing(any, table, now);
}

std::string ServerCore::who_is_missing(const PullJob& job, TableId table, Clock::time_point now) const {
  std::vector<std::string> who;
  for (int worker : missing(job, table)) who.push_back(members_.describe(worker, now));
  if (ssp())
    return fmt::format("{}; step {} of table '{}' waits for it", fmt::join(who, ", "), job.min_version,
                       tables_->name(table));
  return fmt::format("{}; round {} of table '{}' waits for it",
                     who.empty() ? "an update is under way" : fmt::format("{}", fmt::join(who, ", ")),
                     rounds_->version(table), tables_->name(table));
}

std::optional<ErrorRecord> ServerCore::why_give_up(const PullJob& job, Clock::time_point now) const {
  const bool late = now >= job.deadline;
  const std::string prefix = fmt::format("[ps] server {}: ", options_.index);
  if (!started_) {
    const auto since = members_.lost_since(0, now);
    const bool lost = since && now - *since >= options_.heartbeat_timeout;
    if (!late && !lost) return std::nullopt;
    return ErrorRecord{lost ? ErrorCode::Unavailable : ErrorCode::DeadlineExceeded,
                       prefix + "initial values are neither set nor restored; it is for worker 0 to do: " +
                           members_.describe(0, now)};
  }
  for (TableId table : tables_->ids_of(job)) {
    if (satisfied(job, table)) continue;
    bool anybody_lost = false;
    bool give_up = late;
    for (int worker : missing(job, table)) {
      const auto since = members_.lost_since(worker, now);
      anybody_lost |= since.has_value();
      give_up |= since && now - *since >= options_.heartbeat_timeout;
    }
    if (!give_up) return std::nullopt;
    return ErrorRecord{anybody_lost ? ErrorCode::Unavailable : ErrorCode::DeadlineExceeded,
                       prefix + who_is_missing(job, table, now)};
  }
  return std::nullopt;
}

}  // namespace braid::ps
