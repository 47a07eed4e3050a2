// The connections to a forming mesh whose hello has not been heard yet. All are served at once, so that a
// stranger who says nothing, or a byte a second, keeps no rank waiting. Each has kHelloTime. Of kMost the one
// that has been silent longest makes room for the next, but has at least kLeastTime; until then the next ones
// wait in the listener's queue. So a flood of strangers costs time, and never a rank its place.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "comm/ring/hello.h"
#include "comm/transport/socket.h"

namespace braid::comm {

/// Whose handshake is through and whose hello is whole; what it says is not judged yet.
struct Newcomer {
  StreamSocket socket;
  Hello hello;
};

class Newcomers {
 public:
  static constexpr std::chrono::seconds kHelloTime{20};
  static constexpr std::chrono::seconds kLeastTime{1};
  static constexpr std::size_t kMost = 256;

  /// `listeners` and `streams` outlive it; `what` begins the text of warnings.
  Newcomers(std::vector<int> listeners, const StreamFactory& streams, std::string what);

  /// Waits for the next one. Nothing at the deadline of `wait`. Throws: Cancelled.
  std::optional<Newcomer> next(const WaitContext& wait);

 private:
  using Clock = WaitContext::Clock;
  struct Caller {
    Newcomer newcomer;
    Clock::time_point until;
    std::size_t heard = 0;  // bytes of the hello
    bool shaken = false;    // the handshake is through
    short events = 0;       // what poll() waits for
  };

  bool has_room() const;
  void accept_from(int listener);
  /// Does what can be done now. True: its hello is whole. Throws: Unavailable, of this caller.
  static bool advance(Caller& caller);
  void wait_for_events(const WaitContext& wait);
  void drop_late();

  const std::vector<int> listeners_;
  const StreamFactory& streams_;
  const std::string what_;
  std::list<Caller> callers_;  // the oldest first
};

}  // namespace braid::comm
