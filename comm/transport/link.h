// One connection of a channel with the calls that go over it: connecting, matching replies to calls,
// deadlines. Thread rule: everything on the context's thread, except submit().
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/transport/connection.h"
#include "comm/transport/connector.h"
#include "comm/transport/deadline_queue.h"

namespace braid::comm {

/// One call from its submission until `done` was called.
struct Call {
  std::uint64_t id = 0;
  std::uint16_t type = 0;
  OutgoingMessage request;  // until it is handed to the connection
  Channel::SinkFn sink;
  Channel::DoneFn done;
  WaitContext wait;
  std::optional<CallResult> result;  // came before the request was sent entirely
  bool sent = false;
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

class Link final : public Connection::Owner, public std::enable_shared_from_this<Link> {
 public:
  struct Settings {
    std::string address;  // as the user spelled it; part of every error
    Address parsed;
    std::chrono::milliseconds connect_timeout;
    std::shared_ptr<const StreamFactory> streams;
  };

  Link(std::shared_ptr<boost::asio::io_context> context, Settings settings);

  /// From any thread.
  void submit(std::unique_ptr<Call> call);
  /// Fails all calls and closes the connection; nothing may be submitted afterwards.
  void shut_down();

  void on_open() override;
  std::optional<PayloadSink> on_head(const FrameHeader& header, Bytes meta) override;
  void on_frame(const FrameHeader& header, std::vector<std::byte> meta, PayloadSink payload) override;
  void on_sent(std::uint64_t id) override;
  void on_closed(const std::string& reason) override;

 private:
  using Calls = std::unordered_map<std::uint64_t, std::unique_ptr<Call>>;

  void take_submitted();
  void begin(std::unique_ptr<Call> call);
  void connect();
  void transmit(Call& call);
  void fail_all(ErrorCode code, const std::string& text);
  /// The answer to a call is there; `done` is called when the request's memory is free too.
  void settle(std::uint64_t id, CallResult result);
  void settle_error(std::uint64_t id, ErrorCode code, const std::string& text);
  void give_up(std::uint64_t id, ErrorCode code, const std::string& text);
  void finish(std::unique_ptr<Call> call, CallResult result);
  void expire_due();
  void arm_timer();
  bool alive(std::uint64_t id) const { return calls_.contains(id); }

  const std::shared_ptr<boost::asio::io_context> context_;
  const Settings settings_;

  // I/O thread only.
  enum class State { Idle, Connecting, Open } state_ = State::Idle;
  std::shared_ptr<Connector> connector_;
  std::shared_ptr<Connection> connection_;
  Calls calls_;
  std::vector<std::uint64_t> unsent_;  // wait for the connection
  DeadlineQueue deadlines_;
  boost::asio::steady_timer timer_;
  std::optional<DeadlineQueue::TimePoint> armed_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Call>> submitted_;  // guarded by mutex_
  bool posted_ = false;                           // guarded by mutex_
};

}  // namespace braid::comm
