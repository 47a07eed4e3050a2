// Where the processes of a job find each other: small values under keys, members with their addresses and
// heartbeats, barriers, and how far each rank is. Implementations: in this process (tests, one machine), over
// gRPC with the chief as host, and over MPI (which finds the host). What is stored belongs to one (job,
// generation); a new generation starts empty.
//
// Thread rule: safe from any thread.
// Throws (all operations): DeadlineExceeded, Cancelled, Unavailable (a newer generation has begun),
// InvalidArgument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/wait_context.h"

namespace braid::comm {

struct RendezvousScope {
  std::string job;
  std::uint64_t generation = 0;
};

/// A process of the job. Adding a name again replaces the member and counts as a heartbeat.
struct Member {
  std::string name;                               // "worker/1"
  std::uint64_t incarnation = 0;                  // differs for each start of the process
  std::map<std::string, std::string> attributes;  // "data_address", "http_address", ...
};

struct MemberStatus {
  Member member;
  std::chrono::milliseconds since_heartbeat{0};
  /// Since the host lost the connection over which the member stayed: its process has ended. Absent for
  /// members that stay, that left in order, and that never stayed.
  std::optional<std::chrono::milliseconds> since_gone;
};

/// A member's stay with the host, which sees at once when this process ends. Destroyed before the rendezvous
/// that made it; then the member leaves in order.
class Presence {
 public:
  enum class State {
    Held,
    Ended,  // the host has stopped, the generation is over, or the member stays by another call
    Lost    // the host cannot be reached: it has ended, or the network fails. To be tried again by stay()
  };
  virtual ~Presence() = default;
  virtual State state() const = 0;
};

struct RankProgress {
  int rank = 0;
  std::uint64_t step = 0;
  std::uint64_t collectives = 0;  // how many were begun
  std::string last_collective;
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// The last value set is the one that counts.
  virtual void set(const std::string& key, std::span<const std::byte> value, const WaitContext& wait) = 0;
  /// Waits until the key is set.
  virtual std::vector<std::byte> get(const std::string& key, const WaitContext& wait) = 0;

  virtual void add_member(const Member& member, const WaitContext& wait) = 0;
  /// Throws: InvalidArgument when no such member was added (the host was started anew: add it again).
  virtual void heartbeat(const std::string& name, const WaitContext& wait) = 0;
  /// From now on the host watches the connection to this process. Returns at once; what keeps it from doing
  /// so, as a name that was not added, is seen by the presence's state.
  virtual std::unique_ptr<Presence> stay(const std::string& name) = 0;
  /// By name.
  virtual std::vector<MemberStatus> members(const WaitContext& wait) = 0;

  virtual void post_progress(const RankProgress& progress, const WaitContext& wait) = 0;
  /// By rank; ranks that never posted are absent.
  virtual std::vector<RankProgress> progress(const WaitContext& wait) = 0;

  /// Returns when all `size` ranks are in the barrier of this name, which may be used again afterwards.
  /// DeadlineExceeded names the ranks that are missing.
  virtual void barrier(const std::string& name, int rank, int size, const WaitContext& wait) = 0;

  /// Where it is hosted, for error texts.
  virtual std::string address() const = 0;

  void set_text(const std::string& key, const std::string& value, const WaitContext& wait);
  std::string get_text(const std::string& key, const WaitContext& wait);
};

/// "ranks 1 and 3", "ranks 0 to 6 and 9", for error texts. REQUIRES: `ranks` is sorted.
std::string rank_list(const std::vector<int>& ranks);

/// The rank that is furthest behind, in words: "rank 2 is behind: step 40, 12 collectives, last all_reduce;
/// others: step 41"; empty when all are equally far.
std::string describe_laggard(const std::vector<RankProgress>& progress);

}  // namespace braid::comm
