#include "ps/server/server_core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "base/log.h"

namespace braid::ps {
namespace {

std::uint64_t new_instance() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

constexpr std::size_t kPullsAhead = 4;  // of a worker, that can be repaired

/// First which rows, then the rows.
void add_repaired(const RepairWork& repair, PullAnswer& answer) {
  for (const auto& share : repair.shares) {
    if (share.where.empty()) continue;
    answer.repaired += share.where.size();
    // Numbers among floats: pieces are sent as bytes.
    answer.pieces.emplace_back(reinterpret_cast<const float*>(share.where.data()), share.where.size());
  }
  for (const auto& share : repair.shares)
    if (!share.rows.empty()) answer.pieces.emplace_back(share.rows);
}

std::uint64_t bytes_of(const std::vector<DensePart>& parts) {
  std::uint64_t bytes = 0;
  for (const DensePart& part : parts) bytes += part.values.size_bytes();
  return bytes;
}

}  // namespace

ServerCore::ServerCore(Options options)
    : options_(options),
      instance_(new_instance()),
      counters_(std::make_shared<ServerCounters>()),
      members_(options.heartbeat_timeout),
      table_threads_(options.table_threads) {}

ErrorPtr ServerCore::admit(const Sender& sender) const {
  auto refuse = [&](ErrorCode code, const std::string& why) {
    return make_error(code, fmt::format("[ps] server {}: {}", options_.index, why));
  };
  if (broken_) return broken_;
  if (sender.instance != instance_)
    return refuse(
        ErrorCode::Unavailable,
        fmt::format("this is instance {:016x}, the message of worker {} is for instance {:016x}: the server "
                    "was started again and its state is gone",
                    instance_, sender.worker, sender.instance));
  if (job_.empty() || sender.job != job_hash_)
    return refuse(ErrorCode::InvalidArgument,
                  fmt::format("worker {} belongs to another job than '{}'", sender.worker, job_));
  if (sender.incarnation != incarnation_)
    return refuse(ErrorCode::Unavailable,
                  fmt::format("worker {} belongs to incarnation {} of job '{}', which is at {}",
                              sender.worker, sender.incarnation, job_, incarnation_));
  if (refusal_) return refusal_;
  if (auto why = members_.refusal(sender); !why.empty()) return refuse(ErrorCode::Unavailable, why);
  return nullptr;
}

void ServerCore::require(const Sender& sender) const {
  auto error = admit(sender);
  if (error && error == refusal_) refused_.insert(sender.worker);
  if (error) throw_error(*error);
}

void ServerCore::assign(AssignJob job_in) {
  auto job = std::make_shared<AssignJob>(std::move(job_in));
  try {
    std::lock_guard lock(mutex_);
    require(job->sender);
    if (job->sender.worker != 0)
      throw InvalidArgument(fmt::format("[ps] server {}: worker {} sets initial values, which worker 0 does",
                                        options_.index, job->sender.worker));
    if (!tables_) throw InvalidArgument("[ps] initial values before create_tables");
    tables_->check(job->dense, {});
    if (started_)
      throw InvalidArgument(
          fmt::format("[ps] server {}: the job has its initial values already ({} rounds applied); "
                      "only a restore replaces them",
                      options_.index, rounds_->newest()));
    counters_->add(Count::BytesReceived, bytes_of(job->dense));
    for (const DensePart& part : job->dense) assigned_[part.table] = true;
    table_threads_.post(
        [tables = tables_, job](int thread) {
          for (const DensePart& part : job->dense) tables->assign(thread, part);
        },
        [job](ErrorPtr error) { job->done(std::move(error)); });
  } catch (...) {
    counters_->add(Count::RequestsRefused);
    job->done(capture_current_exception());
  }
}

void ServerCore::push(PushJob job_in) {
  auto job = std::make_shared<PushJob>(std::move(job_in));
  bool answered_later = false;
  PushAnswer answer;
  try {
    std::lock_guard lock(mutex_);
    answer = take(job, &answered_later);
  } catch (...) {
    answer.error = capture_current_exception();
  }
  if (answered_later) return;
  if (answer.error) counters_->add(Count::RequestsRefused);
  job->done(std::move(answer));
}

std::string ServerCore::dropped_because(const PushJob& job) const {
  if (!bsp()) return {};
  for (TableId table : tables_->ids_of(job))
    if (rounds_->over(table, job.round))
      return fmt::format("round {} of table '{}' is over", job.round, tables_->name(table));
  return {};
}

/// A worker process that takes the place of a lost one makes the step again that the other was in.
bool ServerCore::pushed_by_former_process(const PushJob& job) const {
  const auto tables = tables_->ids_of(job);
  return !tables.empty() && std::all_of(tables.begin(), tables.end(), [&](TableId table) {
    const Contribution* there = rounds_->contribution(table, job.round, job.sender.worker);
    return there != nullptr && there->push->sender.session != job.sender.session;
  });
}

void ServerCore::check_contribution(const PushJob& job) const {
  for (TableId table : tables_->ids_of(job))
    if (auto why = rounds_->refusal(table, job.round, job); !why.empty())
      throw InvalidArgument(
          fmt::format("[ps] server {}: table '{}': {}", options_.index, tables_->name(table), why));
}

PushAnswer ServerCore::take(const std::shared_ptr<PushJob>& job, bool* answered_later) {
  const Sender& sender = job->sender;
  require(sender);
  if (sender.worker == kObserver) throw InvalidArgument("[ps] an observer cannot push");
  if (!tables_) throw InvalidArgument("[ps] push before create_tables");
  if (!started_) throw InvalidArgument("[ps] push before the initial values are set");
  tables_->check(job->dense, job->sparse);

  job->round = timed() ? late_->round_of(sender.worker, job->step) : job->step;
  const Seen seen = marks_.look(sender.worker, job->step, job->sequence);
  if (seen == Seen::Duplicate || (bsp() && seen == Seen::New && pushed_by_former_process(*job))) {
    counters_->add(Count::PushesDuplicate);
    return {nullptr, PushResult::Duplicate, {}};
  }
  if (timed() && seen == Seen::New) {
    const TimedRule& rule = tables_->set().timed;
    if (rule.rounds > 0 && job->round >= rule.rounds) {
      marks_.take(sender.worker, job->step, job->sequence);
      counters_->add(Count::PushesDropped);
      return {nullptr, PushResult::Dropped, fmt::format("all {} rounds of the job are over", rule.rounds)};
    }
    if (late_->is_closed(sender.worker, job->round)) return take_late(job);
  }
  std::string dropped = seen == Seen::Stale
                            ? fmt::format("step {} is more than {} steps old", job->step, Watermarks::kWindow)
                            : dropped_because(*job);
  if (!dropped.empty()) {
    counters_->add(Count::PushesDropped);
    counters_->add(Count::PushesStale);
    log_warning("[ps] server {}: dropped push {} of step {} of worker {}: {}", options_.index, job->sequence,
                job->step, sender.worker, dropped);
    return {nullptr, PushResult::Dropped, std::move(dropped)};
  }
  if (members_.left(sender.worker))
    throw InvalidArgument(
        fmt::format("[ps] server {}: worker {} has left and cannot push", options_.index, sender.worker));
  if (bsp()) check_contribution(*job);

  marks_.take(sender.worker, job->step, job->sequence);
  counters_->add(Count::PushesApplied);
  counters_->add(Count::Examples, job->examples);
  if (timed()) count_push(*job, false);
  if (job->votes_to_stop) stop_round_ = std::min(stop_round_, job->round);
  if (job->votes_to_finish) finish_round_ = std::min(finish_round_, job->round);
  std::uint64_t bytes = bytes_of(job->dense);
  for (const SparsePart& part : job->sparse) {
    counters_->add(Count::RowsPushed, part.keys.size());
    bytes += part.keys.size() *
             (sizeof(std::int64_t) + static_cast<std::uint64_t>(tables_->dim(part.table)) * sizeof(float));
  }
  counters_->add(Count::BytesReceived, bytes);
  if (bsp()) {
    contribute(job);
    post_ready_rounds(tables_->ids_of(*job));
  } else {
    post_push(job);
    *answered_later = true;
  }
  return {};
}

void ServerCore::contribute(const std::shared_ptr<PushJob>& job) {
  for (std::size_t i = 0; i < job->dense.size(); ++i)
    rounds_->contribute(tables_->dense_id(job->dense[i].table), job->round, {job->sender.worker, job, i});
  for (std::size_t i = 0; i < job->sparse.size(); ++i)
    rounds_->contribute(tables_->sparse_id(job->sparse[i].table), job->round, {job->sender.worker, job, i});
}

/// TIMED: its round closed without it.
PushAnswer ServerCore::take_late(const std::shared_ptr<PushJob>& job) {
  const TimedRule& rule = tables_->set().timed;
  const std::string why = fmt::format("round {} closed before", job->round);
  marks_.take(job->sender.worker, job->step, job->sequence);
  count_push(*job, true);
  if (job->votes_to_stop) stop_round_ = std::min(stop_round_, rounds_->newest());
  if (job->votes_to_finish) finish_round_ = std::min(finish_round_, rounds_->newest());
  counters_->add_late(job->sender.worker);
  if (rule.late == TimedRule::Late::Drop) {
    counters_->add(Count::PushesDropped);
    return {nullptr, PushResult::Dropped, why};
  }
  // The gradients are another's memory: what is scaled is a copy.
  auto scaled = std::make_shared<PushJob>(*job);
  scaled->done = {};
  std::size_t floats = 0;
  for (const DensePart& part : job->dense) floats += part.values.size();
  for (const SparsePart& part : job->sparse) floats += part.keys.size() * part.dim;
  const auto block = pool_.take(std::max<std::size_t>(floats, 1) * sizeof(float));
  auto* to = reinterpret_cast<float*>(block.get());
  const auto scale = [&](const float* from, std::size_t count) {
    const float* const begin = to;
    to = std::transform(from, from + count, to, [&](float x) { return rule.late_scale * x; });
    return begin;
  };
  for (DensePart& part : scaled->dense)
    part.values = {scale(part.values.data(), part.values.size()), part.values.size()};
  for (SparsePart& part : scaled->sparse) part.rows = scale(part.rows, part.keys.size() * part.dim);
  scaled->hold =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(job->hold, block);
  const auto now = Clock::now();
  for (std::size_t i = 0; i < scaled->dense.size(); ++i)
    rounds_->contribute_late(tables_->dense_id(scaled->dense[i].table), {job->sender.worker, scaled, i}, now);
  for (std::size_t i = 0; i < scaled->sparse.size(); ++i)
    rounds_->contribute_late(tables_->sparse_id(scaled->sparse[i].table), {job->sender.worker, scaled, i},
                             now);
  return {nullptr, PushResult::Late, why};
}

/// Ends the job where too many of the worker's pushes are late.
void ServerCore::count_push(const PushJob& job, bool late) {
  constexpr std::uint64_t kFewest = 20;  // before which a share says nothing
  const auto& pushes = late_->count(job.sender.worker, late);
  const double most = tables_->set().timed.max_late_share;
  if (!late || pushes.all < kFewest ||
      static_cast<double>(pushes.late) <= most * static_cast<double>(pushes.all))
    return;
  break_off(make_error(
      ErrorCode::Internal,
      fmt::format(
          "[ps] server {}: {} of {} pushes of worker {} came after their rounds had closed, more than "
          "the share of {:g} that strategy.timed.max_late_share allows",
          options_.index, pushes.late, pushes.all, job.sender.worker, most)));
}

void ServerCore::post_ready_rounds(const std::vector<TableId>& tables) {
  auto ready = std::make_shared<std::vector<ReadyRound>>();
  const auto waits = [&](int w) { return waited_for(w); };
  const TimedRule& timed_rule = tables_->set().timed;
  const ClosingRule rule{std::chrono::milliseconds(timed_rule.timeout_ms), timed_rule.quorum,
                         timed_rule.timeout_ms == TimedRule::kNever};
  for (TableId table : tables)
    for (ReadyRound& round :
         timed() ? rounds_->take_closed(table, members_.workers(), waits, rule, *late_, Clock::now())
                 : rounds_->take_ready(table, members_.workers(), waits))
      ready->push_back(std::move(round));
  if (ready->empty()) return;
  table_threads_.post(
      [this, tables = tables_, ready](int thread) {
        if (!options_.apply_updates) return;
        for (const ReadyRound& round : *ready)
          counters_->add(Count::RowsMade, static_cast<std::uint64_t>(tables->apply(thread, round)));
      },
      [this, tables = tables_, ready](ErrorPtr error) {
        std::lock_guard lock(mutex_);
        if (tables_ != tables) return;  // replaced by a restore or a new incarnation
        if (error) {
          if (!broken_) broken_ = error;
        } else {
          for (const ReadyRound& round : *ready) rounds_->applied(round.table, round.round);
          counters_->add(Count::Rounds, ready->size());
        }
        release_parked();
        changed_.notify_all();
      });
}

void ServerCore::post_push(const std::shared_ptr<PushJob>& job) {
  table_threads_.post(
      [this, tables = tables_, job](int thread) {
        if (options_.apply_updates)
          counters_->add(Count::RowsMade, static_cast<std::uint64_t>(tables->apply(thread, *job)));
      },
      [this, tables = tables_, job](ErrorPtr error) {
        {
          std::lock_guard lock(mutex_);
          if (error && !broken_) broken_ = error;
          if (tables_ == tables && ssp()) {
            for (TableId table : tables->ids_of(*job)) clocks_->pushed(table, job->sender.worker, job->step);
            release_parked();
            changed_.notify_all();
          }
        }
        job->done({error, PushResult::Applied, {}});
      });
}

void ServerCore::pull(PullJob job_in) {
  auto job = std::make_shared<PullJob>(std::move(job_in));
  bool unknown = false;
  try {
    std::lock_guard lock(mutex_);
    require(job->sender);
    if (!tables_) throw InvalidArgument("[ps] pull before create_tables");
    tables_->check_pull(job->dense, job->sparse);
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
  if (!started_ || !timed() || job.sender.worker == kObserver || !job.insert) return;
  job.min_version = late_->round_to_pull(job.sender.worker, job.step);
  // Behind the last round there is none to wait for: the answer says that it is over.
  if (const std::uint64_t rounds = tables_->set().timed.rounds; rounds > 0)
    job.min_version = std::min(job.min_version, rounds);
  if (late_->is_here(job.sender.worker)) return;
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
  if (job->repairs) repair->shares.resize(static_cast<std::size_t>(table_threads_.threads()));
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
      [this, tables = tables_, job, work, repair](int thread) {
        std::int64_t made = tables->pull(thread, *job, *work);
        if (job->repairs) made += tables->repair(thread, *job->repairs, job->min_version, *repair);
        counters_->add(Count::RowsMade, static_cast<std::uint64_t>(made));
      },
      [this, job, work, repair, version, stop, finish](ErrorPtr error) {
        PullAnswer answer;
        answer.version = version;
        answer.stop = stop;
        answer.finish = finish;
        if (error) {
          answer.error = std::move(error);
        } else {
          for (auto& part : work->dense)
            for (auto& block : part) answer.pieces.push_back(block->values());
          for (const auto& rows : work->sparse) answer.pieces.push_back(rows);
          if (!job->repairs)
            for (const auto& part : job->sparse) counters_->add(Count::RowsPulled, part.keys.size());
          add_repaired(*repair, answer);
          counters_->add(Count::RowsRepaired, answer.repaired);
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

std::chrono::milliseconds ServerCore::tick_period() const {
  constexpr std::chrono::hours kSeldom{1};
  std::lock_guard lock(mutex_);
  if (!tables_ || !timed() || tables_->set().timed.timeout_ms == TimedRule::kNever) return kSeldom;
  return std::chrono::milliseconds(std::clamp<std::uint32_t>(tables_->set().timed.timeout_ms / 8, 1, 100));
}

void ServerCore::tick(Clock::time_point now) {
  std::vector<std::pair<std::shared_ptr<PullJob>, ErrorRecord>> given_up;
  {
    std::lock_guard lock(mutex_);
    if (members_.present(now)) last_present_ = now;
    if (started_ && tables_ && timed()) post_ready_rounds(tables_->ids());
    for (auto it = parked_.begin(); it != parked_.end();) {
      auto why = why_give_up(**it, now);
      if (why) given_up.emplace_back(*it, std::move(*why));
      it = why ? parked_.erase(it) : std::next(it);
    }
    counters_->set_parked_now(parked_.size());
  }
  for (auto& [job, why] : given_up) job->done({std::make_shared<const ErrorRecord>(why), 0, {}, nullptr});
}

}  // namespace braid::ps
