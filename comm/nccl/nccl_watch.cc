#include "comm/nccl/nccl_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda/check.h"
#include "base/log.h"

namespace braid::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{25};
constexpr milliseconds kLong{500};  // what takes longer makes the thread ask whether a rank gave up
constexpr milliseconds kLastWords{
    1000};  // nearer to the deadline this rank finds out by itself who is missing

}  // namespace

NcclWatch::NcclWatch(int device, std::string place, NcclHandle& handle, PeerProgress& peers)
    : device_(device),
      place_(std::move(place)),
      handle_(handle),
      peers_(peers),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

NcclWatch::~NcclWatch() {
  thread_.request_stop();
  thread_.join();
  cuda::log_failure(cudaSetDevice(device_), "cudaSetDevice");  // for the events
}

ErrorPtr NcclWatch::broken() const {
  if (!is_broken_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mu_);
  return broken_;
}

void NcclWatch::break_off(ErrorPtr error) {
  {
    std::lock_guard lock(mu_);
    if (broken_) return;
    broken_ = error;
    is_broken_.store(true, std::memory_order_release);
  }
  // What comes next may be cut short by an abort that hangs.
  log_warning("{}: NCCL is aborted: {}", place_, error->message);
  handle_.abort();
  peers_.give_up(error->message);
}

std::string NcclWatch::text_of(const Entry& entry) const {
  if (entry.operation.empty()) return fmt::format("{}: step {}", place_, entry.number);
  return fmt::format("{}: {} #{}", place_, entry.operation, entry.number);
}

void NcclWatch::after(cudaStream_t stream, std::string_view operation, const WaitContext& wait) {
  cudaStreamCaptureStatus capturing{};
  BRAID_CUDA_CHECK(cudaStreamIsCapturing(stream, &capturing));
  if (capturing != cudaStreamCaptureStatusNone) return;
  const std::uint64_t number = peers_.collectives();
  std::lock_guard lock(mu_);
  cuda::Event event = events_.take();
  BRAID_CUDA_CHECK(cudaEventRecord(event.get(), stream));
  entries_.push_back({next_id_++, operation, number, wait, Clock::now(), std::move(event)});
}

void NcclWatch::begin_step(std::uint64_t step, const WaitContext& wait) {
  std::lock_guard lock(mu_);
  entries_.push_back({next_id_++, {}, step, wait, Clock::now(), {}});
}

void NcclWatch::end_step(std::uint64_t step) {
  std::lock_guard lock(mu_);
  std::erase_if(entries_,
                [&](const Entry& entry) { return entry.operation.empty() && entry.number == step; });
}

NcclWatch::Waiting::Waiting(NcclWatch& watch, const WaitContext& wait) : watch_(watch) {
  std::lock_guard lock(watch.mu_);
  watch.waiting_.emplace(Entry{0, {}, 0, wait, Clock::now(), {}});
}

NcclWatch::Waiting::~Waiting() {
  std::lock_guard lock(watch_.mu_);
  watch_.waiting_.reset();
}

void NcclWatch::work(const std::stop_token& stop) {
  cuda::log_failure(cudaSetDevice(device_), "cudaSetDevice");
  std::unique_lock lock(mu_);
  while (!stop.stop_requested()) {
    lock.unlock();
    peers_.post();
    try {
      if (!broken()) look();
    } catch (...) {
      break_off(capture_current_exception(place_));
    }
    lock.lock();
    changed_.wait_for(lock, stop, kTick, [] { return false; });
  }
}

void NcclWatch::look() {
  drop_finished();
  const auto now = Clock::now();
  std::optional<std::uint64_t> late;
  std::string text;
  bool any = false, cancelled = false, is_long = false;
  {
    std::lock_guard lock(mu_);
    const auto see = [&](const Entry& entry) {
      any = true;
      is_long = is_long || (now - entry.since > kLong && entry.wait.remaining() > kLastWords);
    };
    if (waiting_) see(*waiting_);
    for (const Entry& entry : entries_) {
      see(entry);
      cancelled = cancelled || entry.wait.stopped();
      if (late || (!entry.wait.expired() && !entry.wait.stopped())) continue;
      late = entry.id;
      text = text_of(entry);
    }
  }
  if (late && cancelled) return break_off(make_error(ErrorCode::Cancelled, text + ": cancelled"));
  if (late) {
    const std::string missing = peers_.who_is_missing();
    drop_finished();  // it may have ended while the others were asked
    std::lock_guard lock(mu_);
    if (std::none_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == *late; }))
      late.reset();
    text = fmt::format("{}: deadline exceeded: {}", text, missing);
  }
  if (late) return break_off(make_error(ErrorCode::DeadlineExceeded, text));
  if (!any) return;
  if (const auto state = handle_.status(); state && *state != ncclSuccess && *state != ncclInProgress)
    return break_off(
        make_error(error_code_of(*state),
                   fmt::format("{}: {}: {}", place_, ncclGetErrorString(*state), handle_.last_error())));
  if (!is_long || now - asked_ < kLong) return;
  asked_ = now;
  if (const auto lost = peers_.who_is_lost())
    break_off(make_error(ErrorCode::Unavailable, fmt::format("{}: {}", place_, *lost)));
}

void NcclWatch::drop_finished() {
  std::lock_guard lock(mu_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (!entry->event) {
      ++entry;
      continue;
    }
    const cudaError_t state = cudaEventQuery(entry->event.get());
    if (state == cudaErrorNotReady) {
      ++entry;
      continue;
    }
    BRAID_CUDA_CHECK(state);
    events_.give_back(std::move(entry->event));
    entry = entries_.erase(entry);
  }
}

}  // namespace braid::comm
