// A queue of batches on a parameter server, over gRPC. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/transport/transport.h"
#include "ps/client/batch_queue.h"

namespace braid::ps {

struct QueueLinkOptions {
  std::string address;  // of the server's control plane
  std::string job;
  std::uint64_t incarnation = 0;
  comm::Security security{};
};

/// Does not connect yet. Each call is made once; a server that is not up is waited for until the deadline.
std::unique_ptr<BatchQueue> make_queue_link(QueueLinkOptions options);

}  // namespace braid::ps
