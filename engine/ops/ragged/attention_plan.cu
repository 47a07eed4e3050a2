#include <limits>
#include <string>

#include "engine/ops/ragged/attention_args.cuh"

namespace braid::cuda::attention {
namespace {

constexpr int kPlanThreads = 1024;
constexpr int kWarps = kPlanThreads / 32;
constexpr std::int64_t kLongestRow = 1 << 30;  // of 32 bits, with room for sums of two

struct Targets {
  const void* at;  // null: no candidates
  bool are_wide;
  std::int64_t max_length;  // 0: none

  __device__ std::int64_t of(std::int64_t row) const {
    if (!at) return 0;
    return are_wide ? static_cast<const std::int64_t*>(at)[row] : static_cast<const std::int32_t*>(at)[row];
  }
};

/// The row, or an empty one where it is bad, which is reported.
__device__ PlannedRow checked_row(const DeviceOffsets& offsets, const Targets& targets, std::int64_t row,
                                  StepStatus* status, int op) {
  const PlannedRow empty{};
  offsets.check(row, status, op);
  if (!offsets.is_good(row)) return empty;
  const std::int64_t length = offsets.length(row), candidates = targets.of(row);
  const std::int64_t most =
      targets.max_length > 0 && targets.max_length < kLongestRow ? targets.max_length : kLongestRow;
  if (length > most) {
    report(status, op, StatusCode::IndexOutOfRange, length, most + 1);
    return empty;
  }
  if (candidates < 0 || candidates > length) {
    report(status, op, StatusCode::IndexOutOfRange, candidates, length + 1);
    return empty;
  }
  return {offsets.begin(row), static_cast<std::int32_t>(length),
          static_cast<std::int32_t>(length - candidates)};
}

__device__ int tiles_of(const PlannedRow& row) { return (row.length + kPlanTile - 1) / kPlanTile; }
/// Rows of more tiles have a smaller class, those of very many the same.
__device__ int class_of(const PlannedRow& row) {
  const int tiles = tiles_of(row);
  return kPlanThreads - 1 - (tiles < kPlanThreads ? tiles : kPlanThreads - 1);
}

/// The sum of `value` over this thread and those before it.
__device__ int sum_to_here(int value, int (&of_warps)[kWarps]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0U, value, step);
    if (lane >= step) value += before;
  }
  __syncthreads();  // of_warps may be in use
  if (lane == 31) of_warps[warp] = value;
  __syncthreads();
  for (int w = 0; w < warp; ++w) value += of_warps[w];
  return value;
}

