// The data plane's end at the server: turns messages into jobs of the core and answers into messages.
// Payloads land in pooled blocks and are read from there; pulled values go out of table memory. Thread rule:
// the handler's functions run on I/O threads and only decode, admit and post.
#pragma once

#include <memory>

#include "comm/transport/transport.h"
#include "ps/server/server_core.h"

namespace braid::ps {

/// The handler for one listening socket. `listener` tells connections of several sockets of a server apart; 0
/// to 15. REQUIRES: `core` outlives the transport server.
comm::RequestHandler make_data_handler(ServerCore& core, unsigned listener);

}  // namespace braid::ps
