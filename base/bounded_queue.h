// A blocking queue of bounded size for many producers and many consumers. It ends in two ways: close() lets
// consumers drain it first, cancel() drops what it holds and ends it at once; either may carry the error that
// the other side is to see. Both can be undone by reopen(). Order is that of the pushes. Thread rule:
// everything is safe from any thread; destroy it when no thread is inside a call.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/wait_context.h"

namespace braid {

template <class T>
class BoundedQueue {
 public:
  /// `name` says in error texts what the queue is. REQUIRES: capacity >= 1.
  BoundedQueue(std::size_t capacity, const std::string& name)
      : capacity_(capacity),
        for_room_(name + ": waiting for room"),
        for_an_item_(name + ": waiting for an item") {
    if (capacity == 0) throw InvalidArgument(name + ": capacity must be at least 1");
  }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  /// Waits for room. False, and the value is gone, when the queue was closed or cancelled.
  /// Throws: Cancelled, DeadlineExceeded (the wait); the error given to close() or cancel().
  bool push(T value, const WaitContext& context) {
    std::unique_lock lock(mutex_);
    wait_on(room_, lock, context, for_room_,
            [&] { return state_ != State::Open || items_.size() < capacity_; });
    if (state_ != State::Open) {
      throw_if_failed();
      return false;
    }
    put(std::move(value), lock);
    return true;
  }

  /// Waits for an item. Nullopt when the queue was cancelled, or closed and is empty.
  /// Throws: Cancelled, DeadlineExceeded (the wait); the error given to close() or cancel(), where nullopt
  /// would be.
  std::optional<T> pop(const WaitContext& context) {
    std::unique_lock lock(mutex_);
    wait_on(items_there_, lock, context, for_an_item_,
            [&] { return state_ != State::Open || !items_.empty(); });
    if (items_.empty()) {
      throw_if_failed();
      return std::nullopt;
    }
    return take(lock);
  }

  /// False when there is no room, or the queue is not open; `value` is moved from only when true.
  bool try_push(T& value) {
    std::unique_lock lock(mutex_);
    if (state_ != State::Open || items_.size() >= capacity_) return false;
    put(std::move(value), lock);
    return true;
  }

  std::optional<T> try_pop() {
    std::unique_lock lock(mutex_);
    if (items_.empty()) return std::nullopt;
    return take(lock);
  }

  /// No more pushes; consumers get what is there and then the end, or `error`. The first error stays.
  void close(ErrorPtr error = nullptr) {
    std::lock_guard lock(mutex_);
    end(State::Closed, std::move(error));
  }

  /// The end for both sides at once; what is in the queue is dropped. The first error stays.
  void cancel(ErrorPtr error = nullptr) {
    std::deque<T> dropped;  // destroyed after the lock is released
    std::lock_guard lock(mutex_);
    dropped.swap(items_);
    end(State::Cancelled, std::move(error));
  }

  /// Takes pushes again, and forgets the error. What a close left is still there.
  void reopen() {
    std::lock_guard lock(mutex_);
    state_ = State::Open;
    error_ = nullptr;
  }

  std::size_t capacity() const { return capacity_; }
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  /// True while pushes are taken.
  bool is_open() const {
    std::lock_guard lock(mutex_);
    return state_ == State::Open;
  }

 private:
  enum class State { Open, Closed, Cancelled };

  // The following REQUIRE that mutex_ is held; put and take release it.
  void throw_if_failed() const {
    if (error_) throw_error(*error_);
  }
  void end(State state, ErrorPtr error) {
    if (state_ != State::Cancelled) state_ = state;
    if (!error_) error_ = std::move(error);
    room_.notify_all();
    items_there_.notify_all();
  }
  void put(T&& value, std::unique_lock<std::mutex>& lock) {
    items_.push_back(std::move(value));
    lock.unlock();
    items_there_.notify_one();
  }
  T take(std::unique_lock<std::mutex>& lock) {
    T value = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    room_.notify_one();
    return value;
  }

  const std::size_t capacity_;
  const std::string for_room_;  // what error texts say is waited for
  const std::string for_an_item_;

  mutable std::mutex mutex_;
  std::condition_variable_any room_;
  std::condition_variable_any items_there_;
  std::deque<T> items_;        // guarded by mutex_
  State state_ = State::Open;  // guarded by mutex_
  ErrorPtr error_;             // guarded by mutex_
};

}  // namespace braid
