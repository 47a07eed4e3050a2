// Which kernel reduces: a thread for each output where little flows into it; a warp or block for each where
// the innermost axis is reduced, so that neighbours are read together; columns (reduce.cuh) where it is kept.
// Rows that are added up with others, as those of a channel are (NCHW), are reduced one by one first.
#include "engine/ops/common/cuda/axis_reduce.h"

#include <algorithm>
#include <utility>

#include "engine/ops/common/cuda/axes.cuh"
#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/common/joined_axes.h"

namespace braid::cuda {
namespace {

/// Where the last stage puts results.
template <class C, class T>
struct Finish {
  T* y;
  T divisor;
  __device__ void operator()(std::int64_t output, C value) const {
    const T result = static_cast<T>(value);
    y[output] = divisor == T(1) ? result : static_cast<T>(result / divisor);
  }
};

/// Elements that lie `stride` apart, as Op takes them in.
template <class Op, class C>
struct MappedElements {
  const C* first;
  std::int64_t stride;
  __device__ C operator()(std::int64_t i) const {
    C element = first[i * stride];
    Op::map(element);
    return element;
  }
};

/// Puts base[reduced(r)] into sum for r = begin, begin + step, ... below end.
template <class Op, class C>
__device__ void add_elements(const C* base, const DeviceAxes& reduced, std::int64_t begin, std::int64_t end,
                             std::int64_t step, C& sum) {
  if (reduced.count == 1)
    return add_strided<typename Op::Combine>(MappedElements<Op, C>{base, reduced.stride[0]}, begin, end, step,
                                             sum);
  for (std::int64_t r = begin; r < end; r += step) {
    C element = base[reduced.offset(r)];
    Op::map(element);
    Op::apply(sum, element);
  }
}

/// y[o] = the reduction of x[kept(o) + reduced(r)] over r < count.
template <class Op, class C, class Store>
__global__ void each_kernel(const C* x, DeviceAxes kept, DeviceAxes reduced, std::int64_t outputs,
                            std::int64_t count, Store store) {
  for (std::int64_t o = grid_index(); o < outputs; o += grid_size()) {
    const C* base = x + kept.offset(o);
    C sum = Op::template identity<C>();
    add_elements<Op>(base, reduced, 0, count, 1, sum);
    store(o, sum);
  }
}

/// As above, by a warp (kBlock false) or a block for each part of an output; result p of output o is
/// store(o * parts + p). `packs`: the reduced elements are contiguous and begin at 16 bytes.
template <class Op, bool kBlock, class C, class Store>
__global__ void __launch_bounds__(1024)
    rows_kernel(const C* x, DeviceAxes kept, DeviceAxes reduced, std::int64_t outputs, std::int64_t count,
                std::int64_t parts, std::int64_t part_count, bool packs, Store store) {
  const int group = kBlock ? static_cast<int>(blockDim.x) : 32;
  const int lane = static_cast<int>(threadIdx.x) % group;
  const std::int64_t tasks = outputs * parts;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (static_cast<int>(blockDim.x) / group);
  for (std::int64_t task = grid_index() / group; task < tasks; task += step) {
    const std::int64_t o = parts == 1 ? task : task / parts, part = task - o * parts;
    const std::int64_t begin = part * part_count;
    const std::int64_t end = begin + part_count < count ? begin + part_count : count;
    const C* base = x + kept.offset(o);
    C sum = Op::template identity<C>();
    if (packs) {
      constexpr int kCount = kPackOf<C>, kTogether = 4;
      const auto* from = reinterpret_cast<const Pack<C, kCount>*>(base);
      for (std::int64_t i = begin / kCount + lane; i < end / kCount; i += kTogether * group) {
        Pack<C, kCount> pack[kTogether];
#pragma unroll
        for (int k = 0; k < kTogether; ++k)
          if (i + k * group < end / kCount) pack[k] = from[i + k * group];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          if (i + k * group >= end / kCount) break;
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            Op::map(pack[k].at[e]);
            Op::apply(sum, pack[k].at[e]);
          }
        }
      }
    } else {
      add_elements<Op>(base, reduced, begin + lane, end, group, sum);
    }
    using Combine = typename Op::Combine;
    sum = kBlock ? block_reduce<Combine>(sum) : warp_reduce<Combine>(sum);
    if (lane == 0) store(task, sum);
  }
}

/// The columns of a tensor of which one axis is reduced.
template <class Op, class C>
struct AxisLoad {
  const C* x;
  DeviceAxes kept;
  std::int64_t stride;
  __device__ MappedElements<Op, C> operator()(std::int64_t outer, std::int64_t column) const {
    return {x + kept.offset(outer) + column, stride};
  }
};

constexpr std::int64_t kBlocks = 132;  // about as many as there are multiprocessors

/// How rows are cut: threads of the group of an output, and parts.
struct RowCut {
  unsigned group = 32;
  std::int64_t parts = 1, part_count = 0;

