#include "engine/staging/stage.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace braid {

using Clock = std::chrono::steady_clock;

struct Stage::Impl {
  enum class State { Idle, Running, Closed, Cancelled };
  struct Slot {
    Batch batch;
    ErrorPtr error;
  };

  // Set once.
  StageOptions options;
  Producer producer;
  Observer observer;

  mutable std::mutex mu;
  std::condition_variable_any space;  // producers wait here
  std::condition_variable_any ready;  // takers wait here
  // Guarded by mu.
  State state = State::Idle;
  std::uint64_t next_ticket = 0;  // to be made
  std::uint64_t next_taken = 0;   // to be moved out
  std::uint64_t end_ticket = UINT64_MAX;
  std::map<std::uint64_t, Slot> slots;
  std::vector<StageThreadStats> stats;
  double take_wait_seconds = 0;
  std::uint64_t taken = 0;

  std::vector<std::jthread> threads;  // touched by start/join only

  void run(int thread);
  void join() {
    for (auto& t : threads) t.request_stop();
    threads.clear();
  }
};

namespace {
double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}
}  // namespace

void Stage::Impl::run(int thread) {
  auto& mine = stats[static_cast<std::size_t>(thread)];
  std::unique_lock lock(mu);
  for (;;) {
    auto wait_begin = Clock::now();
    // Every exit notifies: close() and cancel() change the state, take() makes space.
    space.wait(lock, [&] {
      return state != State::Running || next_ticket >= end_ticket ||
             next_ticket < next_taken + static_cast<std::uint64_t>(options.capacity);
    });
    mine.wait_seconds += seconds_between(wait_begin, Clock::now());
    if (state != State::Running || next_ticket >= end_ticket) return;
    const std::uint64_t ticket = next_ticket++;
    lock.unlock();

    Slot slot;
    bool ended = false;
    auto begin = Clock::now();
    try {
      slot.batch = producer(ticket);
    } catch (const OutOfRange&) {
      ended = true;
    } catch (...) {
      slot.error = capture_current_exception();
    }
    auto end = Clock::now();
    if (observer) observer(thread, {ticket, begin, end});

    lock.lock();
    mine.busy_seconds += seconds_between(begin, end);
    ++mine.batches;
    if (state == State::Cancelled) return;
    if (ended || slot.error) {
      // Nothing behind the end or an error is delivered, so nothing more is begun.
      end_ticket = std::min(end_ticket, slot.error ? ticket + 1 : ticket);
      space.notify_all();
    }
    if (!ended) slots.emplace(ticket, std::move(slot));
    ready.notify_all();
  }
}

Stage::Stage(StageOptions options, Producer producer, Observer observer) : impl_(std::make_unique<Impl>()) {
  if (options.capacity < 1 || options.num_threads < 1)
    throw InvalidArgument("stage '" + options.name + "': capacity and num_threads must be at least 1, got " +
                          std::to_string(options.capacity) + " and " + std::to_string(options.num_threads));
  impl_->options = std::move(options);
  impl_->producer = std::move(producer);
  impl_->observer = std::move(observer);
  impl_->stats.resize(static_cast<std::size_t>(impl_->options.num_threads));
}

Stage::~Stage() {
  cancel();
  impl_->join();
}

void Stage::start(std::uint64_t first_ticket) {
  {
    std::lock_guard lock(impl_->mu);
    if (impl_->state == Impl::State::Running)
      throw InvalidArgument("stage '" + impl_->options.name + "' is running already");
  }
  impl_->join();  // the threads of an earlier life have ended or are about to
  std::lock_guard lock(impl_->mu);
  impl_->slots.clear();
  impl_->next_ticket = impl_->next_taken = first_ticket;
  impl_->end_ticket = UINT64_MAX;
  impl_->state = Impl::State::Running;
  for (int i = 0; i < impl_->options.num_threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get(), i] { impl->run(i); });
}

Batch Stage::take(const WaitContext& wait) {
  Impl& s = *impl_;
  const WaitContext bounded = wait.at_most(s.options.timeout);
  std::unique_lock lock(s.mu);
  if (s.state == Impl::State::Idle) throw InvalidArgument("stage '" + s.options.name + "' was not started");
  auto begin = Clock::now();
  auto drained = [&] {  // closed, and nothing that was begun is still to come
    return s.state == Impl::State::Closed && s.next_taken >= s.next_ticket;
  };
  wait_on(s.ready, lock, bounded,
          "stage '" + s.options.name + "': waiting for batch " + std::to_string(s.next_taken), [&] {
            return s.slots.contains(s.next_taken) || s.state == Impl::State::Cancelled ||
                   s.next_taken >= s.end_ticket || drained();
          });
  s.take_wait_seconds += seconds_between(begin, Clock::now());
  if (s.state == Impl::State::Cancelled) throw Cancelled("stage '" + s.options.name + "' was cancelled");
  auto it = s.slots.find(s.next_taken);
  if (it == s.slots.end()) throw OutOfRange("stage '" + s.options.name + "': end of input");
  // An error stays in its slot: every later taker sees it too.
  if (it->second.error) throw_error(*it->second.error);
  Batch batch = std::move(it->second.batch);
  s.slots.erase(it);
  ++s.next_taken;
  ++s.taken;
  s.space.notify_one();
  if (s.state == Impl::State::Closed) s.ready.notify_all();
  return batch;
}

void Stage::close() {
  std::lock_guard lock(impl_->mu);
  if (impl_->state == Impl::State::Running) impl_->state = Impl::State::Closed;
  impl_->space.notify_all();
  impl_->ready.notify_all();
}

void Stage::cancel() {
  std::lock_guard lock(impl_->mu);
  if (impl_->state != Impl::State::Idle) impl_->state = Impl::State::Cancelled;
  impl_->slots.clear();
  impl_->space.notify_all();
  impl_->ready.notify_all();
}

StageStats Stage::stats() const {
  std::lock_guard lock(impl_->mu);
  return {impl_->stats, impl_->take_wait_seconds, impl_->taken, static_cast<int>(impl_->slots.size())};
}

const StageOptions& Stage::options() const { return impl_->options; }

}  // namespace braid
