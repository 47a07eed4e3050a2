// One server's control plane, as a client calls it: blocking calls with a deadline and a stop token, and one
// asynchronous probe. gRPC stays behind the .cc file.
// Thread rule: safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/wait_context.h"
#include "comm/transport/transport.h"

namespace braid::proto {
class PsRegisterRequest;
class PsRegisterReply;
class PsCreateTablesRequest;
class PsStartRequest;
class PsLeaveRequest;
class PsCheckpointRequest;
class PsCheckpointReply;
class PsRestoreRequest;
class PsRestoreReply;
class PsStatsReply;
class PsShutdownRequest;
class PsRefuseRequest;
}  // namespace braid::proto

namespace braid::ps {

class ControlLink {
 public:
  ControlLink(int server, std::string address, const comm::Security& security);
  ~ControlLink();  // after close_probes()
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  int server() const;
  const std::string& address() const;

  // Each throws what the server answered, or Unavailable, DeadlineExceeded, Cancelled with index and address.
  void register_worker(const proto::PsRegisterRequest& request, proto::PsRegisterReply* reply,
                       const WaitContext& wait);
  void create_tables(const proto::PsCreateTablesRequest& request, const WaitContext& wait);
  void start(const proto::PsStartRequest& request, const WaitContext& wait);
  void leave(const proto::PsLeaveRequest& request, const WaitContext& wait);
  void checkpoint(const proto::PsCheckpointRequest& request, proto::PsCheckpointReply* reply,
                  const WaitContext& wait);
  void restore(const proto::PsRestoreRequest& request, proto::PsRestoreReply* reply, const WaitContext& wait);
  void stats(proto::PsStatsReply* reply, const WaitContext& wait);
  void shutdown(const proto::PsShutdownRequest& request, const WaitContext& wait);
  void refuse(const proto::PsRefuseRequest& request, const WaitContext& wait);

  /// Asks for the server's instance; nothing when it does not answer in time, and after close_probes().
  /// `answer` is called once, on any thread, and destroyed before the probe counts as ended.
  void probe_async(std::chrono::milliseconds timeout,
                   std::function<void(std::optional<std::uint64_t>)> answer);
  /// Cancels the probes and waits until they have ended. Who holds this by what `answer` captures calls it
  /// before it lets go: gRPC's thread, on which answers run, must not be the one that ends the channel.
  void close_probes();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::ps
