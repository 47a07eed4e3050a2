#include "comm/rendezvous/grpc_channel.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "comm/rendezvous/grpc_credentials.h"

namespace braid::comm {
namespace {

// A host that is on its way up is to be found soon.
constexpr int kReconnectMilliseconds = 50;
constexpr int kConnectMilliseconds = 20000;
constexpr int kMaxReconnectMilliseconds = 500;
constexpr int kKeepaliveMilliseconds = 10000;

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const Security& security,
                                            std::optional<std::chrono::milliseconds> silence) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMilliseconds);
  // Despite its name, this is also the time that one attempt to connect is given.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMilliseconds);
  // Each channel has a connection of its own: one to a process that has gone is none to who came after it.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // http_proxy of a cluster's images is for the world outside; the ranks' own addresses are not behind it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (silence) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(silence->count()));
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  return grpc::CreateCustomChannel(address, make_channel_credentials(security), arguments);
}

std::chrono::system_clock::time_point call_deadline(const WaitContext& wait) {
  constexpr auto kFarAway = std::chrono::hours(24 * 365);
  return std::chrono::system_clock::now() + std::min<std::chrono::nanoseconds>(wait.remaining(), kFarAway);
}

}  // namespace braid::comm
