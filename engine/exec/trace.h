// A timeline of everything that takes time, as Chrome/Perfetto JSON: one track a stream (and a stage thread),
// idle ones too, a slice for each kernel, wait and asynchronous node, an arrow for each cross-stream wait,
// and the step in `args`. Each track keeps its latest slices in a ring, so tracing may stay on. A trace that
// does not record costs a look at a flag a stream and step, and its rings have no memory.
//
// Slices of a track that overlap in time (several requests in flight on one stream) are drawn on further rows
// of that track. Thread rule: everything from any thread; a slice costs an uncontended lock, no allocation.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

using TraceTime = std::chrono::steady_clock::time_point;

struct TraceSlice {
  enum class Kind { Work, Wait, Async };
  const char* name = "";  // from Trace::intern, or a literal
  TraceTime begin, end;
  std::uint64_t step = 0;
  Kind kind = Kind::Work;
  /// Arrows go from the end of the Work or Async slice with this number to the end of Waits with the same. 0:
  /// none.
  std::uint64_t flow = 0;
};

class TraceTrack {
 public:
  TraceTrack(std::string name, std::size_t capacity, const std::atomic<bool>& recording);
  /// Nothing unless the trace records.
  void add(const TraceSlice& slice);
  bool recording() const noexcept { return recording_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }
  /// Oldest first.
  std::vector<TraceSlice> slices() const;

 private:
  const std::string name_;
  const std::size_t capacity_;
  const std::atomic<bool>& recording_;
  mutable std::mutex mu_;
  std::vector<TraceSlice> ring_;  // guarded by mu_, as next_; empty until the first slice
  std::uint64_t next_ = 0;        // slices ever added
};

class Trace {
 public:
  static constexpr std::size_t kDefaultCapacity = 1 << 15;

  explicit Trace(std::size_t slices_per_track = kDefaultCapacity, bool recording = true);
  /// Draws into `whole`, which outlives it: its tracks are `prefix` + name there, all else is the whole's.
  Trace(Trace& whole, std::string prefix);

  void set_recording(bool on) { flag() = on; }
  bool recording() const { return whole_ ? whole_->recording() : recording_.load(); }

  /// The track of that name; made, at the end of the list, when there is none. Lives as long as the trace.
  TraceTrack& track(const std::string& name);
  /// A copy of `name` that lives as long as the trace; the same text gives the same pointer.
  const char* intern(std::string_view name);
  /// What stands beside each slice of that interned name, as `nodes`: those that it is made of.
  void describe(const char* name, std::string nodes);

  /// One JSON object; loads in ui.perfetto.dev and chrome://tracing. `process` is its title, e.g. "worker 1".
  void write(std::ostream& out, const std::string& process) const;
  /// Only slices that lie in [begin, end], and of those with a step only the steps [first, last]. "braid" has
  /// what merges traces: where ts 0 is on this machine's steady clock, in microseconds.
  struct Window {
    TraceTime begin = TraceTime::min(), end = TraceTime::max();
    std::uint64_t first_step = 0, last_step = ~std::uint64_t{0};
  };
  void write(std::ostream& out, const std::string& process, const Window& window) const;

 private:
  std::atomic<bool>& flag() { return whole_ ? whole_->flag() : recording_; }

  Trace* const whole_ = nullptr;  // null: it is one
  const std::string prefix_;
  const std::size_t capacity_ = 1;
  std::atomic<bool> recording_;
  const TraceTime epoch_ = TraceTime::clock::now();
  mutable std::mutex mu_;
  std::deque<TraceTrack> tracks_;             // guarded by mu_; elements never move
  std::set<std::string, std::less<>> names_;  // guarded by mu_; elements never move
  std::map<const void*, std::string> nodes_;  // guarded by mu_; by name
};

}  // namespace braid
