// A worker's part in an elastic job: it leaves one world and waits for the next (membership.h says when that
// forms). Two implementations: the leader's, which hosts the membership at the rendezvous server's port, and
// the others', which hold a stream to it. A worker whose stream ends is gone for the job; one that was
// refused comes again as a newcomer by itself.
//
// Thread rule: one thread, except newcomers_wait(), and what on_over() is given, which is called by others.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/wait_context.h"
#include "comm/membership/membership.h"
#include "comm/rendezvous/grpc_rendezvous.h"

namespace braid::comm {

class Attendance {
 public:
  virtual ~Attendance() = default;

  /// Leaves the world of generation `left` (0: none), and waits for the next one that this worker is in.
  /// Throws: Unavailable when the job is over for this worker: too few came, or the leader is lost; what the
  /// leader has ended it with; DeadlineExceeded when the leader says nothing; Cancelled.
  virtual World next_world(std::uint64_t left, const Holding& holding, const WaitContext& wait) = 0;
  /// On the leader: whether workers wait that it should take in.
  virtual bool newcomers_wait() const = 0;
  /// Called when a worker of a world that this one is in is lost: that one's generation, and who it was; and
  /// with 0 when the leader has ended the job by an error, and why. May not call back.
  virtual void on_over(std::function<void(std::uint64_t generation, const std::string& why)> told) = 0;
  /// This worker goes, and the others know it from a step's votes. Throws nothing.
  virtual void leave(const std::string& why) = 0;
  /// This worker needs no other world: all have made the last step. Throws nothing.
  virtual void finish() = 0;
  /// On the leader: the job is over for all. Null: in order. Throws nothing.
  virtual void end(ErrorPtr why) = 0;
};

/// The leader's. `add_service` goes to the RendezvousServerOptions of the server at whose port the others
/// find it; it owns the service.
struct HostedMembership {
  std::unique_ptr<Attendance> attendance;
  std::function<void(grpc::ServerBuilder&)> add_service;
};
/// `job` is what the others must say; `name` is the leader's, for people.
HostedMembership host_membership(const std::string& job, const std::string& name,
                                 const MembershipLimits& limits);

struct AttendanceOptions {
  std::string leader;  // "host:port"
  std::string job;
  std::string name;  // for people: "worker 1 (node7, process 4711)"
  int place = 0;     // in the list of the job's workers
  Security security{};
  std::chrono::milliseconds silence{60'000};  // of the leader's host, before it counts as lost
};
/// Does not connect yet: next_world() does, and waits for a leader that is not up.
std::unique_ptr<Attendance> attend(AttendanceOptions options);

/// Clean end of a job that this worker had no part in. What next_world() throws then is Cancelled.
inline constexpr const char* kJobHasEnded = "the job has ended";

}  // namespace braid::comm
