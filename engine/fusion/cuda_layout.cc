#include "engine/fusion/cuda_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace braid::fusion {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;            // of a block
constexpr std::int64_t kMostPlaces = 8;       // of a thread, so that a row's values stay in registers
constexpr std::int64_t kManyPlaces = 16;      // where registers hold them: a warp for a row, not a block
constexpr std::int64_t kFewValues = 8;        // that live at a time, of which registers hold so many
constexpr std::int64_t kRegisters = 65536;    // of a processor
constexpr std::int64_t kMostRegisters = 248;  // of a thread, for values
constexpr std::int64_t kSinglePlaces = 4;     // of a thread whose places lie apart
constexpr std::int64_t kFewBlocks = 4 * 132;
constexpr std::int64_t kBusyThreads = 132 * 2048;  // that a device has at once, or some more
constexpr std::size_t kLoadBytes = 16;             // of one instruction
constexpr std::size_t kVectorBytes = 32;           // of the widest type: two loads

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// As many places as the narrowest input or output has in one load; a row's number of columns divides into
/// vectors.
int widest_vector(const Region& region) {
  std::size_t narrowest = 8, widest = 1;
  const auto see = [&](int value) {
    if (region.extent_of(value) != Extent::Full) return;
    narrowest = std::min(narrowest, dtype_size(region.dtype_of(value)));
    widest = std::max(widest, dtype_size(region.dtype_of(value)));
  };
  for (std::size_t i = 0; i < region.inputs.size(); ++i) see(static_cast<int>(i));
  for (const Region::Output& output : region.outputs) see(output.value);
  auto vector = static_cast<int>(std::min({kLoadBytes / narrowest, kVectorBytes / widest, std::size_t{8}}));
  const auto fits = [&](const Region::Output& output) {
    return !output.is_part || (output.offset % vector == 0 && output.width % vector == 0);
  };
  while (region.columns % vector != 0 || !std::all_of(region.outputs.begin(), region.outputs.end(), fits))
    vector /= 2;
  return vector;
}

/// The most values of places that are needed at a time, when steps run in their order.
std::int64_t most_live(const Region& region) {
  std::vector<int> last(static_cast<std::size_t>(region.values()), -1);
  for (int v = 0; v < region.values(); ++v) {
    if (region.is_input(v)) continue;
    for (const int operand : region.step(v).operands) last[static_cast<std::size_t>(operand)] = v;
  }
  for (const Region::Output& output : region.outputs)
    last[static_cast<std::size_t>(output.value)] = region.values();
  std::int64_t most = 0;
  for (int now = 0; now < region.values(); ++now) {
    std::int64_t live = 0;
    for (int v = 0; v <= now; ++v)
      live += region.extent_of(v) == Extent::Full && last[static_cast<std::size_t>(v)] >= now;
    most = std::max(most, live);
  }
  return most;
}

std::int64_t column_sums(const Region& region) {
  return std::count_if(region.steps.begin(), region.steps.end(),
                       [](const Region::Step& step) { return step.kind == Region::Kind::Columns; });
}

}  // namespace

CudaLayout::CudaLayout(const Region& region)
    : by_rows(region.reduces() || region.sums_columns()),
      loops(region.sums_columns()),
      walks(region.scan() != nullptr),
      threads(kThreads),
      vector(walks ? 1 : widest_vector(region)) {
  if (by_rows)
    spread_rows(region);
  else if (walks)
    spread_pieces(region);
  else
    spread_places(region);
}

/// Threads beside each other have columns beside each other. The places of a thread at a time, rows below
/// each other, are loaded together.
void CudaLayout::spread_pieces(const Region& region) {
  constexpr int kFewThreads = 128;  // of a block, so that all processors have some
  const std::int64_t length = region.scan()->length;
  threads = kFewThreads;
  places = std::min(kMostPlaces, length);
  while (length % places != 0 && places > kMostPlaces / 2) --places;  // rather than some places for nothing
  if (length % places != 0) places = std::min(kMostPlaces, length);
  blocks = ceil_div(region.rows / length * region.columns, threads);
}

