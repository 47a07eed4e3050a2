// The queue of batches over gRPC (proto/work_queue.proto): one queue, of the newest incarnation that the
// leader has opened it for. Thread rule: any thread.
#pragma once

#include <chrono>
#include <memory>

namespace grpc {
class Service;
}

namespace braid::ps {

/// What a worker holds that is silent for `patience` is given to others. The service answers at once, and
/// keeps no thread.
std::unique_ptr<grpc::Service> make_queue_service(std::chrono::milliseconds patience);

}  // namespace braid::ps
