// The threads that own table memory. Work is posted to all of them at once and each does its own part, in the
// order of the posts; so two posts made in one order (under one lock) run in that order everywhere, and a
// post is a snapshot of the server's state. I/O and control threads never touch tables. Thread rule: post()
// is safe from any thread, and from inside of a task.
#pragma once

#include <functional>
#include <memory>

#include "base/error.h"

namespace braid::ps {

class TableThreads {
 public:
  /// Runs on every thread, with the thread's number.
  using Task = std::function<void(int)>;
  /// Runs once, on the thread that finished last. The error is the first that a task threw, or null. Must not
  /// throw.
  using Finally = std::function<void(ErrorPtr)>;

  /// REQUIRES: threads >= 1.
  explicit TableThreads(int threads);
  ~TableThreads();  // runs what was posted, then joins
  TableThreads(const TableThreads&) = delete;
  TableThreads& operator=(const TableThreads&) = delete;

  int threads() const;
  void post(Task task, Finally finally);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::ps
