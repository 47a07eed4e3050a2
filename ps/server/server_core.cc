#include "ps/server/server_core.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/random_id.h"

namespace braid::ps {
namespace {

std::uint64_t bytes_of(const std::vector<DensePart>& parts) {
  std::uint64_t bytes = 0;
  for (const DensePart& part : parts) bytes += part.values.size_bytes();
  return bytes;
}

}  // namespace

ServerCore::ServerCore(Options options)
    : options_(options),
      instance_(random_id()),
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
    if (!job->rows.empty()) return write(job);
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

/// Of the worker that is their home, in the order of its requests.
void ServerCore::write(const std::shared_ptr<AssignJob>& job) {
  if (!tables_) throw InvalidArgument("[ps] rows come back before create_tables");
  tables_->check_written(job->rows);
  if (job->trial) return job->done(nullptr);
  for (const SparsePart& part : job->rows)
    counters_->add(Count::BytesReceived,
                   part.keys.size() * (sizeof(std::int64_t) + part.dim * sizeof(float)));
  table_threads_.post(
      [tables = tables_, job, counters = counters_](int thread) {
        std::int64_t made = 0;
        for (const SparsePart& part : job->rows) made += tables->write(thread, part);
        counters->add(Count::RowsMade, static_cast<std::uint64_t>(made));
      },
      [job](ErrorPtr error) { job->done(std::move(error)); });
}

void ServerCore::push(PushJob job_in) {
  auto job = std::make_shared<PushJob>(std::move(job_in));
  bool answered_later = false;
  PushAnswer answer;
  try {
    std::lock_guard lock(mutex_);
    if (job->trial) {
      require(job->sender);
      return trial().push(job, pool_, table_threads_);
    }
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

/// Goes when the workers that have tried push their first steps.
Trial& ServerCore::trial() {
  if (!tables_) throw InvalidArgument("[ps] a trial before create_tables");
  if (!trial_) {
    auto tables = std::make_shared<ServerTables>(tables_->set(), options_.index, options_.count,
                                                 table_threads_.threads());
    trial_.emplace(std::move(tables), bsp());
  }
  return *trial_;
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

  if (trial_ && trial_->ended(sender.worker)) trial_.reset();
  marks_.take(sender.worker, job->step, job->sequence);
  count_taken(*job);
  if (timed()) count_push(*job, false);
  if (job->votes_to_stop) stop_round_ = std::min(stop_round_, job->round);
  if (job->votes_to_finish) finish_round_ = std::min(finish_round_, job->round);
  if (bsp()) {
    contribute(job);
    post_ready_rounds(tables_->ids_of(*job));
  } else {
    post_push(job);
    *answered_later = true;
  }
  return {};
}

void ServerCore::count_taken(const PushJob& job) {
  counters_->add(Count::PushesApplied);
  counters_->add(Count::Examples, job.examples);
  std::uint64_t bytes = bytes_of(job.dense);
  for (const SparsePart& part : job.sparse) {
    counters_->add(Count::RowsPushed, part.keys.size());
    bytes += part.keys.size() *
             (sizeof(std::int64_t) + static_cast<std::uint64_t>(tables_->dim(part.table)) * sizeof(float));
  }
  counters_->add(Count::BytesReceived, bytes);
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
    if (trial_) trial_->tick(now);
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