void CudaLayout::spread_places(const Region& region) {
  const std::int64_t n = region.rows * region.columns;
  // The key of random numbers is made once a thread.
  const std::int64_t most =
      std::max<std::int64_t>(vector, kSinglePlaces) * (region.uniforms().empty() ? 1 : 4);
  while (places < most && ceil_div(n, threads * places * 2) >= kFewBlocks) places *= 2;
  vector = static_cast<int>(std::min<std::int64_t>(vector, places));
  blocks = ceil_div(n, threads * places);
}

void CudaLayout::spread_rows(const Region& region) {
  if (region.columns > kLongestRow)
    throw InvalidArgument(
        fmt::format("a kernel reduces rows, or sums columns, of at most {} elements, not of {}", kLongestRow,
                    region.columns));
  const auto threads_for = [&] {  // a power of two, up to a warp
    int count = 1;
    while (count < std::min<std::int64_t>(ceil_div(region.columns, vector), kWarp)) count *= 2;
    return count;
  };
  // Few rows would leave the device idle: more threads take one, with fewer places each.
  while (vector > 1 && threads_for() < kWarp && region.rows * threads_for() < kBusyThreads / 2) vector /= 2;
  const std::int64_t vectors = ceil_div(region.columns, vector);
  const bool is_busy = region.rows * kWarp >= kBusyThreads / 2;
  // Of halves functions are short, so values are all that registers are needed for.
  const bool of_halves = region.touches_halves();
  const std::int64_t live = most_live(region), kept = live + column_sums(region);
  const bool many = is_busy && (of_halves ? kept * kManyPlaces <= kMostRegisters : live <= kFewValues);
  const std::int64_t most = many ? kManyPlaces : kMostPlaces;
  if (!region.reduces() && vectors > kWarp && vectors <= kMostThreads) {
    row_threads = static_cast<int>(ceil_div(vectors, kWarp) * kWarp);  // nothing is added up along rows
    threads = row_threads * std::max(kThreads / row_threads, 1);       // and a block's rows are added up
  } else if (region.columns <= kWarp * most) {
    row_threads = threads_for();
  } else {
    const std::int64_t least = ceil_div(vectors, kMostPlaces / vector);
    row_threads = static_cast<int>(ceil_div(least, kWarp) * kWarp);
    threads = row_threads;
  }
  places = vector * ceil_div(vectors, row_threads);
  blocks = ceil_div(region.rows, threads / row_threads);
  // Each block's sums are written and read again: blocks take some rows, unless few are left then. They are
  // all there at once where it is known how many that is: some that come late would work alone.
  constexpr std::int64_t kParts = 8, kProcessors = 132, kLeast = 2 * kProcessors;
  if (is_busy && of_halves) choose_resident(kept);
  const std::int64_t wave = resident > 0 ? resident * kProcessors : kBusyThreads / threads;
  if (loops) blocks = std::min(blocks, std::clamp(blocks / kParts, kLeast, std::max(wave, kLeast)));
}

/// Registers for seven tenths of the values, and blocks that fill a processor with so many: measured on an
/// H200, fewer leave memory idle, and more keep what was loaded in local memory. What a thread needs besides
/// values, addresses and what functions compute with, is a part of the least.
void CudaLayout::choose_resident(std::int64_t values) {
  constexpr std::int64_t kLeastRegisters = 64, kMostThreadsOfProcessor = 2048;
  const std::int64_t each = std::max(values * places * 7 / 10, kLeastRegisters) * threads;
  resident =
      static_cast<int>(std::clamp<std::int64_t>(kRegisters / each, 1, kMostThreadsOfProcessor / threads));
}

VectorAccess vector_access(const Axes& axes, int vector, std::int64_t offset) {
  if (axes.empty()) return VectorAccess::Same;
  const Axis& inner = axes.back();
  if (vector == 1 || inner.size % vector != 0) return VectorAccess::Apart;
  if (inner.stride == 0) return VectorAccess::Same;
  const auto fits = [&](const Axis& axis) { return axis.stride % vector == 0; };
  return inner.stride == 1 && offset % vector == 0 && std::all_of(axes.begin(), axes.end() - 1, fits)
             ? VectorAccess::Together
             : VectorAccess::Apart;
}

}  // namespace braid::fusion
