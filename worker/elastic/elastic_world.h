// A worker's place in the worlds of an elastic job, one after the other: it waits for the next one, connects
// with those in it, and ends what it waits for in a world that has lost somebody. Fills `peers`, which
// everything that a run makes for a world looks at.
//
// Thread rule: one thread, no step in flight; what ends waits comes from others.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "comm/make_communicator.h"
#include "comm/membership/attendance.h"
#include "worker/job/elastic.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct StepServices;
class StopFlag;

struct ElasticOptions {
  std::unique_ptr<comm::Attendance> attendance;
  comm::CommunicatorOptions communicator;  // but for rank, size and rendezvous
  /// Where the workers of the world of that generation meet.
  std::function<std::shared_ptr<comm::Rendezvous>(std::uint64_t generation)> meet;
  std::chrono::milliseconds form_time{60'000};  // for connections among the workers of a world
  bool leads = false;
};

class ElasticWorld {
 public:
  /// `peers` outlives it; it has neither communicator nor rendezvous until enter() returns.
  ElasticWorld(ElasticOptions options, Peers& peers);
  ~ElasticWorld();
  ElasticWorld(const ElasticWorld&) = delete;
  ElasticWorld& operator=(const ElasticWorld&) = delete;

  /// Leaves the world that it is in, if any, and connects with all of the next one. Throws: as
  /// Attendance::next_world(), and then is_over(); Unavailable, DeadlineExceeded and Cancelled when somebody
  /// is lost meanwhile: to be called again.
  comm::World enter(const comm::Holding& holding, const WaitContext& wait);
  /// This worker goes. Throws nothing.
  void leave(const std::string& why);
  /// This worker has made the job's last step: who ends from now on is not lost. Throws nothing.
  void finish();
  /// On the leader: tells all others that the job has failed, or null: ended in order. Throws nothing.
  void end(ErrorPtr why);

  /// No world follows for this worker.
  bool is_over() const { return over_; }
  /// Because the job has ended in order.
  bool ended_in_order() const { return ended_in_order_; }
  bool leads() const { return options_.leads; }
  std::uint64_t generation() const { return generation_; }  // of the world that it is in
  /// What this worker's votes say of the next world from now on. `services` does not outlive this.
  void vote_through(StepServices& services);

 private:
  void lost(std::uint64_t generation, const std::string& why);
  void connect(const comm::World& world, const WaitContext& wait);

  ElasticOptions options_;
  Peers& peers_;
  std::uint64_t generation_ = 0;  // of the world that it is in
  bool over_ = false, ended_in_order_ = false;

  std::mutex mutex_;
  std::uint64_t broken_ = 0;  // guarded by mutex_, as the rest: the newest generation that has lost somebody
  std::uint64_t current_ = 0;
  std::stop_source waits_;  // of the current world's connecting
  std::weak_ptr<comm::Communicator> communicator_;
};

}  // namespace braid::worker
