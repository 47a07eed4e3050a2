// What a start is at, in the log, where it takes long: a worker that says nothing looks like one that stands
// still. Thread rule: has a thread of its own; made and destroyed by one thread.
#pragma once

#include <chrono>
#include <string>
#include <thread>

namespace braid::worker {

/// While it lives, a line after `interval`, then after twice as long each: "start: `what` takes 10.0 s so
/// far".
class SlowStart {
 public:
  explicit SlowStart(std::string what, std::chrono::milliseconds interval = std::chrono::seconds(10));

 private:
  std::jthread thread_;
};

}  // namespace braid::worker
