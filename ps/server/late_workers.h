// TIMED's memory of who was late. A round that closes without a worker is closed to it, and later rounds do
// not wait for it until it is back: until it has pulled values again. Its gradients belong to the round whose
// values they were made from, which for a worker that was late is not the one of its step's number.
// Thread rule: one thread at a time (the core's lock).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace braid::ps {

class LateWorkers {
 public:
  explicit LateWorkers(int workers) : workers_(static_cast<std::size_t>(workers)) {}

  /// The round that a worker's step `step` is to have values of, all rounds below it applied.
  std::uint64_t round_to_pull(int worker, std::uint64_t step) const;
  /// The worker was given values of which `round` rounds are a part, for its step.
  void served(int worker, std::uint64_t step, std::uint64_t round);
  /// The round that gradients of its step are for.
  std::uint64_t round_of(int worker, std::uint64_t step) const;

  /// Another process of the worker: what the former one was given is nothing to it.
  void begin_session(int worker) { workers_[static_cast<std::size_t>(worker)].rounds.clear(); }
  /// The round closed without it.
  void left_out(int worker, std::uint64_t round);
  /// Whether rounds wait for it.
  bool is_here(int worker) const { return !at(worker).away; }
  /// One push of so many was late. Result: how many were.
  struct Pushes {
    std::uint64_t all = 0, late = 0;
  };
  const Pushes& count(int worker, bool late) {
    Worker& its = workers_[static_cast<std::size_t>(worker)];
    ++its.pushes.all;
    its.pushes.late += late ? 1 : 0;
    return its.pushes;
  }
  /// The round closed without it: nothing more of it goes into that.
  bool is_closed(int worker, std::uint64_t round) const {
    return at(worker).closed && round <= *at(worker).closed;
  }

 private:
  static constexpr std::size_t kSteps = 64;  // of a worker, that are remembered
  struct Worker {
    std::map<std::uint64_t, std::uint64_t> rounds;  // by step: the round of the values that it was given
    std::optional<std::uint64_t> closed;            // the newest round that closed without it
    bool away = false;                              // and it has pulled nothing newer
    Pushes pushes;
  };
  const Worker& at(int worker) const { return workers_[static_cast<std::size_t>(worker)]; }

  std::vector<Worker> workers_;
};

}  // namespace braid::ps
