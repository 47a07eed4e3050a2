// The part of ServerCore that changes who takes part and what there is: registration, tables, start, leave,
// snapshot, adopt.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "base/memory_limit.h"
#include "ps/server/server_core.h"

namespace braid::ps {
namespace {

// What peers may name; far beyond what anybody has, and far below what would take a server's memory.
constexpr int kMostWorkers = 65536;
constexpr std::size_t kMostJobName = 1024;
constexpr std::size_t kMostTables = 200'000;
constexpr std::size_t kMostTableName = 4096;
constexpr std::int64_t kMostDim = std::int64_t{1} << 24;
// An incarnation that was never heard of here may lie in between, a wild number would shut all later ones
// out.
constexpr std::uint64_t kMostIncarnationStep = 1000;

/// What is wrong with it whatever the server holds. Throws: InvalidArgument. REQUIRES: the core's lock.
void check_registration(const Registration& r, const ServerCore::Options& options) {
  if (r.job.empty()) throw InvalidArgument("[ps] a registration without the job's name");
  if (r.job.size() > kMostJobName || r.workers > kMostWorkers)
    throw InvalidArgument(
        fmt::format("[ps] a job's name has at most {} bytes and a job {} workers, got {} and {}",
                    kMostJobName, kMostWorkers, r.job.size(), r.workers));
  const bool is_count = options.count > 0 ? r.servers == options.count : r.servers > options.index;
  if (r.server != options.index || !is_count)
    throw InvalidArgument(
        fmt::format("[ps] worker {} ({}) takes this for server {} of {}, but it is server {}{}: "
                    "compare the cluster specs",
                    r.worker, r.address, r.server, r.servers, options.index,
                    options.count > 0 ? fmt::format(" of {}", options.count) : ""));
  if (r.workers < 1 || r.worker < kObserver || r.worker >= r.workers)
    throw InvalidArgument(fmt::format("[ps] there is no worker {} in a job of {}", r.worker, r.workers));
}

}  // namespace

void ServerCore::enter(const Registration& r) {
  std::lock_guard lock(mutex_);
  check_registration(r, options_);
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
  const auto now = Clock::now();
  if (!job_.empty() && r.incarnation > incarnation_) {
    if (r.incarnation - incarnation_ > kMostIncarnationStep)
      throw InvalidArgument(fmt::format(
          "[ps] server {}: worker {} ({}) begins incarnation {} of job '{}', which is at {}: it "
          "may be at most {} higher",
          options_.index, r.worker, r.address, r.incarnation, job_, incarnation_, kMostIncarnationStep));
    if (const auto present = members_.present(now))
      throw Unavailable(fmt::format(
          "[ps] server {}: worker {} ({}) begins incarnation {} of job '{}' while {} of incarnation "
          "{} is alive",
          options_.index, r.worker, r.address, r.incarnation, job_, members_.name(*present), incarnation_));
    if (r.worker == kObserver)
      throw Unavailable(fmt::format("[ps] server {}: job '{}' is at incarnation {}, not yet {}",
                                    options_.index, job_, incarnation_, r.incarnation));
  }
  if (options_.count == 0) options_.count = r.servers;
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
    ahead_.clear();
    started_ = false;
    for (const auto& job : parked_)
      job->done({make_error(ErrorCode::Unavailable, "[ps] the job began a new incarnation"), 0, {}, nullptr});
    parked_.clear();
  }
  if (r.workers != members_.workers())
    throw InvalidArgument(fmt::format("[ps] worker {} ({}) counts {} workers, job '{}' has {}", r.worker,
                                      r.address, r.workers, job_, members_.workers()));
  if (r.worker == kObserver) return;
  if (members_.occupied(r.worker, r.session, now))
    throw Unavailable(
        fmt::format("[ps] server {}: {} is alive, but another process ({}) also claims to be worker {}",
                    options_.index, members_.name(r.worker), r.address, r.worker));
  members_.enter(r.worker, r.session, r.address, now);
  marks_.begin_session(r.worker, r.session);
  if (late_ && r.worker != kObserver) late_->begin_session(r.worker);
}

void ServerCore::create_tables(const Sender& sender, const TableSet& set) {
  check_table_set(set);
  check_room(set);
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
  tables_ = std::make_shared<ServerTables>(set, options_.index, options_.count, table_threads_.threads());
  set_hash_ = hash;
  assigned_.assign(set.dense.size(), false);
  begin_rounds(0);
}

void ServerCore::check_room(const TableSet& set) const {
  if (set.dense.size() + set.sparse.size() > kMostTables)
    throw InvalidArgument(fmt::format("[ps] {} tables, at most {} are allowed",
                                      set.dense.size() + set.sparse.size(), kMostTables));
  const auto check_name = [](const std::string& name) {
    if (name.size() > kMostTableName)
      throw InvalidArgument(fmt::format("[ps] the name of a table has {} bytes, at most {} are allowed",
                                        name.size(), kMostTableName));
  };
  double bytes = 0;
  for (const DenseTableSpec& table : set.dense) {
    check_name(table.name);
    const auto runs = static_cast<double>(1 + optimizer_slots(set.optimizer_of(table.group)).size());
    bytes += static_cast<double>(table.elements) * sizeof(float) * runs / options_.count;
  }
  for (const SparseTableSpec& table : set.sparse) {
    check_name(table.name);
    if (table.dim > kMostDim)
      throw InvalidArgument(fmt::format("[ps] table '{}' has rows of {} elements, at most {} are allowed",
                                        table.name, table.dim, kMostDim));
  }
  if (const auto most = static_cast<double>(usable_memory()); bytes > most)
    throw OutOfMemory(
        fmt::format("[ps] server {}: its part of the dense tables takes {:.1f} GiB, this "
                    "process may use {:.1f}",
                    options_.index, bytes / (1U << 30), most / (1U << 30)));
}

