#include "engine/ops/common/reduce.h"

#include <algorithm>

#include "engine/ops/common/joined_axes.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnTile = 4096;       // columns whose accumulators stay in the first-level cache
constexpr std::int64_t kPartElements = 65536;    // input elements of one part, at least
constexpr std::int64_t kLongestPartRows = 1024;  // rows added one after the other at most
constexpr std::int64_t kEnoughTasks = 16;

using Axis = JoinedAxes::Axis;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Offset of the index-th combination of `axes` (outermost first).
std::int64_t offset_of(const std::vector<Axis>& axes, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::size_t a = axes.size(); a-- > 0; index /= axes[a].size)
    offset += index % axes[a].size * axes[a].stride;
  return offset;
}

/// The input's axes and how the work is cut.
struct Plan : JoinedAxes {
  std::int64_t outputs = 1, outer_reduced = 1;
  // The reduced extent is counted in units: chunks of runs, or rows. A part is `part_units` of them.
  std::int64_t chunks = 1, units = 1, part_units = 1, parts = 1;
  std::int64_t tiles = 1;  // of a kept inner axis

  Plan(const Shape& shape, const std::vector<int>& axes);
};

Plan::Plan(const Shape& shape, const std::vector<int>& axes) : JoinedAxes(shape, axes) {
  outer_reduced = product(reduced);
  outputs = product(kept) * (inner_reduced ? 1 : inner);
  if (inner_reduced) {
    chunks = std::max<std::int64_t>(ceil_div(inner, kReduceChunk), 1);
    units = outer_reduced * chunks;
    if (inner * outer_reduced >= 2 * kPartElements)
      part_units = std::max<std::int64_t>(kPartElements / std::min(inner, kReduceChunk), 1);
    else
      part_units = units;
  } else {
    tiles = ceil_div(inner, kColumnTile);
    units = outer_reduced;
    const bool enough = product(kept) * tiles >= kEnoughTasks;
    part_units =
        enough ? kLongestPartRows
               : std::clamp<std::int64_t>(kPartElements / std::clamp<std::int64_t>(inner, 1, kColumnTile), 16,
                                          kLongestPartRows);
  }
  parts = std::max<std::int64_t>(ceil_div(units, std::max<std::int64_t>(part_units, 1)), 1);
}

template <class T>
class Reduction {
 public:
  Reduction(Plan plan, const ReduceLoops<T>& loops, T divisor)
      : plan_(std::move(plan)), loops_(loops), divisor_(divisor) {}

  std::size_t scratch_bytes() const {
    return plan_.parts > 1 ? static_cast<std::size_t>(plan_.parts * plan_.outputs) * sizeof(T) : 0;
  }

  void run(const KernelArgs& args, ThreadPool& pool) const {
    const T* x = args.in<T>(0);
    T* y = args.out<T>(0);
    T* partials = static_cast<T*>(args.scratch);
    if (plan_.outputs == 0) return;
    if (plan_.units == 0 || plan_.inner == 0) {
      std::fill(y, y + plan_.outputs, loops_.identity);
      divide(y, plan_.outputs);
    } else if (plan_.inner_reduced) {
      run_rows(x, y, partials, pool);
    } else {
      run_columns(x, y, partials, pool);
    }
  }

 private:
  void run_rows(const T* x, T* y, T* partials, ThreadPool& pool) const {
    const std::int64_t per_output = plan_.inner * plan_.outer_reduced;
    if (plan_.parts == 1) {
      pool.parallel_range(plan_.outputs, row_grain(per_output), [&](std::int64_t begin, std::int64_t end) {
        if (plan_.reduced.empty() && plan_.chunks == 1 && plan_.kept.size() <= 1) {
          loops_.rows(x + begin * plan_.inner, plan_.inner, end - begin, plan_.inner, y + begin);
        } else {
          for (std::int64_t o = begin; o < end; ++o) y[o] = part_of(x, o, 0);
        }
        divide(y + begin, end - begin);
      });
      return;
    }
    pool.parallel_for(plan_.outputs * plan_.parts, [&](std::int64_t task) {
      partials[task] = part_of(x, task / plan_.parts, task % plan_.parts);
    });
    loops_.combine_rows(partials, plan_.parts, plan_.outputs, plan_.parts, y);
    divide(y, plan_.outputs);
  }

