// A parameter server without its network: membership, tables, rounds, and the rules of what is taken, parked
// or refused. Whoever carries messages (data and control services, tests) calls it; table threads do all
// work on tables.
//
// Thread rule: safe from any thread. One lock orders requests: it is held to decide and to post, never while
// tables are worked on, so the order in which requests are taken is the order in which every table thread
// does them.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "ps/buffer_pool.h"
#include "ps/server/clocks.h"
#include "ps/server/late_workers.h"
#include "ps/server/membership.h"
#include "ps/server/requests.h"
#include "ps/server/rounds.h"
#include "ps/server/server_counters.h"
#include "ps/server/server_tables.h"
#include "ps/server/snapshot.h"
#include "ps/server/table_threads.h"
#include "ps/server/trial.h"
#include "ps/server/watermarks.h"

namespace braid::ps {

/// A worker process that presents itself.
struct Registration {
  std::string job;
  std::uint64_t incarnation = 0;
  std::int32_t worker = 0;  // or kObserver
  int workers = 1;
  int server = 0;  // as which server, of how many, the worker sees this one
  int servers = 1;
  std::uint64_t session = 0;
  std::string address;  // for messages
};

class ServerCore {
 public:
  struct Options {
    int index = 0;
    int count = 1;  // of the job's servers; 0: as the first worker says
    int table_threads = 1;
    std::chrono::milliseconds heartbeat_timeout{
        30000};                 // see Membership; also how long a lost worker is waited for
    bool apply_updates = true;  // false: pushes are taken and thrown away, to measure transport
  };

  explicit ServerCore(Options options);

  std::uint64_t instance() const { return instance_; }
  BufferPool& pool() { return pool_; }
  const std::shared_ptr<ServerCounters>& counters() const { return counters_; }

  /// A higher incarnation begins anew with empty tables. Throws: InvalidArgument for another job, an
  /// incarnation far beyond the job's, or another idea of the cluster; Unavailable for an older incarnation.
  /// Unavailable too, but only until those others are gone: for a place whose worker is alive, and for a
  /// higher incarnation while any worker of this one is.
  void enter(const Registration& registration);
  /// Every worker calls it. Throws: InvalidArgument when the set differs from the one that exists;
  /// OutOfMemory when this server's part is more than the machine has.
  void create_tables(const Sender& sender, const TableSet& set);
  /// The chief says that all initial values are set (0), or goes on from `step`. Parked pulls go on.
  /// Throws: InvalidArgument naming the tables that have no values, or when the job has started before.
  void start(const Sender& sender, std::uint64_t step);
  /// The chief says that the job cannot begin: from now on everybody gets `why` in the place of an answer.
  /// Throws: InvalidArgument when the job has started, or another worker says so.
  void refuse(const Sender& sender, ErrorPtr why);
  /// Rounds stop waiting for this worker. Its pushes have been answered.
  void leave(const Sender& sender);

  void assign(AssignJob job);
  void push(PushJob job);
  void pull(PullJob job);

  /// A message came over a data connection. Result: why the sender is refused, or null.
  ErrorPtr heard(const Sender& sender, std::uint64_t connection);
  /// A request, which is more than a sign of life, was answered with what heard() gave.
  void answered(const Sender& sender, const ErrorPtr& error);
  void disconnected(std::uint64_t connection);
  /// Fails the parked pulls that cannot go on; called every few hundredths of the heartbeat timeout.
  void tick(Clock::time_point now);
  /// How often it is to be called, at least: the timeouts of TIMED are kept by it.
  std::chrono::milliseconds tick_period() const;

  /// Waits until exactly `step` rounds are applied (BSP), then takes the state. ASP: the state now.
  std::shared_ptr<const Snapshot> snapshot(const Sender& sender, std::uint64_t step, const WaitContext& wait);
  /// The tables as declared, for a restore to fill. Throws: InvalidArgument before create_tables.
  std::shared_ptr<ServerTables> fresh_tables(const Sender& sender);
  /// Replaces tables, rounds and watermarks as one; the job is started at `step`.
  void adopt(const Sender& sender, std::shared_ptr<ServerTables> tables, std::uint64_t step,
             const std::vector<WorkerMarks>& marks);

  /// Rounds applied (BSP), and whether initial values are there.
  std::uint64_t version() const;
  bool started() const;
  /// Servers of the job.
  int count() const;
  /// Every worker has left or is lost.
  bool all_gone() const;
  /// The job has started, and a worker that takes part has not left and is not lost.
  bool serves_workers() const;
  /// Worker 0 has left.
  bool leader_left() const;
  /// Why the job cannot begin, as the chief said; else null.
  ErrorPtr refusal() const;
  /// Every worker has heard of the refusal, or is gone: told by another server it may never have come back.
  bool all_heard_refusal() const;
  /// Every worker that came has left or is lost.
  bool nobody_here() const;
  /// For how long no worker has taken part.
  Clock::duration idle(Clock::time_point now) const;

