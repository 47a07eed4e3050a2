// gRPC channels between the processes of a job. Thread rule: pure functions.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/wait_context.h"
#include "comm/transport/transport.h"

namespace grpc {
class Channel;
}

namespace braid::comm {

/// Connects with the first call. With `silence` a host that is lost with its network, which closes no
/// connection, is noticed after about so long. Throws: InvalidArgument (files of TLS).
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const Security& security,
                                            std::optional<std::chrono::milliseconds> silence = {});

/// Of a call, for gRPC.
std::chrono::system_clock::time_point call_deadline(const WaitContext& wait);

}  // namespace braid::comm