  RowCut(std::int64_t outputs, std::int64_t count, bool may_split) : part_count(count) {
    constexpr std::int64_t kSplit = 16384, kPart = 8192, kAlign = 16;
    if (count > 4096 || (count > 256 && outputs < 8 * kBlocks)) group = count > 4096 ? 512 : 256;
    if (count > 8192 && outputs < kBlocks) group = 1024;
    if (!may_split || count <= kSplit || outputs >= kBlocks) return;
    parts = std::min((count + kPart - 1) / kPart, (2 * kBlocks + outputs - 1) / outputs);
    part_count = ((count + parts - 1) / parts + kAlign - 1) / kAlign * kAlign;  // parts begin at packs
    parts = (count + part_count - 1) / part_count;
  }
};

template <class Op, class C, class Store>
void launch_rows(StreamRef stream, const C* x, const DeviceAxes& kept, const DeviceAxes& reduced,
                 std::int64_t outputs, std::int64_t count, const RowCut& cut, bool contiguous, Store store) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  constexpr int kCount = kPackOf<C>;
  const bool packs = contiguous && count % kCount == 0 && is_aligned16(x);
  const std::int64_t tasks = outputs * cut.parts;
  if (cut.group == 32) {
    const std::int64_t blocks = (tasks * 32 + kThreads - 1) / kThreads;
    launch(rows_kernel<Op, false, C, Store>, static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads,
           0, stream, x, kept, reduced, outputs, count, cut.parts, cut.part_count, packs, store);
  } else {
    launch(rows_kernel<Op, true, C, Store>, static_cast<unsigned>(std::min(tasks, kMostBlocks)), cut.group, 0,
           stream, x, kept, reduced, outputs, count, cut.parts, cut.part_count, packs, store);
  }
}

/// The axes of one reduction, for all kernels.
struct Geometry {
  DeviceAxes kept, reduced;  // all of them, or without the innermost one if that is kept and `columns`
  std::int64_t outer = 1, outputs = 1, count = 1;

  Geometry(const PrepareContext& c, const JoinedAxes& axes, bool columns) {
    bool fits = true;
    if (axes.inner_reduced)
      fits = reduced.add(axes.inner, 1);
    else if (!columns)
      fits = kept.add(axes.inner, 1);
    for (std::size_t a = axes.kept.size(); a-- > 0;)
      fits = fits && kept.add(axes.kept[a].size, axes.kept[a].stride);
    for (std::size_t a = axes.reduced.size(); a-- > 0;)
      fits = fits && reduced.add(axes.reduced[a].size, axes.reduced[a].stride);
    if (!fits) c.fail("has too many axes");
    outer = JoinedAxes::product(axes.kept);
    outputs = outer * (axes.inner_reduced ? 1 : axes.inner);
    count = JoinedAxes::product(axes.reduced) * (axes.inner_reduced ? axes.inner : 1);
  }
};

enum class Way { Each, Rows, RowsFirst, Columns };

Way way_of(const JoinedAxes& axes) {
  const std::int64_t outer = JoinedAxes::product(axes.kept);
  const std::int64_t outputs = outer * (axes.inner_reduced ? 1 : axes.inner);
  const std::int64_t count = JoinedAxes::product(axes.reduced) * (axes.inner_reduced ? axes.inner : 1);
  if (count <= 8 || outputs == 0) return Way::Each;
  constexpr std::int64_t kLongRow = 32;
  if (axes.inner_reduced && !axes.reduced.empty() && !axes.kept.empty() && axes.inner >= kLongRow)
    return Way::RowsFirst;
  if (axes.inner_reduced) return Way::Rows;
  // Columns of several axes are rare: they are read like rows, across memory.
  if (axes.reduced.size() > 1) return outputs >= 16384 ? Way::Each : Way::Rows;
  const bool small_slices = outer > 1 && count * axes.inner <= 512;
  return small_slices || (outputs >= 65536 && count <= 256) ? Way::Each : Way::Columns;
}

/// What is left of a tensor whose innermost axis is gone, [outermost, ...], and which of its axes are
/// reduced.
struct Outer {
  Shape shape;
  std::vector<int> reduced;

  explicit Outer(const JoinedAxes& axes) {
    std::vector<std::pair<JoinedAxes::Axis, bool>> all;
    for (const JoinedAxes::Axis& axis : axes.kept) all.emplace_back(axis, false);
    for (const JoinedAxes::Axis& axis : axes.reduced) all.emplace_back(axis, true);
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.first.stride > b.first.stride; });
    std::vector<std::int64_t> dims;
    for (const auto& [axis, is_reduced] : all) {
      if (is_reduced) reduced.push_back(static_cast<int>(dims.size()));
      dims.push_back(axis.size);
    }
    shape = Shape(std::move(dims));
  }
};