  /// Throws: InvalidArgument when the sender is not worker 0, which alone may ask for checkpoints, set
  /// initial values and end the job; else the reason why it is not admitted at all.
  void require_leader(const Sender& sender) const;
  /// The job was asked to stop before it had initial values. All workers hear Cancelled. False: it has them.
  bool stop_before_start(const std::string& why);
  /// The job cannot go on, e.g. because another server is lost. All workers hear Unavailable with the reason.
  void give_up_job(const std::string& why);

  /// This server is to end: the workers hear it as a vote to stop, under BSP with the first version that
  /// nobody has pulled yet, so that all hear it with the same one, under ASP with their next pulls.
  void vote_to_stop();

 private:
  static constexpr std::uint64_t kNoRound = ~std::uint64_t{0};

  ErrorPtr admit(const Sender& sender) const;
  void break_off(ErrorPtr error);  // REQUIRES: mutex_
  void write(const std::shared_ptr<AssignJob>& job);
  void check_room(const TableSet& set) const;
  void require(const Sender& sender) const;
  /// A step's gradients of all workers make one update.
  bool bsp() const { return tables_->set().consistency == Consistency::Bsp || timed(); }
  bool timed() const { return tables_->set().consistency == Consistency::Timed; }
  bool ssp() const { return tables_->set().consistency == Consistency::Ssp; }
  bool waited_for(int worker) const { return !members_.left(worker); }
  bool satisfied(const PullJob& job) const;
  /// Whether the table is as far as the pull needs it.
  bool satisfied(const PullJob& job, TableId table) const;
  /// The workers whose pushes the pull still needs.
  std::vector<int> missing(const PullJob& job, TableId table) const;
  void look_for_round(PullJob& job) const;
  bool rounds_go_on() const;
  void count_served(const PullJob& job);
  PushAnswer take_late(const std::shared_ptr<PushJob>& job);
  void count_push(const PushJob& job, bool late);
  void begin_rounds(std::uint64_t version);
  PushAnswer take(const std::shared_ptr<PushJob>& job, bool* answered_later);
  std::string dropped_because(const PushJob& job) const;
  bool pushed_by_former_process(const PushJob& job) const;
  void check_contribution(const PushJob& job) const;
  void count_taken(const PushJob& job);
  void contribute(const std::shared_ptr<PushJob>& job);
  void post_ready_rounds(const std::vector<TableId>& tables);
  void post_push(const std::shared_ptr<PushJob>& job);
  void post_pull(const std::shared_ptr<PullJob>& job);
  Trial& trial();
  void keep_ahead(const std::shared_ptr<PullJob>& job);
  bool find_ahead(PullJob& job) const;
  void release_parked();
  std::uint64_t applied_everywhere() const;
  std::string who_is_missing(TableId table, Clock::time_point now) const;
  std::string who_is_missing(const PullJob& job, TableId table, Clock::time_point now) const;
  std::optional<ErrorRecord> why_give_up(const PullJob& job, Clock::time_point now) const;

  Options options_;  // all but `count` stays; that is guarded by mutex_ where it was 0
  const std::uint64_t instance_;
  const std::shared_ptr<ServerCounters> counters_;
  BufferPool pool_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;  // a round was applied, a worker left, the job started
  // Guarded by mutex_:
  std::string job_;
  std::uint64_t job_hash_ = 0;
  std::uint64_t incarnation_ = 0;
  Membership members_;
  Watermarks marks_;
  std::uint64_t set_hash_ = 0;
  std::shared_ptr<ServerTables> tables_;
  std::optional<Trial> trial_;
  std::optional<RoundLedger> rounds_;
  std::optional<StepClocks> clocks_;  // of SSP
  std::optional<LateWorkers> late_;   // of TIMED
  std::vector<bool> assigned_;        // dense tables with initial values
  bool started_ = false;
  std::uint64_t started_by_ = 0;            // session
  ErrorPtr refusal_;                        // the chief's word that the job cannot begin
  mutable std::set<std::int32_t> refused_;  // workers that were given it
  ErrorPtr broken_;                         // what everybody hears from now on; the first reason stays
  std::list<std::shared_ptr<PullJob>> parked_;
  std::map<std::int32_t, std::deque<std::shared_ptr<const PulledAhead>>> ahead_;  // by worker; the newest few
  std::uint64_t stop_round_ = kNoRound;            // the first round in which a worker voted to stop
  std::uint64_t finish_round_ = kNoRound;          // and to finish
  std::uint64_t newest_pulled_ = 0;                // the largest version that was pulled
  bool ends_ = false;                              // vote_to_stop() was called
  Clock::time_point last_present_ = Clock::now();  // when a worker last took part, as tick() saw it

  TableThreads table_threads_;  // last: its tasks use the members above until it is gone
};

}  // namespace braid::ps
