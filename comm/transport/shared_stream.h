// Bytes between two processes of one host through memory that both have mapped: a ring for each direction.
// The Unix socket under it carries the proof of the token, then the memory's descriptor, and from then on
// only bells: a byte for a side that waits. It also tells when the peer is gone, however that came. One
// thread. What the peer writes into the memory is not believed: a ring that it has damaged ends the stream.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/transport/stream.h"

namespace braid::comm {

/// Of each direction's ring.
inline constexpr std::size_t kSharedRingBytes = std::size_t{4} << 20;

/// `inner` makes the handshake on `socket`, which is a Unix socket and stays the caller's; then the client's
/// memory is handed over. REQUIRES: `inner` does not encrypt.
std::unique_ptr<Stream> make_shared_stream(std::unique_ptr<Stream> inner, int socket, bool server);

}  // namespace braid::comm
