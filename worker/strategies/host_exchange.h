// The exchange of blocks for each rank on hosts: of each of several tensors [ranks, C, ...], what is of use
// of block r goes to rank r, in one message for each pair. braid.AllToAll says what is of use (hybrid_ops.h).
// Thread rule: const after construction; run() of one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/ir/op.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

class HostExchange {
 public:
  /// Of a node whose first `parts` inputs are exchanged; with as many inputs as parts these are lists of
  /// rows, padded with -1, else lists of what is sent and received follow. `pads`: lists that come are
  /// padded. The communicator outlives it. Fails where the blocks are not for its ranks.
  HostExchange(const PrepareContext& c, std::size_t parts, comm::Communicator& communicator,
               std::chrono::nanoseconds deadline, bool pads = true);

  /// For what is sent and what comes, at the beginning of the kernel's.
  std::size_t scratch_bytes() const { return ranks_ == 1 ? 0 : 2 * ((bytes_ + 63) / 64 * 64); }
  /// [ranks, parts].
  using Counts = std::vector<std::int64_t>;
  /// Writes the first `parts` outputs. Result: how many rows came. Throws: what the communicator throws;
  /// InvalidArgument where a rank sends more rows than there is room for.
  Counts run(const KernelArgs& a) const;

 private:
  /// One x of an exchange.
  struct Part {
    std::int64_t capacity = 0;
    std::size_t row_bytes = 0;

    std::size_t block_bytes() const { return static_cast<std::size_t>(capacity) * row_bytes; }
  };

  Counts counts(const KernelArgs& a, std::size_t first) const;
  void check(const Counts& received) const;
  Counts words(const Counts& counts) const;
  template <class Move>
  void move(const Counts& counts, char* packed, void* const* blocks, const Move& one) const;
  void pad(const Counts& received, const KernelArgs& a, int byte) const;

  comm::Communicator& communicator_;
  const std::chrono::nanoseconds deadline_;
  const bool counted_, fills_, pads_;
  const int fill_byte_;
  std::int64_t ranks_ = 1;
  std::vector<Part> parts_;
  std::size_t bytes_ = 0;  // of all parts
};

/// How many numbers a padded block begins with that are not negative.
std::int64_t used_of(const std::int64_t* block, std::int64_t capacity);

}  // namespace braid::worker
