#include "comm/nccl/nccl_session.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "comm/nccl/nccl_meeting.h"

namespace braid::comm {
namespace {

using Clock = WaitContext::Clock;

constexpr std::chrono::microseconds kSpin{100};
constexpr std::chrono::milliseconds kYield{2};
constexpr std::chrono::microseconds kNap{50};

/// Between two looks at something that somebody else finishes: without pause at first, then less and less.
void pause_since(Clock::time_point begin) {
  const auto waited = Clock::now() - begin;
  if (waited < kSpin) return;
  if (waited < kYield)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(kNap);
}

}  // namespace

NcclSession::NcclSession(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait)
    : rank_(options.rank),
      size_(options.size),
      device_(options.device),
      peers_(rendezvous, options.name, options.rank, meet(options, rendezvous, wait)),
      staging_(options.device),
      handle_(options.rank, options.size, options.device, share_id(options, rendezvous, wait)),
      watch_(options.device, fmt::format("[nccl] rank {}", options.rank), handle_, peers_) {
  collectively(wait, [&] { finish_call("connect", ncclInProgress, wait); });
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion", rank_);
  log_info("[nccl] {} of {}, NCCL {}.{}.{}", peers_.name_of(rank_), size_, version / 10000,
           version / 100 % 100, version % 100);
}

NcclSession::~NcclSession() {
  // Where another rank is beyond reach, the orderly end would wait for it.
  if (!watch_.broken() && peers_.who_is_lost()) handle_.abort();
}

void NcclSession::throw_if_broken() const {
  if (const ErrorPtr error = watch_.broken())
    throw Unavailable(fmt::format("[nccl] rank {}: the communicator is broken: {}", rank_, error->message));
}

std::string NcclSession::what(std::string_view operation) const {
  return fmt::format("[nccl] rank {}: {}", rank_, operation);
}

void NcclSession::finish_call(std::string_view operation, Enqueue begun, const WaitContext& wait) {
  ncclResult_t state = begun.value_or(ncclInProgress);
  for (const auto begin = Clock::now(); state == ncclInProgress; pause_since(begin)) {
    give_up_when_late(operation, wait);
    state = handle_.status().value_or(ncclInProgress);
  }
  if (state == ncclSuccess) return;
  throw_error(error_code_of(state),
              fmt::format("{}: {}: {}", what(operation), ncclGetErrorString(state), handle_.last_error()));
}

void NcclSession::await_staging(std::string_view operation, const WaitContext& wait) {
  staging_.mark();
  for (const auto begin = Clock::now(); !staging_.reached(); pause_since(begin))
    give_up_when_late(operation, wait);
  if (const ErrorPtr error = watch_.broken()) throw_error(*error);  // kernels that were ended
}

void NcclSession::give_up_when_late(std::string_view operation, const WaitContext& wait) {
  if (const ErrorPtr error = watch_.broken()) throw_error(*error);
  if (!wait.stopped() && !wait.expired()) return;
  const std::string place = fmt::format("{} #{}", what(operation), peers_.collectives());
  if (!wait.stopped())
    throw DeadlineExceeded(fmt::format("{}: deadline exceeded: {}", place, peers_.who_is_missing()));
  wait.check(place);
}

}  // namespace braid::comm
