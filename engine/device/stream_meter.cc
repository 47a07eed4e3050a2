#include "engine/device/stream_meter.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace braid {
namespace {

struct CauseNames {
  std::mutex mu;
  std::vector<std::string> names{"idle", "input"};  // guarded by mu; in the order of their numbers
};

CauseNames& cause_names() {
  static CauseNames names;
  return names;
}

}  // namespace

int cause_id(const std::string& name) {
  CauseNames& all = cause_names();
  std::lock_guard lock(all.mu);
  const auto found = std::find(all.names.begin(), all.names.end(), name);
  if (found != all.names.end()) return static_cast<int>(found - all.names.begin());
  if (all.names.size() == kMaxCauses)
    throw Internal("no room for cause '" + name + "' beside " + std::to_string(kMaxCauses) + " others");
  all.names.push_back(name);
  return static_cast<int>(all.names.size()) - 1;
}

void InputClock::begin(MeterTime now) {
  std::lock_guard lock(mu_);
  waiting_ = true;
  since_ = now;
}

void InputClock::end(MeterTime now) {
  std::lock_guard lock(mu_);
  if (waiting_) sum_ += now - since_;
  waiting_ = false;
}

std::chrono::nanoseconds InputClock::total(MeterTime now) const {
  std::lock_guard lock(mu_);
  return waiting_ ? sum_ + std::max(std::chrono::nanoseconds(0), now - since_) : sum_;
}

std::map<std::string, double> MeterReading::wait_seconds() const {
  CauseNames& all = cause_names();
  std::lock_guard lock(all.mu);
  std::map<std::string, double> result;
  for (std::size_t c = 0; c < all.names.size(); ++c) {
    if (waiting[c].count() != 0 || c == kCauseIdle)
      result[all.names[c]] = std::chrono::duration<double>(waiting[c]).count();
  }
  return result;
}

StreamMeter::StreamMeter(const InputClock* input, BusyUnion* together)
    : input_(input), together_(together), since_(MeterTime::clock::now()) {
  if (input_) input_since_ = input_->total(since_);
}

void StreamMeter::settle(MeterTime now) {
  const auto elapsed = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(now - since_));
  if (busy()) {
    sums_.busy += elapsed;
  } else if (state_ == kCauseIdle && input_) {
    const auto total = input_->total(now);
    const auto input = std::clamp(total - input_since_, std::chrono::nanoseconds(0), elapsed);
    sums_.waiting[kCauseInput] += input;
    sums_.waiting[kCauseIdle] += elapsed - input;
  } else {
    sums_.waiting[static_cast<std::size_t>(state_)] += elapsed;
  }
  since_ = std::max(since_, now);
}

void StreamMeter::tell(bool before, MeterTime now) {
  if (!together_ || before == busy()) return;
  if (before)
    together_->leave(now);
  else
    together_->enter(now);
}

void StreamMeter::run(MeterTime now) {
  std::lock_guard lock(mu_);
  settle(now);
  const bool before = busy();
  state_ = kRunning;
  tell(before, now);
}

void StreamMeter::wait(int cause, MeterTime now) {
  std::lock_guard lock(mu_);
  settle(now);
  if (cause == kCauseIdle && input_) input_since_ = input_->total(now);
  if (cause != kCauseIdle) ++sums_.waits;
  const bool before = busy();
  state_ = cause;
  tell(before, now);
}

void StreamMeter::flight_begin(MeterTime now) {
  std::lock_guard lock(mu_);
  settle(now);
  const bool before = busy();
  ++flights_;
  tell(before, now);
}

void StreamMeter::flight_end(MeterTime now) {
  std::lock_guard lock(mu_);
  settle(now);
  if (--flights_ == 0 && state_ == kCauseIdle && input_) input_since_ = input_->total(now);
  tell(true, now);
}

MeterReading StreamMeter::read(MeterTime now) const {
  StreamMeter copy(input_);
  {
    std::lock_guard lock(mu_);
    copy.sums_ = sums_;
    copy.state_ = state_;
    copy.flights_ = flights_;
    copy.since_ = since_;
    copy.input_since_ = input_since_;
  }
  copy.settle(now);
  copy.sums_.launches = launches_.load(std::memory_order_relaxed);
  copy.sums_.bytes = bytes_.load(std::memory_order_relaxed);
  return copy.sums_;
}

}  // namespace braid
