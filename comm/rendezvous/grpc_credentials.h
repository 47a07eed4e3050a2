// gRPC credentials from the options that the data plane takes too: mutual TLS with the files that are named,
// else with the certificate that follows from the job's token, else plain text. A certificate counts when the
// job's CA signed it; names in it are not compared with addresses, since tasks move.
#pragma once

#include <memory>

#include "comm/transport/transport.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace braid::comm {

/// Throws: InvalidArgument naming a file that cannot be read, or that is not named while others are.
std::shared_ptr<grpc::ChannelCredentials> make_channel_credentials(const Security& security);
std::shared_ptr<grpc::ServerCredentials> make_server_credentials(const Security& security);

}  // namespace braid::comm
