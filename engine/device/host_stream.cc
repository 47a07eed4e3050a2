#include "engine/device/host_stream.h"

#include <pthread.h>

#include "engine/device/core_budget.h"
#include "engine/device/core_place.h"

namespace braid {

HostStream::HostStream(std::string name, std::string cause, const InputClock* input, BusyUnion* together)
    : name_(std::move(name)),
      cause_(std::move(cause)),
      cause_number_(cause_id(cause_)),
      meter_(input, together),
      ring_(16) {
  thread_ = std::thread([this] { work(); });
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

HostStream::~HostStream() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostStream::enqueue(Task task) {
  {
    std::lock_guard lock(mu_);
    if (count_ == ring_.size()) {
      std::vector<Task> larger(2 * ring_.size());
      for (std::size_t i = 0; i < count_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
      ring_ = std::move(larger);
      head_ = 0;
    }
    ring_[(head_ + count_) & (ring_.size() - 1)] = task;
    ++count_;
    ++enqueued_;
    arrivals_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_all();
}

bool HostStream::try_run_inline(Task task) {
  {
    std::lock_guard lock(mu_);
    if (running_ || count_ != 0 || stopping_) return false;
    running_ = true;
    ++enqueued_;
  }
  CoreBudget::enter();
  CorePlace::take();
  meter_.run(MeterTime::clock::now());
  task.run(task.context, task.argument);
  meter_.idle(MeterTime::clock::now());
  CorePlace::leave();
  CoreBudget::leave();
  bool more;
  {
    std::lock_guard lock(mu_);
    finish_task();
    more = count_ != 0;
  }
  if (more) changed_.notify_all();
  return true;
}

void HostStream::finish_task() {
  running_ = false;
  ++completed_;
}

bool HostStream::spin_for_work() const {
  const std::uint32_t seen = arrivals_.load(std::memory_order_acquire);
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (CoreBudget::may_spin() && std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 32; ++i) {
      if (arrivals_.load(std::memory_order_acquire) != seen) return true;
      cpu_relax();
    }
  }
  return false;
}

void HostStream::work() {
  CoreBudget::enter();
  std::unique_lock lock(mu_);
  for (;;) {
    if (count_ == 0 || running_) {
      if (stopping_ && count_ == 0 && !running_) break;
      lock.unlock();
      spin_for_work();
      lock.lock();
      if ((count_ == 0 || running_) && !(stopping_ && !running_)) {
        CoreBudget::leave();
        CorePlace::leave();
        changed_.wait(lock, [this] { return (count_ != 0 || stopping_) && !running_; });
        CoreBudget::enter();
      }
      continue;
    }
    const Task task = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --count_;
    running_ = true;
    lock.unlock();
    CorePlace::take();
    meter_.run(MeterTime::clock::now());
    task.run(task.context, task.argument);
    lock.lock();
    // Before another thread can begin a task inline, whose time would else count as idle.
    if (count_ == 0) meter_.idle(MeterTime::clock::now());
    finish_task();
    lock.unlock();
    changed_.notify_all();
    lock.lock();
  }
  CoreBudget::leave();
  CorePlace::leave();
}

WaitStatus HostStream::await(Event& event, std::uint64_t value, const WaitContext& context,
                             int cause) noexcept {
  if (event.reached(value)) return WaitStatus::Reached;
  meter_.wait(cause, MeterTime::clock::now());
  WaitStatus status = WaitStatus::Reached;
  if (!(CoreBudget::may_spin() && event.spin(value, kSpin))) {
    CoreBudget::leave();
    CorePlace::leave();
    status = event.wait_status(value, context);
    CorePlace::take();
    CoreBudget::enter();
  }
  meter_.run(MeterTime::clock::now());
  return status;
}

// ------------------------------------------------------------------------------------------ launched
// functions

namespace {
struct Launched {
  HostStream* stream;
  std::function<void()> function;
  bool always;  // records run although the stream has an error
};
}  // namespace

void HostStream::run_function(void* context, std::uint64_t) noexcept {
  const std::unique_ptr<Launched> launched(static_cast<Launched*>(context));
  HostStream& stream = *launched->stream;
  if (!launched->always && stream.has_error()) return;
  try {
    launched->function();
  } catch (...) {
    stream.keep_error(capture_current_exception("stream " + stream.name()));
  }
}

void HostStream::launch(std::function<void()> function) {
  meter_.add_work(1, 0);
  enqueue({&run_function, new Launched{this, std::move(function), false}, 0});
}

void HostStream::record(Event& event, std::uint64_t value) {
  enqueue({&run_function, new Launched{this, [&event, value] { event.signal(value); }, true}, 0});
}

void HostStream::wait(Event& event, std::uint64_t value, WaitContext context) {
  auto function = [this, &event, value, context = std::move(context)] {
    switch (await(event, value, context, cause_number_)) {
      case WaitStatus::Reached:
        return;
      case WaitStatus::Stopped:
        throw Cancelled("wait for an event: cancelled");
      case WaitStatus::Deadline:
        throw DeadlineExceeded("wait for an event: deadline exceeded");
    }
  };
  enqueue({&run_function, new Launched{this, std::move(function), false}, 0});
}

void HostStream::synchronize(const WaitContext& context) {
  ErrorPtr error;
  {
    std::unique_lock lock(mu_);
    const std::uint64_t ticket = enqueued_;
    wait_on(changed_, lock, context, "stream " + name_, [&] { return completed_ >= ticket; });
    error.swap(error_);
  }
  if (error) throw_error(*error);
}

void HostStream::keep_error(ErrorPtr error) {
  std::lock_guard lock(mu_);
  if (!error_) error_ = std::move(error);
}

bool HostStream::has_error() const {
  std::lock_guard lock(mu_);
  return error_ != nullptr;
}

}  // namespace braid
