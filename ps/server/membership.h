// Who takes part: the worker processes of the job's current incarnation, when each was last heard, and who is
// lost. A worker is lost when its data connections are gone or it was silent for too long, and it did not
// leave. Thread rule: one thread at a time (the core's lock).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ps/server/requests.h"

namespace braid::ps {

class Membership {
 public:
  /// `heartbeat_timeout`: a worker that sent nothing, not even a heartbeat, for this long is lost.
  explicit Membership(std::chrono::milliseconds heartbeat_timeout) : heartbeat_timeout_(heartbeat_timeout) {}

  /// Forgets everybody. `workers`: how many the rounds wait for.
  void reset(int workers);
  int workers() const { return static_cast<int>(members_.size()); }

  /// A worker process presents itself; it takes the place of an earlier process with the same number.
  void enter(std::int32_t worker, std::uint64_t session, std::string address, Clock::time_point now);
  /// Why this sender's messages are refused; empty when they are welcome. Observers always are.
  std::string refusal(const Sender& sender) const;

  /// A message of an admitted sender came over `connection`; 0 when it came another way.
  void heard(const Sender& sender, std::uint64_t connection, Clock::time_point now);
  void disconnected(std::uint64_t connection, Clock::time_point now);
  void leave(std::int32_t worker);
  /// A pull of the worker was answered: it knows at which step the job is.
  void served(std::int32_t worker);
  /// The job goes on from `step` by the will of worker `by`: others that knew another step are refused until
  /// a new process presents itself.
  void put_back(std::uint64_t step, std::int32_t by);
  /// Everybody who left takes part again, as after a restore.
  void clear_left();

  /// A process has this place and may still be at work: no other one gets it.
  bool occupied(int worker, std::uint64_t by_other_than, Clock::time_point now) const;
  /// A worker that takes part and is not lost.
  std::optional<int> present(Clock::time_point now) const;
  bool entered(int worker) const { return member(worker).entered; }
  bool left(int worker) const { return member(worker).left; }
  /// Since when the worker is lost; nothing when it is not.
  std::optional<Clock::time_point> lost_since(int worker, Clock::time_point now) const;
  /// "worker 1 (10.0.0.7:41022)"
  std::string name(int worker) const;
  /// "worker 1 (10.0.0.7:41022) lost: its connection closed 3.1 s ago"
  std::string describe(int worker, Clock::time_point now) const;

 private:
  struct Member {
    bool entered = false;
    bool left = false;
    bool served = false;
    std::optional<std::uint64_t> put_back_to;  // since it was served
    std::uint64_t session = 0;
    std::string address;
    Clock::time_point last_heard;
    std::set<std::uint64_t> connections;
    std::optional<Clock::time_point> disconnected_at;
  };
  const Member& member(int worker) const { return members_[static_cast<std::size_t>(worker)]; }

  std::chrono::milliseconds heartbeat_timeout_;
  std::vector<Member> members_;
};

}  // namespace braid::ps
