#include "worker/strategies/home_service.h"

#include <cstdint>

#include "comm/communicator.h"

namespace braid::worker {

HomeService::Request HomeService::ask(Request request, const WaitContext& wait) {
  auto word = static_cast<std::int32_t>(request);
  communicator_->broadcast(&word, 1, DType::Int32, 0, StreamRef::host(), wait);
  return static_cast<Request>(word);
}

void HomeService::flush(const WaitContext& wait) {
  ask(Request::Flush, wait);
  flush_(wait);
  communicator_->barrier(wait);
}

void HomeService::release(const WaitContext& wait) { ask(Request::Release, wait); }

void HomeService::serve(std::chrono::nanoseconds patience) {
  for (;;) {
    const WaitContext wait = WaitContext::with_timeout(patience);
    if (ask(Request::Release, wait) == Request::Release) return;
    flush_(wait);
    communicator_->barrier(wait);
  }
}

}  // namespace braid::worker