void ServerCore::require_leader(const Sender& sender) const {
  std::lock_guard lock(mutex_);
  require(sender);
  if (sender.worker != 0)
    throw InvalidArgument(fmt::format(
        "[ps] server {}: worker {} asks for what only worker 0 may do: initial values, checkpoints, "
        "and the end of the job",
        options_.index, sender.worker));
}

/// From now on everybody hears this, parked pulls too.
void ServerCore::break_off(ErrorPtr error) {
  if (!broken_) broken_ = std::move(error);
  release_parked();
  changed_.notify_all();
}

bool ServerCore::stop_before_start(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (started_) return false;
  break_off(make_error(ErrorCode::Cancelled, fmt::format("[ps] server {}: {}", options_.index, why)));
  return true;
}

void ServerCore::give_up_job(const std::string& why) {
  std::lock_guard lock(mutex_);
  break_off(make_error(ErrorCode::Unavailable, fmt::format("[ps] server {}: {}", options_.index, why)));
}

void ServerCore::begin_rounds(std::uint64_t version) {
  ahead_.clear();
  rounds_.emplace(tables_->tables(), version, !timed());
  clocks_.reset();
  late_.reset();
  if (ssp()) clocks_.emplace(tables_->tables(), members_.workers(), version);
  if (timed()) late_.emplace(members_.workers());
  stop_round_ = ends_ ? version : kNoRound;
  finish_round_ = kNoRound;
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
  for (std::uint32_t dense = 0; dense < assigned_.size(); ++dense)
    if (const TableId table = tables_->dense_id(dense); !assigned_[dense] && tables_->present(table))
      missing.push_back(tables_->name(table));
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
  for (const auto& job : parked_) refused_.insert(job->sender.worker);
  release_parked();
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
  const auto now = Clock::now();
  for (int worker = 0; worker < members_.workers(); ++worker)
    if (!refused_.contains(worker) && !members_.left(worker) && !members_.lost_since(worker, now))
      return false;
  return refusal_ != nullptr;
}

void ServerCore::leave(const Sender& sender) {
  std::lock_guard lock(mutex_);
  require(sender);
  if (sender.worker == kObserver) return;
  members_.leave(sender.worker);
  if (rounds_ && bsp()) post_ready_rounds(tables_->ids());
  if (rounds_ && (ssp() || timed())) release_parked();
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

std::shared_ptr<const Snapshot> ServerCore::snapshot(const Sender& sender, std::uint64_t step,
                                                     const WaitContext& wait) {
  const std::string what = fmt::format("[ps] server {}: checkpoint of step {}", options_.index, step);
  std::unique_lock lock(mutex_);
  require(sender);
  if (!started_) throw InvalidArgument(what + ": the job has not started");
  if (bsp()) {
    try {
      wait_on(changed_, lock, wait, what, [&] { return broken_ || rounds_->settled(step); });
    } catch (const DeadlineExceeded& e) {
      for (TableId table : tables_->ids())
        if (rounds_->version(table) < step && tables_->present(table))
          throw DeadlineExceeded(e.message() + ": " + who_is_missing(table, Clock::now()));
      throw;
    }
    require(sender);
    if (rounds_->newest() > step && !timed())
      throw InvalidArgument(fmt::format("{}: {} rounds are applied already", what, rounds_->newest()));
  }
  if (ssp()) {
    // What faster workers have pushed beyond that is in it too.
    wait_on(changed_, lock, wait, what,
            [&] { return broken_ || clocks_->slowest([&](int w) { return waited_for(w); }) >= step; });
    require(sender);
  }
  struct Pending {
    std::shared_ptr<Snapshot> snapshot;
    bool done = false;
    ErrorPtr error;
  };
  auto pending = std::make_shared<Pending>();
  pending->snapshot =
      std::make_shared<Snapshot>(tables_, step, marks_.save(bsp() && !timed() ? step : ~std::uint64_t{0}));
  table_threads_.post([pending](int thread) { pending->snapshot->gather(thread); },
                      [this, pending](ErrorPtr error) {
                        std::lock_guard done_lock(mutex_);
                        pending->error = std::move(error);
                        pending->done = true;
                        changed_.notify_all();
                      });
  wait_on(changed_, lock, wait, what, [&] { return pending->done; });
  if (pending->error) throw_error(*pending->error);
  return pending->snapshot;
}

std::shared_ptr<ServerTables> ServerCore::fresh_tables(const Sender& sender) {
  std::lock_guard lock(mutex_);
  require(sender);
  if (!tables_) throw InvalidArgument("[ps] restore before create_tables");
  return std::make_shared<ServerTables>(tables_->set(), options_.index, options_.count,
                                        table_threads_.threads());
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
  if (clocks_) return clocks_->slowest([&](int w) { return waited_for(w); });
  return rounds_ ? rounds_->newest() : 0;
}

bool ServerCore::started() const {
  std::lock_guard lock(mutex_);
  return started_;
}

int ServerCore::count() const {
  std::lock_guard lock(mutex_);
  return options_.count;
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

bool ServerCore::nobody_here() const {
  std::lock_guard lock(mutex_);
  return !members_.present(Clock::now());
}

Clock::duration ServerCore::idle(Clock::time_point now) const {
  std::lock_guard lock(mutex_);
  return members_.present(now) ? Clock::duration::zero() : now - last_present_;
}

bool ServerCore::all_gone() const {
  std::lock_guard lock(mutex_);
  for (int worker = 0; worker < members_.workers(); ++worker)
    if (!members_.left(worker) && !members_.lost_since(worker, Clock::now())) return false;
  return true;
}

}  // namespace braid::ps
