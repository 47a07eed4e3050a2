// One server's part of a dense table: blocks of values and slots. The blocks are the unit of work of the
// table threads; their borders depend on the number of elements only, and updates work element by element,
// so the bits depend on neither threads nor servers.
//
// Thread rule: each block is used by one thread at a time, its owner; different blocks by different threads
// at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/optim.h"
#include "ps/table/float_run.h"

namespace braid::ps {

inline constexpr std::int64_t kDenseBlockElements = std::int64_t{1} << 18;

class DenseTable {
 public:
  /// `elements` zeros, slots at their initial values.
  DenseTable(std::int64_t elements, const OptimizerSpec& optimizer);

  std::int64_t elements() const { return elements_; }
  std::int64_t blocks() const { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t block_begin(std::int64_t block) const { return block * kDenseBlockElements; }
  int slots() const { return slots_; }

  /// Replaces the values of a block. `values`: the whole part, [elements()] f32.
  void assign(std::int64_t block, const float* values);
  void assign_slot(std::int64_t block, int slot, const float* values);

  /// One update by the sum of `gradients` (each the whole part), added from first to last. REQUIRES: not
  /// empty.
  void apply(std::int64_t block, const PreparedUpdate& update, std::span<const float* const> gradients);

  /// The values (or a slot) of a block, unchanged for as long as the hold lives.
  FloatRun::ReadHold read(std::int64_t block) const;
  FloatRun::ReadHold read_slot(std::int64_t block, int slot) const;

 private:
  std::int64_t block_size(std::int64_t block) const;

  std::int64_t elements_;
  int slots_;
  std::vector<std::vector<FloatRun>> blocks_;  // [block][0: values, 1 + k: slot k]
};

}  // namespace braid::ps
