// One server's data plane, as a client uses it: requests that are sent again after a lost connection until
// their deadline, unless the server turns out to be another process than the one that has our state; and
// heartbeats. Thread rule: safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "comm/transport/transport.h"
#include "ps/client/control_link.h"
#include "ps/client/retry_timer.h"
#include "ps/wire.h"

namespace braid::ps {

/// One request and where its answer lands. Made anew for each attempt: `meta`, from the time that is left.
struct DataCall {
  MessageType type = MessageType::Push;
  std::string what;  // "push 3 of step 17"
  std::function<Meta(std::chrono::milliseconds left)> meta;
  std::vector<comm::Bytes> payload;
  std::vector<comm::MutableBytes> destinations;  // of the answer's payload
  /// Set: the payload goes on behind these, for so many bytes, where this says. Called for each attempt.
  std::function<std::byte*(std::uint64_t bytes)> rest;
  std::shared_ptr<void> hold;  // keeps the memory of both
  WaitContext wait;
  /// Called once, on any thread. The error is what the server answered, or Unavailable, or Cancelled.
  std::function<void(ErrorPtr, const ReplyHead&)> done;
};

class ServerLink : public std::enable_shared_from_this<ServerLink> {
 public:
  ServerLink(std::unique_ptr<ControlLink> control, RetryTimer& timer);

  ControlLink& control() { return *control_; }
  const Sender& sender() const { return sender_; }
  std::uint64_t retries() const { return retries_.load(std::memory_order_relaxed); }

  /// After registration. REQUIRES: before call().
  void open(const Sender& sender, std::shared_ptr<comm::Channel> channel);
  void call(DataCall call);
  void start_heartbeats(std::chrono::milliseconds period);
  /// "server 1 (HOST:PORT) has been silent for 1.8 s" when nothing has come from it for more than two
  /// heartbeats; empty while it answers, and without heartbeats.
  std::string describe_silence() const;
  /// Asks the server over the control plane: no answer within a short time, or another instance, is a loss.
  bool is_lost(const WaitContext& wait);
  /// What is under way completes with Cancelled, soon. Waits for answers that run on gRPC's threads: none of
  /// these may be the last to hold a link. REQUIRES: called before the last holder lets go, not by an answer.
  void close();

 private:
  struct Attempt;
  void send(const std::shared_ptr<Attempt>& attempt);
  void answered(const std::shared_ptr<Attempt>& attempt, const comm::CallResult& result);
  void look_for_server(const std::shared_ptr<Attempt>& attempt);
  void beat(std::chrono::milliseconds period);
  std::shared_ptr<comm::Channel> channel();
  std::string name() const;
  void heard();

  std::unique_ptr<ControlLink> control_;
  RetryTimer& timer_;
  Sender sender_;
  std::atomic<std::chrono::milliseconds> period_{};  // of heartbeats; 0: there are none
  std::atomic<std::chrono::steady_clock::time_point> last_heard_{};
  std::atomic<std::uint64_t> retries_{0};
  std::mutex mutex_;
  std::shared_ptr<comm::Channel> channel_;  // guarded by mutex_; null once closed
};

}  // namespace braid::ps