template <class Op, class T>
PreparedKernel prepare_rows_first(const PrepareContext& c, const JoinedAxes& axes, T divisor) {
  using C = typename Op::template Compute<T>;
  const Outer outer(axes);
  const std::int64_t rows = outer.shape.elements(), length = axes.inner;
  const PreparedKernel rest = prepare_reduce<typename Op::Combine, T>(c, outer.shape, outer.reduced, divisor);
  DeviceAxes kept, reduced;
  kept.add(rows, length);
  reduced.add(length, 1);
  const RowCut cut(rows, length, false);
  const std::size_t bytes = (static_cast<std::size_t>(rows) * sizeof(C) + 255) / 256 * 256;
  PreparedKernel kernel;
  kernel.scratch_bytes = bytes + rest.scratch_bytes;
  kernel.run = [=, rest = rest.run](const KernelArgs& a) {
    launch_rows<Op>(a.stream, a.in<C>(0), kept, reduced, rows, length, cut, true,
                    PartStore<C>{static_cast<C*>(a.scratch)});
    void* sums = a.scratch;
    KernelArgs of_sums = a;
    of_sums.inputs = &sums;
    of_sums.scratch = static_cast<char*>(a.scratch) + bytes;
    rest(of_sums);
  };
  return kernel;
}

}  // namespace

template <class Op, class T>
PreparedKernel prepare_reduce(const PrepareContext& c, const Shape& shape, const std::vector<int>& axes,
                              T divisor) {
  using C = typename Op::template Compute<T>;
  using Combine = typename Op::Combine;
  const JoinedAxes joined(shape, axes);
  const Way way = way_of(joined);
  if (way == Way::RowsFirst) return prepare_rows_first<Op, T>(c, joined, divisor);
  const Geometry g(c, joined, way == Way::Columns);
  PreparedKernel kernel;
  if (way == Way::Each) {
    kernel.run = [g, divisor](const KernelArgs& a) {
      if (g.outputs == 0) return;
      launch(each_kernel<Op, C, Finish<C, T>>, blocks_for(g.outputs), kThreads, 0, a.stream, a.in<C>(0),
             g.kept, g.reduced, g.outputs, g.count, Finish<C, T>{a.out<T>(0), divisor});
    };
  } else if (way == Way::Columns) {
    const ColumnReduction<Combine, C> columns(g.outer, g.count, joined.inner);
    kernel.scratch_bytes = columns.scratch_bytes();
    kernel.run = [g, columns, divisor](const KernelArgs& a) {
      columns.run(a.stream, AxisLoad<Op, C>{a.in<C>(0), g.kept, g.reduced.stride[0]},
                  Finish<C, T>{a.out<T>(0), divisor}, a.scratch);
    };
  } else {
    const RowCut cut(g.outputs, g.count, true);
    const bool contiguous = joined.inner_reduced && joined.reduced.empty();
    if (cut.parts == 1) {
      kernel.run = [g, cut, contiguous, divisor](const KernelArgs& a) {
        launch_rows<Op>(a.stream, a.in<C>(0), g.kept, g.reduced, g.outputs, g.count, cut, contiguous,
                        Finish<C, T>{a.out<T>(0), divisor});
      };
    } else {
      kernel.scratch_bytes = static_cast<std::size_t>(g.outputs * cut.parts) * sizeof(C);
      DeviceAxes parts_kept, parts_reduced;
      parts_kept.add(g.outputs, cut.parts);
      parts_reduced.add(cut.parts, 1);
      kernel.run = [=](const KernelArgs& a) {
        C* parts = static_cast<C*>(a.scratch);
        launch_rows<Op>(a.stream, a.in<C>(0), g.kept, g.reduced, g.outputs, g.count, cut, contiguous,
                        PartStore<C>{parts});
        launch_rows<Combine>(a.stream, static_cast<const C*>(parts), parts_kept, parts_reduced, g.outputs,
                             cut.parts, RowCut(g.outputs, cut.parts, false), true,
                             Finish<C, T>{a.out<T>(0), divisor});
      };
    }
  }
  return kernel;
}

#define BRAID_INSTANTIATE(op, T)                                                             \
  template PreparedKernel prepare_reduce<reduce::op, T>(const PrepareContext&, const Shape&, \
                                                        const std::vector<int>&, T);
#define BRAID_INSTANTIATE_FLOATS(op) \
  BRAID_INSTANTIATE(op, float)       \
  BRAID_INSTANTIATE(op, double)
#define BRAID_INSTANTIATE_NUMBERS(op) \
  BRAID_INSTANTIATE_FLOATS(op)        \
  BRAID_INSTANTIATE(op, std::int32_t) \
  BRAID_INSTANTIATE(op, std::int64_t)
BRAID_INSTANTIATE_NUMBERS(Sum)
BRAID_INSTANTIATE_NUMBERS(Prod)
BRAID_INSTANTIATE_NUMBERS(Max)
BRAID_INSTANTIATE_NUMBERS(Min)
BRAID_INSTANTIATE_FLOATS(SumOfSquares)
BRAID_INSTANTIATE(And, std::uint8_t)
BRAID_INSTANTIATE(Or, std::uint8_t)
#undef BRAID_INSTANTIATE_NUMBERS
#undef BRAID_INSTANTIATE_FLOATS
#undef BRAID_INSTANTIATE

}  // namespace braid::cuda
