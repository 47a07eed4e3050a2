// Bytes that this process has moved over connections of the data plane, for its metrics: framed messages to
// and from servers and ranks, with their headers. What NCCL, MPI and gRPC send is not among them. Thread
// rule: safe from any thread.
#pragma once

#include <cstdint>

namespace braid::comm {

struct Traffic {
  std::uint64_t received_bytes = 0, sent_bytes = 0;
};
Traffic traffic();

}  // namespace braid::comm
