// What the tests of stages share: waits, numbered batches, a source of records.
#pragma once

#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "base/wait_context.h"
#include "engine/staging/stage.h"
#include "tests/support/eventually.h"
#include "tests/support/message_of.h"

namespace braid::testing {

inline WaitContext soon(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return WaitContext::with_timeout(timeout);
}

inline Batch numbered(std::uint64_t ticket) {
  Batch batch;
  batch.ticket = ticket;
  batch.cursor = std::to_string(ticket + 1);
  return batch;
}

inline void random_delay(std::uint64_t seed, int most_us) {
  std::minstd_rand random(static_cast<unsigned>(seed * 2654435761U + 1));
  random.discard(3);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<unsigned>(most_us)));
}

inline double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

inline Batch batch_of(Tensor value) {
  Batch batch;
  batch.tensors.push_back(std::move(value));
  return batch;
}

/// A source with an order of its own, as a file or a queue has: each record is handed out once.
struct Records {
  explicit Records(std::int64_t count) : left(count) {}
  Batch next() {
    if (given == left) throw OutOfRange("no more records");
    return batch_of(Tensor::scalar<std::int64_t>(given++));
  }
  const std::int64_t left;
  std::int64_t given = 0;
};

inline std::int64_t value_of(const Batch& batch) { return batch.tensors.at(0).data<std::int64_t>()[0]; }

}  // namespace braid::testing
