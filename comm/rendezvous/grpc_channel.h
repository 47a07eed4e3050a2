// Channels to the host of a job's rendezvous.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/transport/transport.h"

namespace grpc {
class Channel;
}

namespace braid::comm {

/// Does not connect yet. With `silence` a host that is lost with its network, which closes no connection, is
/// noticed after about so long. Throws: InvalidArgument (files of TLS).
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const Security& security,
                                            std::optional<std::chrono::milliseconds> silence = {});

}  // namespace braid::comm