/// One block: rows are counted by class, and put where those of their class begin. Which of a class comes
/// first is open; no result depends on it.
__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(Plan plan, DeviceOffsets offsets, Targets targets, StepStatus* status, int op) {
  __shared__ int places[kPlanThreads];
  __shared__ int of_warps[kWarps];
  __shared__ unsigned long long longest;
  __shared__ int tiles_before;
  const int thread = static_cast<int>(threadIdx.x);
  places[thread] = 0;
  if (thread == 0) {
    longest = 0;
    tiles_before = 0;
  }
  __syncthreads();
  for (std::int64_t r = thread; r < plan.count; r += kPlanThreads) {
    const PlannedRow row = checked_row(offsets, targets, r, status, op);
    atomicAdd(&places[class_of(row)], 1);
    atomicMax(&longest, static_cast<unsigned long long>(row.length));
  }
  __syncthreads();
  const int in_class = places[thread];
  const int up_to_class = sum_to_here(in_class, of_warps);
  places[thread] = up_to_class - in_class;
  __syncthreads();
  for (std::int64_t r = thread; r < plan.count; r += kPlanThreads) {
    const PlannedRow row = checked_row(offsets, targets, r, status, op);
    plan.rows[atomicAdd(&places[class_of(row)], 1)] = row;
  }
  __syncthreads();
  for (std::int64_t first = 0; first < plan.count; first += kPlanThreads) {
    const std::int64_t r = first + thread;
    const int tiles = r < plan.count ? tiles_of(plan.rows[r]) : 0;
    const int up_to_here = sum_to_here(tiles, of_warps);
    const int before = tiles_before;
    if (r < plan.count) plan.first_tiles[r] = before + up_to_here - tiles;
    __syncthreads();
    if (thread == kPlanThreads - 1) tiles_before = before + up_to_here;
    __syncthreads();
  }
  for (int r = thread / 32; r < plan.count; r += kWarps)
    for (int tile = thread % 32; tile < tiles_of(plan.rows[r]); tile += 32)
      plan.tile_rows[plan.first_tiles[r] + tile] = r;
  if (thread == 0) {
    plan.first_tiles[plan.count] = tiles_before;
    plan.taken[0] = plan.taken[1] = 0;
    *plan.longest = longest > 0 ? static_cast<std::int64_t>(longest) : 1;
  }
}

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    zero_room_kernel(Unit* out, DeviceOffsets offsets, std::int64_t units, std::int64_t step) {
  const std::int64_t first = offsets.used() * units, all = offsets.values * units;
  for (std::int64_t i = first + grid_index(); i < all; i += grid_size())
    out[i / units * step + i % units] = Unit{};
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Planner::Planner(const PrepareContext& c, const braid::attention::Inputs& in)
    : values_(c.inputs[0].shape[0]),
      rows_(c.inputs[static_cast<std::size_t>(in.offsets())].shape[0] - 1),
      max_length_(c.attr("max_length", std::int64_t{0})),
      offsets_(c, in.offsets(), values_),
      targets_(in.targets ? in.of_targets() : -1) {
  if (in.targets) are_wide_ = c.inputs[static_cast<std::size_t>(in.of_targets())].dtype == DType::Int64;
}

std::size_t Planner::bytes() const {
  const auto rows = static_cast<std::size_t>(rows_);
  return aligned(rows * sizeof(PlannedRow)) + aligned((rows + 1) * sizeof(std::int32_t)) +
         aligned(static_cast<std::size_t>(most_tiles()) * sizeof(std::int32_t)) +
         aligned(sizeof(std::int64_t) + 2 * sizeof(unsigned));
}

Plan Planner::make(const KernelArgs& a, void* memory) const {
  auto* at = static_cast<std::byte*>(memory);
  const auto rows = static_cast<std::size_t>(rows_);
  Plan plan{};
  plan.rows = reinterpret_cast<PlannedRow*>(at);
  at += aligned(rows * sizeof(PlannedRow));
  plan.first_tiles = reinterpret_cast<std::int32_t*>(at);
  at += aligned((rows + 1) * sizeof(std::int32_t));
  plan.tile_rows = reinterpret_cast<std::int32_t*>(at);
  at += aligned(static_cast<std::size_t>(most_tiles()) * sizeof(std::int32_t));
  plan.longest = reinterpret_cast<std::int64_t*>(at);
  plan.taken = reinterpret_cast<unsigned*>(plan.longest + 1);
  plan.count = static_cast<std::int32_t>(rows_);
  const Targets targets{targets_ < 0 ? nullptr : a.inputs[targets_], are_wide_, max_length_};
  launch(plan_kernel, 1, kPlanThreads, 0, a.stream, plan, offsets_.of(a), targets, a.status, a.op);
  return plan;
}

unsigned checked_blocks(std::int64_t blocks) {
  if (blocks > std::numeric_limits<std::int32_t>::max())
    throw InvalidArgument("attention over so many values and heads takes " + std::to_string(blocks) +
                          " blocks, more than a launch has");
  return static_cast<unsigned>(blocks);
}

void zero_room(const KernelArgs& a, const DeviceOffsets& offsets, void* out, std::size_t row,
               std::size_t step) {
  if (offsets.values == 0 || row == 0) return;
  with_row_unit(reinterpret_cast<std::uintptr_t>(out) | row | step, [&]<class Unit>() {
    const auto units = static_cast<std::int64_t>(row / sizeof(Unit));
    launch(zero_room_kernel<Unit>, blocks_for(offsets.values * units), kThreads, 0, a.stream,
           static_cast<Unit*>(out), offsets, units, static_cast<std::int64_t>(step / sizeof(Unit)));
  });
}

}  // namespace braid::cuda::attention
