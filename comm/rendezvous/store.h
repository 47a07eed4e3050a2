// What a rendezvous host knows, for all scopes, with waits that end in a callback and so hold no thread.
// Thread rule: safe from any thread. Callbacks run once, on the thread that ends the wait, without the
// store's lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {

/// What peers may take of the host's memory; beyond it: InvalidArgument.
struct RendezvousLimits {
  std::size_t value_bytes = std::size_t{1} << 20;
  std::size_t name_bytes = 1024;                    // of a key, a barrier, a member, an attribute
  std::size_t entries = 65536;                      // of each kind, in a generation
  std::size_t total_bytes = std::size_t{64} << 20;  // of a generation's values and names
  int ranks = 65536;
  std::size_t jobs = 64;
  /// By how much a generation may be above the one before: a wild number would shut all later ones out.
  std::uint64_t generation_step = 1000;
};

class RendezvousStore {
 public:
  using Value = std::vector<std::byte>;
  using Ticket = std::uint64_t;
  using GetDone = std::function<void(ErrorPtr, Value)>;
  using BarrierDone = std::function<void(ErrorPtr)>;
  using StayDone = std::function<void(ErrorPtr)>;

  /// All but the const members: Throws Unavailable when the job is already in a newer generation. A scope of
  /// a newer generation ends the older ones of the same job: their waits fail, their values go.
  void set(const RendezvousScope& scope, const std::string& key, Value value);
  /// A wait that is over at once has called `done` before this returns, and has no ticket.
  std::optional<Ticket> get(const RendezvousScope& scope, const std::string& key, GetDone done);
  /// `round` counts the barriers of this name that the caller has been through: a repeated request for a
  /// barrier that is over succeeds. Throws: InvalidArgument (rank, or a size that differs from the others').
  std::optional<Ticket> barrier(const RendezvousScope& scope, const std::string& name, std::uint64_t round,
                                int rank, int size, BarrierDone done);
  /// Ends a wait without its callback. A rank leaves its barrier by this, a member is gone. No effect when it
  /// is over.
  void cancel(Ticket ticket);
  /// Ranks that are not in the barrier.
  std::vector<int> missing(const RendezvousScope& scope, const std::string& name, int size);

  void add_member(const RendezvousScope& scope, const Member& member);
  void heartbeat(const RendezvousScope& scope, const std::string& name);
  /// A wait that leave() ends, or the next stay of this name. Ended by cancel() the member is gone.
  /// Throws: InvalidArgument when no such member was added.
  Ticket stay(const RendezvousScope& scope, const std::string& name, StayDone done);
  void leave(const RendezvousScope& scope, const std::string& name);
  std::vector<MemberStatus> members(const RendezvousScope& scope);
  void post_progress(const RendezvousScope& scope, const RankProgress& progress);
  std::vector<RankProgress> progress(const RendezvousScope& scope);

  /// How many gets and barriers wait now; stays are not waited for.
  std::size_t waits() const;
  /// How many members stay now.
  std::size_t stays() const;
  /// Fails all waits with Unavailable.
  void fail_waits(const std::string& text);

 private:
  struct Waiter {
    std::string key;
    GetDone done;
  };
  struct Barrier {
    std::uint64_t round = 0;
    int size = 0;
    std::map<int, std::map<Ticket, BarrierDone>> arrived;  // by rank; a repeated request has a second ticket
  };
  struct Present {
    Member member;
    WaitContext::Clock::time_point heard{};
    std::optional<WaitContext::Clock::time_point> gone;
    std::optional<Ticket> stay;
    StayDone done;  // of the stay
  };
  struct Generation {
    std::uint64_t number = 0;
    std::map<std::string, Value> values;
    std::map<Ticket, Waiter> waiters;
    std::map<std::string, Barrier> barriers;
    std::map<std::string, Present> members;
    std::map<int, RankProgress> progress;
    std::size_t bytes = 0;  // of values, members and their names
  };
  using Callbacks = std::vector<std::function<void()>>;

  Generation& enter(const RendezvousScope& scope, Callbacks& ended);
  void require_name(const std::string& what, const std::string& name) const;
  void require_room(const std::string& what, std::size_t entries) const;
  /// Counts bytes that stay; `before`: those that they replace.
  void charge(Generation& generation, const std::string& what, std::size_t bytes, std::size_t before) const;
  static void end_stay(Present& present, const ErrorPtr& error, Callbacks& ended);
  static void end_waits(Generation& generation, const ErrorPtr& error, Callbacks& ended);

  const RendezvousLimits limits_{};
  mutable std::mutex mutex_;
  std::map<std::string, Generation> jobs_;  // guarded by mutex_; the newest generation of each job
  Ticket next_ticket_ = 1;                  // guarded by mutex_
};

}  // namespace braid::comm
