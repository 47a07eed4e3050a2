// gRPC channels to parameter servers. Thread rule: pure functions.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/wait_context.h"
#include "comm/transport/transport.h"

namespace braid::ps {

/// Connects with the first call, quickly again where a server is on its way up, and through no proxy.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const comm::Security& security);
/// Of a call, for gRPC.
std::chrono::system_clock::time_point system_deadline(const WaitContext& wait);

}  // namespace braid::ps
