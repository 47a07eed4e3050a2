// One thread that runs one io_context. Everything that is bound to the context runs on this thread, so it
// needs no locks. The context outlives the IoThread while a connection still refers to it.
#pragma once

#include <utility>
// Boost 1.74 uses std::exchange without including it.
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>

#include "base/wait_context.h"

namespace braid::comm {

class IoThread {
 public:
  /// `name` is the thread's name, at most 15 characters.
  explicit IoThread(std::string name, std::shared_ptr<boost::asio::io_context> context =
                                          std::make_shared<boost::asio::io_context>(1));
  /// Joins if the thread has ended or is about to; a thread that a callback holds up, and its own thread, it
  /// lets go. REQUIRES: finish() was called.
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  std::shared_ptr<boost::asio::io_context> context() const;
  bool on_this_thread() const;
  /// The thread ends when the context has no more work.
  void finish();
  /// Whether the thread has ended before the deadline.
  bool wait_ended(const WaitContext& wait);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace braid::comm
