// How the CPU runs a fused region: over tiles, parts of the grid of about kTileElements elements that stay in
// the first-level cache, step by step. Each step is the vector loop of the op's own kernel over a tile, so a
// region has the bits of its nodes one by one; rows are reduced by the loops of reduce_loops.h, a whole row
// in a tile.
//
// Values live in registers, arrays of a tile, that are used again when nobody reads a value any more; inputs
// that lie as the grid and outputs are read and written where they are. Registers are a thread's own and stay
// with it: the first run on a thread allocates. Thread rule: run() may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/fusion/rules.h"
#include "engine/ops/fused/region_loops.h"

namespace braid {

inline constexpr std::int64_t kTileElements = 2048;

class RegionTiles {
 public:
  /// Throws: InvalidArgument for a step that has no loop.
  explicit RegionTiles(fusion::Region region);

  std::int64_t tiles() const { return row_tiles_ * column_tiles_; }
  /// Elements and steps of a tile: how much work it is.
  std::int64_t work() const;
  /// `params`: of random numbers; null where the region has none.
  void run(void* const* inputs, void* const* outputs, const StepParams* params, std::int64_t begin,
           std::int64_t end) const;

 private:
  enum class Where { Register, Input, Output };
  struct Place {
    Where where = Where::Register;
    std::size_t index = 0;  // a register's first byte; an input or output
    std::size_t element_bytes = 4;
  };
  struct Tile {
    std::int64_t row = 0, rows = 0, column = 0, columns = 0;
    std::int64_t elements() const { return rows * columns; }
  };
  /// Where a run's memory is.
  struct Memory {
    std::byte* registers;
    void* const* inputs;
    void* const* outputs;
    const StepParams* params;
  };

  void place_registers();
  void place(int value, const std::vector<int>& last_use, std::vector<std::size_t>& free);
  int reusable_operand(int value, const std::vector<int>& last_use) const;
  std::vector<int> last_uses() const;
  std::size_t take(std::vector<std::size_t>& free);

  Tile tile_at(std::int64_t index) const;
  std::byte* pointer(const Place& place, fusion::Extent extent, const Tile& tile, const Memory& memory) const;
  /// The value, repeated to `extent` if it is smaller.
  const void* operand(int value, fusion::Extent extent, const Tile& tile, const Memory& memory) const;
  void prepare_ones(const Memory& memory) const;
  void run_tile(const Tile& tile, const Memory& memory) const;
  void load(int value, const Tile& tile, const Memory& memory) const;
  void compute(int value, std::int64_t count, fusion::Extent extent, const Tile& tile,
               const Memory& memory) const;
  void draw(const fusion::Region::Step& step, std::int64_t count, const Tile& tile, const Memory& memory,
            std::byte* to) const;
  void repeat_rows(int value, const Tile& tile, const Memory& memory) const;
  void store_rows(int value, const Tile& tile, const Memory& memory) const;
  void store_part(int value, const Tile& tile, const Memory& memory) const;
  const Place& place_of(int value) const { return places_[static_cast<std::size_t>(value)]; }

  fusion::Region region_;
  std::int64_t tile_rows_ = 1, tile_columns_ = 1, row_tiles_ = 1, column_tiles_ = 1;
  std::size_t register_bytes_ = 0, bytes_ = 0;
  std::vector<Place> places_;               // by value
  std::vector<Place> repeated_;             // of Row values that are operands of Full steps
  std::vector<char> is_repeated_;           // by value
  std::vector<int> output_of_;              // by value: the output that it is, or -1
  std::vector<int> tensors_;                // by output
  std::vector<fusion::Extent> extents_;     // by value
  std::vector<fusion::ElementLoop> loops_;  // by step
  std::vector<RowLoop> row_loops_;          // by step
};

}  // namespace braid
