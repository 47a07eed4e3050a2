#include "ps/client/channel.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "comm/rendezvous/grpc_credentials.h"

namespace braid::ps {
namespace {

constexpr int kReconnectMs = 50;
constexpr int kConnectMs = 20000;
constexpr int kMaxReconnectMs = 500;

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const comm::Security& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  // Despite its name, this is also the time that one attempt to connect is given.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, comm::make_channel_credentials(security), arguments);
}

std::chrono::system_clock::time_point system_deadline(const WaitContext& wait) {
  constexpr auto kFarAway = std::chrono::hours(24 * 365);
  return std::chrono::system_clock::now() + std::min<std::chrono::nanoseconds>(wait.remaining(), kFarAway);
}

}  // namespace braid::ps