  /// The reduction of the units of one part of one output.
  T part_of(const T* x, std::int64_t output, std::int64_t part) const {
    const T* base = x + offset_of(plan_.kept, output);
    const std::int64_t begin = part * plan_.part_units, end = std::min(plan_.units, begin + plan_.part_units);
    T result[2] = {loops_.identity, loops_.identity};
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t at = unit % plan_.chunks * kReduceChunk;
      loops_.rows(base + offset_of(plan_.reduced, unit / plan_.chunks) + at, 0, 1,
                  std::min(plan_.inner - at, kReduceChunk), &result[1]);
      loops_.combine_columns(&result[1], 0, 1, 1, &result[0]);
    }
    return result[0];
  }

  void run_columns(const T* x, T* y, T* partials, ThreadPool& pool) const {
    const std::int64_t kept = plan_.outputs / plan_.inner;
    pool.parallel_for(plan_.parts * kept * plan_.tiles, [&](std::int64_t task) {
      const std::int64_t tile = task % plan_.tiles, k = task / plan_.tiles % kept;
      const std::int64_t part = task / plan_.tiles / kept;
      const std::int64_t column = tile * kColumnTile, n = std::min(plan_.inner - column, kColumnTile);
      T* acc = (plan_.parts > 1 ? partials + part * plan_.outputs : y) + k * plan_.inner + column;
      std::fill(acc, acc + n, loops_.identity);
      add_rows(x + offset_of(plan_.kept, k) + column, part, n, acc);
      if (plan_.parts == 1) divide(acc, n);
    });
    if (plan_.parts == 1) return;
    pool.parallel_range(plan_.outputs, kColumnTile, [&](std::int64_t begin, std::int64_t end) {
      std::fill(y + begin, y + end, loops_.identity);
      loops_.combine_columns(partials + begin, plan_.outputs, plan_.parts, end - begin, y + begin);
      divide(y + begin, end - begin);
    });
  }

  void add_rows(const T* x, std::int64_t part, std::int64_t n, T* acc) const {
    const std::int64_t begin = part * plan_.part_units, end = std::min(plan_.units, begin + plan_.part_units);
    if (plan_.reduced.size() <= 1) {
      const std::int64_t stride = plan_.reduced.empty() ? 0 : plan_.reduced[0].stride;
      loops_.columns(x + begin * stride, stride, end - begin, n, acc);
      return;
    }
    for (std::int64_t row = begin; row < end; ++row)
      loops_.columns(x + offset_of(plan_.reduced, row), 0, 1, n, acc);
  }

  void divide(T* y, std::int64_t n) const {
    if (divisor_ == T(1)) return;
    for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] / divisor_;
  }

  Plan plan_;
  ReduceLoops<T> loops_;
  T divisor_;
};

}  // namespace

template <class T>
PreparedKernel prepare_reduce(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                              const ReduceLoops<T>& loops, T divisor) {
  Reduction<T> reduction(Plan(shape, axes), loops, divisor);
  PreparedKernel kernel;
  kernel.scratch_bytes = reduction.scratch_bytes();
  kernel.run = [reduction = std::move(reduction), pool = &c.pool](const KernelArgs& args) {
    reduction.run(args, *pool);
  };
  return kernel;
}

#define BRAID_INSTANTIATE(T)                                                                              \
  template PreparedKernel prepare_reduce<T>(const PrepareContext&, const Shape&, const std::vector<int>&, \
                                            const ReduceLoops<T>&, T);
BRAID_INSTANTIATE(float)
BRAID_INSTANTIATE(double)
BRAID_INSTANTIATE(std::int32_t)
BRAID_INSTANTIATE(std::int64_t)
BRAID_INSTANTIATE(std::uint8_t)
#undef BRAID_INSTANTIATE

}  // namespace braid
