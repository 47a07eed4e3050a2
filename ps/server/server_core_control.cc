// The part of ServerCore that changes who takes part and what there is: registration, tables, start, leave,
// cut, adopt.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "ps/server/server_core.h"

namespace braid::ps {

void ServerCore::enter(const Registration& r) {
  if (r.job.empty()) throw InvalidArgument("[ps] a registration without the job's name");
  if (r.server != options_.index || r.servers != options_.count)
    throw InvalidArgument(
        fmt::format("[ps] worker {} ({}) takes this for server {} of {}, but it is server {} of {}: "
                    "compare the cluster specs",
                    r.worker, r.address, r.server, r.servers, options_.index, options_.count));
  if (r.workers < 1 || r.worker < kObserver || r.worker >= r.workers)
    throw InvalidArgument(fmt::format("[ps] there is no worker {} in a job of {}", r.worker, r.workers));
  std::lock_guard lock(mutex_);
  if (broken_) throw_error(*broken_);
  if (!job_.empty() && r.job != job_)
    throw InvalidArgument(
        fmt::format("[ps] server {} serves job '{}', not '{}'", options_.index, job_, r.job));
  if (!job_.empty() && r.incarnation < incarnation_)
    throw Unavailable(
        fmt::format("[ps] server {}: worker {} ({}) belongs to incarnation {} of job '{}', which is at {}",
                    options_.index, r.worker, r.address, r.incarnation, job_, incarnation_));
  if (refusal_ && r.incarnation == incarnation_) {
    refused_.insert(r.worker);
    throw_error(*refusal_);
  }
  if (job_.empty() || r.incarnation > incarnation_) {
    refusal_ = nullptr;
    refused_.clear();
    job_ = r.job;
    job_hash_ = stable_hash(r.job);
    incarnation_ = r.incarnation;
    members_.reset(r.workers);
    marks_ = Watermarks();
    tables_.reset();
    rounds_.reset();
    started_ = false;
    for (const auto& job : parked_)
      job->done({make_error(ErrorCode::Unavailable, "[ps] the job began a new incarnation"), 0, {}, nullptr});
    parked_.clear();
  }
  if (r.workers != members_.workers())
    throw InvalidArgument(fmt::format("[ps] worker {} ({}) counts {} workers, job '{}' has {}", r.worker,
                                      r.address, r.workers, job_, members_.workers()));
  if (r.worker == kObserver) return;
  members_.enter(r.worker, r.session, r.address, Clock::now());
  marks_.begin_session(r.worker, r.session);
}

void ServerCore::create_tables(const Sender& sender, const TableSet& set) {
  check_table_set(set);
  const std::uint64_t hash = table_set_hash(set);
  std::lock_guard lock(mutex_);
  require(sender);
  if (set.workers != members_.workers())
    throw InvalidArgument(fmt::format("[ps] the tables are for {} workers, job '{}' has {}", set.workers,
                                      job_, members_.workers()));
  if (tables_) {
    if (hash != set_hash_)
      throw InvalidArgument(
          fmt::format("[ps] server {}: worker {} declares tables {:016x}, others declared {:016x}: "
                      "all workers must run the same model, optimizer and consistency",
                      options_.index, sender.worker, hash, set_hash_));
    return;
  }
  tables_ = std::make_shared<ServerTables>(set, options_.index, options_.count, engine_.threads());
  set_hash_ = hash;
  assigned_.assign(set.dense.size(), false);
  begin_rounds(0);
}

void ServerCore::begin_rounds(std::uint64_t version) {
  rounds_.emplace(tables_->tables(), version);
  stop_round_ = ends_ ? version : kNoRound;
  newest_pulled_ = version;
}

void ServerCore::start(const Sender& sender, std::uint64_t step) {
  std::lock_guard lock(mutex_);
  require(sender);
  if (!tables_) throw InvalidArgument("[ps] start before create_tables");
  if (started_) {
    if (started_by_ == sender.session) return;
    throw InvalidArgument(fmt::format("[ps] server {}: job '{}' has started already", options_.index, job_));
  }
  std::vector<std::string> missing;
  for (std::uint32_t table = 0; table < assigned_.size(); ++table)
    if (!assigned_[table] && tables_->present(table)) missing.push_back(tables_->name(table));
  if (!missing.empty())
    throw InvalidArgument(
        fmt::format("[ps] server {}: no initial values for {}", options_.index, fmt::join(missing, ", ")));
  begin_rounds(step);
  started_ = true;
  started_by_ = sender.session;
  release_parked();
  changed_.notify_all();
}

void ServerCore::refuse(const Sender& sender, ErrorPtr why) {
  std::lock_guard lock(mutex_);
  require(sender);
  if (sender.worker != 0)
    throw InvalidArgument(fmt::format("[ps] worker {} does not lead job '{}'", sender.worker, job_));
  if (started_)
    throw InvalidArgument(fmt::format("[ps] server {}: job '{}' has started", options_.index, job_));
  refusal_ = std::move(why);
  refused_.insert(sender.worker);
  for (const auto& job : parked_) {
    refused_.insert(job->sender.worker);
    job->done({refusal_, 0, {}, nullptr});
  }
  parked_.clear();
  changed_.notify_all();
}

ErrorPtr ServerCore::refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

void ServerCore::answered(const Sender& sender, const ErrorPtr& error) {
  std::lock_guard lock(mutex_);
  if (error && error == refusal_) refused_.insert(sender.worker);
}

bool ServerCore::all_heard_refusal() const {
  std::lock_guard lock(mutex_);
  for (int worker = 0; worker < members_.workers(); ++worker)
    if (!refused_.contains(worker)) return false;
  return refusal_ != nullptr;
}

void ServerCore::leave(const Sender& sender) {
  std::lock_guard lock(mutex_);
  require(sender);
  if (sender.worker == kObserver) return;
  members_.leave(sender.worker);
  if (rounds_ && bsp()) {
    std::vector<std::uint32_t> tables(tables_->tables());
    for (std::uint32_t table = 0; table < tables.size(); ++table) tables[table] = table;
    post_ready_rounds(tables);
  }
  changed_.notify_all();
}

ErrorPtr ServerCore::heard(const Sender& sender, std::uint64_t connection) {
  std::lock_guard lock(mutex_);
  auto error = admit(sender);
  if (!error) members_.heard(sender, connection, Clock::now());
  return error;
}

void ServerCore::disconnected(std::uint64_t connection) {
  std::lock_guard lock(mutex_);
  members_.disconnected(connection, Clock::now());
}

std::shared_ptr<const Cut> ServerCore::cut(const Sender& sender, std::uint64_t step,
                                           const WaitContext& wait) {
  const std::string what = fmt::format("[ps] server {}: checkpoint of step {}", options_.index, step);
  std::unique_lock lock(mutex_);
  require(sender);
  if (!started_) throw InvalidArgument(what + ": the job has not started");
  if (bsp()) {
    try {
      wait_on(changed_, lock, wait, what, [&] { return broken_ || rounds_->settled(step); });
    } catch (const DeadlineExceeded& e) {
      for (std::uint32_t table = 0; table < tables_->tables(); ++table)
        if (rounds_->version(table) < step && tables_->present(table))
          throw DeadlineExceeded(e.message() + ": " + who_is_missing(table, Clock::now()));
      throw;
    }
    require(sender);
    if (rounds_->newest() > step)
      throw InvalidArgument(fmt::format("{}: {} rounds are applied already", what, rounds_->newest()));
  }
  struct Pending {
    std::shared_ptr<Cut> cut;
    bool done = false;
    ErrorPtr error;
  };
  auto pending = std::make_shared<Pending>();
  pending->cut = std::make_shared<Cut>(tables_, step, marks_.save(bsp() ? step : ~std::uint64_t{0}));
  engine_.post([pending](int thread) { pending->cut->gather(thread); },
               [this, pending](ErrorPtr error) {
                 std::lock_guard done_lock(mutex_);
                 pending->error = std::move(error);
                 pending->done = true;
                 changed_.notify_all();
               });
  wait_on(changed_, lock, wait, what, [&] { return pending->done; });
  if (pending->error) throw_error(*pending->error);
  return pending->cut;
}

std::shared_ptr<ServerTables> ServerCore::fresh_tables(const Sender& sender) {
  std::lock_guard lock(mutex_);
  require(sender);
  if (!tables_) throw InvalidArgument("[ps] restore before create_tables");
  return std::make_shared<ServerTables>(tables_->set(), options_.index, options_.count, engine_.threads());
}

void ServerCore::adopt(const Sender& sender, std::shared_ptr<ServerTables> tables, std::uint64_t step,
                       const std::vector<WorkerMarks>& marks) {
  std::lock_guard lock(mutex_);
  require(sender);
  tables_ = std::move(tables);
  assigned_.assign(tables_->dense_tables(), true);
  begin_rounds(step);
  marks_.restore(marks);
  members_.clear_left();
  if (bsp()) members_.put_back(step, sender.worker);
  started_ = true;
  started_by_ = sender.session;
  release_parked();
  changed_.notify_all();
}

std::uint64_t ServerCore::version() const {
  std::lock_guard lock(mutex_);
  return rounds_ ? rounds_->newest() : 0;
}

bool ServerCore::started() const {
  std::lock_guard lock(mutex_);
  return started_;
}

void ServerCore::vote_to_stop() {
  std::lock_guard lock(mutex_);
  ends_ = true;
  stop_round_ = std::min(stop_round_, newest_pulled_);
}

bool ServerCore::serves_workers() const {
  std::lock_guard lock(mutex_);
  for (int worker = 0; started_ && worker < members_.workers(); ++worker)
    if (members_.entered(worker) && !members_.left(worker) && !members_.lost_since(worker, Clock::now()))
      return true;
  return false;
}

bool ServerCore::leader_left() const {
  std::lock_guard lock(mutex_);
  return members_.workers() > 0 && members_.left(0);
}

bool ServerCore::all_gone() const {
  std::lock_guard lock(mutex_);
  for (int worker = 0; worker < members_.workers(); ++worker)
    if (!members_.left(worker) && !members_.lost_since(worker, Clock::now())) return false;
  return true;
}

}  // namespace braid::ps
