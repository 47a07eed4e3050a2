#include "engine/ops/fused/region_tiles.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/init.h"
#include "base/random_formulas.h"
#include "engine/ops/fused/region_loads.h"

namespace braid {
namespace {

using fusion::Extent;
using fusion::Region;
using Kind = Region::Kind;

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// f.operator()<U>() for the unsigned integer of that size.
template <class F>
void with_bytes(std::size_t bytes, F f) {
  switch (bytes) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

bool lies_as_extent(const Region& region, const Region::Input& input) {
  return input.extent == Extent::Full && input.offset == 0 && input.by < 0 &&
         input.axes == fusion::contiguous_axes(region.elements(Extent::Full));
}

/// The thread's registers.
std::byte* registers_of(std::size_t bytes) {
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  thread_local Block block;
  if (block.bytes < bytes) {
    block.memory = std::make_unique_for_overwrite<std::byte[]>(bytes + kAlignment);
    block.bytes = bytes;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  return block.memory.get() + (aligned(address) - address);
}

}  // namespace

RegionTiles::RegionTiles(Region region) : region_(std::move(region)) {
  const std::int64_t columns = region_.columns;
  const Region::Step* const scan = region_.scan();
  const bool whole_rows = region_.reduces() || scan || columns < kTileElements;
  tile_columns_ = whole_rows ? columns : kTileElements;
  tile_rows_ = whole_rows ? std::clamp<std::int64_t>(kTileElements / std::max<std::int64_t>(columns, 1), 1,
                                                     std::max<std::int64_t>(region_.rows, 1))
                          : 1;
  if (scan) tile_rows_ = (tile_rows_ + scan->length - 1) / scan->length * scan->length;  // whole pieces
  row_tiles_ = (region_.rows + tile_rows_ - 1) / tile_rows_;
  column_tiles_ = (columns + tile_columns_ - 1) / std::max<std::int64_t>(tile_columns_, 1);
  for (const Region::Step& step : region_.steps) {
    const bool is_loop = step.kind == Kind::Apply || step.kind == Kind::Cast;
    loops_.push_back(is_loop ? fusion::loop_of(region_, step) : fusion::ElementLoop{});
    row_loops_.push_back(step.kind == Kind::Reduce ? row_loop_of(step) : nullptr);
  }
  place_registers();
}

std::int64_t RegionTiles::work() const {
  const auto steps = std::clamp<std::int64_t>(static_cast<std::int64_t>(region_.steps.size()) / 4, 1, 8);
  return tile_rows_ * tile_columns_ * steps;
}

/// By value, the last step that uses it; values of one element are used to the end.
std::vector<int> RegionTiles::last_uses() const {
  std::vector<int> last(static_cast<std::size_t>(region_.values()));
  for (int v = 0; v < region_.values(); ++v) {
    last[static_cast<std::size_t>(v)] = region_.extent_of(v) == Extent::One ? region_.values() : v;
    if (region_.is_input(v)) continue;
    for (const int operand : region_.step(v).operands) {
      int& at = last[static_cast<std::size_t>(operand)];
      at = std::max(at, v);
    }
  }
  return last;
}

std::size_t RegionTiles::take(std::vector<std::size_t>& free) {
  if (free.empty()) {
    bytes_ += register_bytes_;
    return bytes_ - register_bytes_;
  }
  const std::size_t offset = free.back();
  free.pop_back();
  return offset;
}

/// A register that this step reads for the last time and may write in the same place, as loops over elements
/// do; -1: none.
int RegionTiles::reusable_operand(int value, const std::vector<int>& last_use) const {
  if (region_.is_input(value) || region_.step(value).kind != Kind::Apply) return -1;
  for (const int operand : region_.step(value).operands) {
    const auto i = static_cast<std::size_t>(operand);
    if (last_use[i] == value && extents_[i] == Extent::Full &&
        extents_[static_cast<std::size_t>(value)] == Extent::Full && places_[i].where == Where::Register &&
        places_[i].element_bytes == places_[static_cast<std::size_t>(value)].element_bytes)
      return operand;
  }
  return -1;
}

void RegionTiles::place(int value, const std::vector<int>& last_use, std::vector<std::size_t>& free) {
  const auto v = static_cast<std::size_t>(value);
  Place& at = places_[v];
  at.element_bytes = dtype_size(region_.dtype_of(value));
  const auto output = std::find_if(region_.outputs.begin(), region_.outputs.end(),
                                   [&](const Region::Output& o) { return o.value == value; });
  if (output != region_.outputs.end()) output_of_[v] = static_cast<int>(output - region_.outputs.begin());
  if (region_.is_input(value) && lies_as_extent(region_, region_.inputs[v])) {
    at.where = Where::Input;
    at.index = v;
  } else if (const Extent extent = region_.extent_of(value);
             output_of_[v] >= 0 && (extent == Extent::Full || extent == Extent::Piece) && !output->is_part) {
    at.where = Where::Output;
    at.index = static_cast<std::size_t>(tensors_[static_cast<std::size_t>(output_of_[v])]);
  } else if (const int operand = reusable_operand(value, last_use); operand >= 0) {
    at.index = places_[static_cast<std::size_t>(operand)].index;
  } else {
    at.index = take(free);
  }
  if (!is_repeated_[v]) return;
  repeated_[v] = at;
  repeated_[v].index = take(free);
}

void RegionTiles::place_registers() {
  const auto values = static_cast<std::size_t>(region_.values());
  std::size_t largest = 1;
  for (int v = 0; v < region_.values(); ++v) largest = std::max(largest, dtype_size(region_.dtype_of(v)));
  register_bytes_ =
      aligned(static_cast<std::size_t>(std::max<std::int64_t>(tile_rows_ * tile_columns_, 1)) * largest);
  for (int v = 0; v < region_.values(); ++v) extents_.push_back(region_.extent_of(v));
  places_.resize(values);
  repeated_.resize(values);
  output_of_.assign(values, -1);
  tensors_ = region_.tensors();
  is_repeated_.assign(values, 0);
  for (const Region::Step& step : region_.steps)
    for (const int operand : step.operands)
      if (step.extent == Extent::Full && region_.extent_of(operand) == Extent::Row)
        is_repeated_[static_cast<std::size_t>(operand)] = 1;
  const std::vector<int> last_use = last_uses();
  std::vector<std::size_t> free;
  // First what stays from tile to tile, so that no other value comes before it in its register.
  for (int v = 0; v < region_.values(); ++v)
    if (region_.extent_of(v) == Extent::One) place(v, last_use, free);
  for (int v = 0; v < region_.values(); ++v) {
    if (region_.extent_of(v) != Extent::One) place(v, last_use, free);
    const int reused = reusable_operand(v, last_use);
    for (std::size_t i = 0; i <= static_cast<std::size_t>(v); ++i) {
      if (last_use[i] != v) continue;
      const bool goes_on =
          static_cast<int>(i) == reused && places_[i].index == places_[static_cast<std::size_t>(v)].index;
      if (places_[i].where == Where::Register && !goes_on) free.push_back(places_[i].index);
      if (is_repeated_[i]) free.push_back(repeated_[i].index);
    }
  }
}

RegionTiles::Tile RegionTiles::tile_at(std::int64_t index) const {
  Tile tile;
  tile.row = index / column_tiles_ * tile_rows_;
  tile.column = index % column_tiles_ * tile_columns_;
  tile.rows = std::min(tile_rows_, region_.rows - tile.row);
  tile.columns = std::min(tile_columns_, region_.columns - tile.column);
  return tile;
}

std::byte* RegionTiles::pointer(const Place& place, Extent extent, const Tile& tile,
                                const Memory& memory) const {
  if (place.where == Where::Register) return memory.registers + place.index;
  const std::int64_t at = extent == Extent::Full    ? tile.row * region_.columns + tile.column
                          : extent == Extent::Row   ? tile.row
                          : extent == Extent::Piece ? tile.row / region_.scan()->length * region_.columns
                                                    : 0;
  void* const base = place.where == Where::Input ? memory.inputs[place.index] : memory.outputs[place.index];
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(at) * place.element_bytes;
}

const void* RegionTiles::operand(int value, Extent extent, const Tile& tile, const Memory& memory) const {
  const Extent own = extents_[static_cast<std::size_t>(value)];
  const auto v = static_cast<std::size_t>(value);
  // A value of one element fills its register.
  return pointer(own == Extent::Row && extent == Extent::Full ? repeated_[v] : places_[v], own, tile, memory);
}

void RegionTiles::repeat_rows(int value, const Tile& tile, const Memory& memory) const {
  const auto v = static_cast<std::size_t>(value);
  if (!is_repeated_[v]) return;
  with_bytes(places_[v].element_bytes, [&]<class U>() {
    const auto* from = reinterpret_cast<const U*>(memory.registers + places_[v].index);
    auto* to = reinterpret_cast<U*>(memory.registers + repeated_[v].index);
    for (std::int64_t r = 0; r < tile.rows; ++r, to += tile.columns)
      std::fill(to, to + tile.columns, from[r]);
  });
}

void RegionTiles::load(int value, const Tile& tile, const Memory& memory) const {
  const Region::Input& input = region_.inputs[static_cast<std::size_t>(value)];
  const Place& to = place_of(value);
  if (to.where == Where::Input) return;
  const bool full = input.extent == Extent::Full;
  const std::int64_t begin = full ? tile.row * region_.columns + tile.column : tile.row;
  const fusion::Axes axes = input.axes.empty() ? fusion::Axes{{1, 0}} : fusion::Axes{};
  if (input.by >= 0)
    return with_bytes(to.element_bytes, [&]<class U>() {
      const auto pick = [&]<class I>(const I* by) {
        pick_rows(static_cast<const U*>(memory.inputs[value]), by, input.of, region_.columns, tile.row,
                  tile.rows, tile.column, tile.columns, reinterpret_cast<U*>(memory.registers + to.index));
      };
      const void* const by = memory.inputs[input.by];
      if (region_.inputs[static_cast<std::size_t>(input.by)].dtype == DType::Int64)
        pick(static_cast<const std::int64_t*>(by));
      else
        pick(static_cast<const std::int32_t*>(by));
    });
  with_bytes(to.element_bytes, [&]<class U>() {
    load_axes(static_cast<const U*>(memory.inputs[value]) + input.offset, axes.empty() ? input.axes : axes,
              begin, full ? tile.elements() : tile.rows, reinterpret_cast<U*>(memory.registers + to.index));
  });
  if (!full) repeat_rows(value, tile, memory);
}

void RegionTiles::compute(int value, std::int64_t count, Extent extent, const Tile& tile,
                          const Memory& memory) const {
  const Region::Step& step = region_.step(value);
  const auto s = static_cast<std::size_t>(value) - region_.inputs.size();
  std::byte* const to = pointer(place_of(value), extent, tile, memory);
  if (step.kind == Kind::Reduce) {
    row_loops_[s](operand(step.operands[0], Extent::Full, tile, memory), tile.rows, tile.columns, to);
    return;
  }
  if (step.kind == Kind::Scan)
    return (step.last ? fold_rows : scan_rows)(step, tile.rows, tile.columns,
                                               operand(step.operands[0], Extent::Full, tile, memory), to);
  if (step.kind == Kind::Uniform) return draw(step, count, tile, memory, to);
  constexpr std::size_t kMostOperands = 4;
  const void* operands[kMostOperands] = {};
  for (std::size_t i = 0; i < step.operands.size(); ++i)
    operands[i] = operand(step.operands[i], extent, tile, memory);
  loops_[s](operands, to, count);
}

/// A tile is a range of the grid's elements, or of its rows.
void RegionTiles::draw(const Region::Step& step, std::int64_t count, const Tile& tile, const Memory& memory,
                       std::byte* to) const {
  const RngKey key{random::key_value(memory.params->seed ^ step.salt, step.bits, memory.params->step)};
  const std::int64_t first =
      step.extent == Extent::Full ? tile.row * region_.columns + tile.column : tile.row;
  fill_uniform01(key, static_cast<std::uint64_t>(first),
                 std::span(reinterpret_cast<float*>(to), static_cast<std::size_t>(count)));
}

/// Values of one element, repeated over a whole tile.
void RegionTiles::prepare_ones(const Memory& memory) const {
  const Tile tile{0, tile_rows_, 0, tile_columns_};
  for (int v = 0; v < region_.values(); ++v) {
    if (extents_[static_cast<std::size_t>(v)] != Extent::One) continue;
    std::byte* const to = memory.registers + place_of(v).index;
    if (!region_.is_input(v) && region_.step(v).kind != Kind::Constant) {
      compute(v, 1, Extent::One, tile, memory);
    }
    with_bytes(place_of(v).element_bytes, [&]<class U>() {
      U one{};
      if (region_.is_input(v))
        one = static_cast<const U*>(memory.inputs[v])[region_.inputs[static_cast<std::size_t>(v)].offset];
      else if (region_.step(v).kind == Kind::Constant)
        std::memcpy(&one, &region_.step(v).bits, sizeof one);
      else
        std::memcpy(&one, to, sizeof one);
      auto* const all = reinterpret_cast<U*>(to);
      std::fill(all, all + tile.elements(), one);
    });
  }
}

void RegionTiles::run_tile(const Tile& tile, const Memory& memory) const {
  for (int v = 0; v < region_.values(); ++v) {
    const Extent extent = extents_[static_cast<std::size_t>(v)];
    if (extent == Extent::One) continue;
    if (region_.is_input(v)) {
      load(v, tile, memory);
      continue;
    }
    compute(v, extent == Extent::Full ? tile.elements() : tile.rows, extent, tile, memory);
    if (extent == Extent::Full) store_part(v, tile, memory);
    if (extent == Extent::Row) {
      repeat_rows(v, tile, memory);
      store_rows(v, tile, memory);
    }
  }
}

/// A value of rows that is an output; tiles beside each other have the same.
void RegionTiles::store_rows(int value, const Tile& tile, const Memory& memory) const {
  const auto v = static_cast<std::size_t>(value);
  if (output_of_[v] < 0 || tile.column != 0) return;
  const std::size_t bytes = places_[v].element_bytes;
  std::memcpy(static_cast<std::byte*>(memory.outputs[tensors_[static_cast<std::size_t>(output_of_[v])]]) +
                  static_cast<std::size_t>(tile.row) * bytes,
              memory.registers + places_[v].index, static_cast<std::size_t>(tile.rows) * bytes);
}

/// A value that is columns of an output.
void RegionTiles::store_part(int value, const Tile& tile, const Memory& memory) const {
  const auto v = static_cast<std::size_t>(value);
  if (output_of_[v] < 0) return;
  const Region::Output& output = region_.outputs[static_cast<std::size_t>(output_of_[v])];
  if (!output.is_part) return;
  const std::size_t bytes = places_[v].element_bytes;
  const std::byte* from = memory.registers + places_[v].index;
  auto* const to = static_cast<std::byte*>(memory.outputs[tensors_[static_cast<std::size_t>(output_of_[v])]]);
  const std::size_t copied = static_cast<std::size_t>(tile.columns) * bytes;
  for (std::int64_t r = 0; r < tile.rows; ++r, from += copied)
    std::memcpy(
        to + static_cast<std::size_t>((tile.row + r) * output.width + output.offset + tile.column) * bytes,
        from, copied);
}

void RegionTiles::run(void* const* inputs, void* const* outputs, const StepParams* params, std::int64_t begin,
                      std::int64_t end) const {
  const Memory memory{registers_of(bytes_), inputs, outputs, params};
  prepare_ones(memory);
  for (std::int64_t index = begin; index < end; ++index) {
    const Tile tile = tile_at(index);
    run_tile(tile, memory);
  }
}

}  // namespace braid
