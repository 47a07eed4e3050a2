// One direction of bytes between this rank and a peer during one operation: which memory may be moved next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace braid::comm {

class Flow {
 public:
  enum class Direction { Send, Receive };
  Flow(int peer, Direction direction) : peer_(peer), direction_(direction) {}
  virtual ~Flow() = default;
  int peer() const { return peer_; }
  Direction direction() const { return direction_; }

  /// What can be moved now; empty while it waits for another flow.
  virtual std::span<std::byte> window() = 0;
  /// The first `bytes` of the window were moved.
  virtual void moved(std::size_t bytes) = 0;
  virtual bool done() const = 0;
  /// Elements of this flow, where they are not those of the whole operation: both ends must mean as many.
  std::optional<std::int64_t> count;

 private:
  int peer_;
  Direction direction_;
};

/// A contiguous array.
class ArrayFlow final : public Flow {
 public:
  static ArrayFlow send(int peer, const void* data, std::size_t bytes) {
    return {peer, Direction::Send, const_cast<void*>(data), bytes};
  }
  static ArrayFlow receive(int peer, void* data, std::size_t bytes) {
    return {peer, Direction::Receive, data, bytes};
  }

  std::span<std::byte> window() override { return left_; }
  void moved(std::size_t bytes) override { left_ = left_.subspan(bytes); }
  bool done() const override { return left_.empty(); }

 private:
  ArrayFlow(int peer, Direction direction, void* data, std::size_t bytes)
      : Flow(peer, direction), left_(static_cast<std::byte*>(data), bytes) {}
  std::span<std::byte> left_;
};

}  // namespace braid::comm
