#include "engine/ops/common/cuda/box_kernel.h"

#include <bit>

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

// ------------------------------------------------------------------------------------------------------ rows

/// Rows of contiguous bytes between two places; converted to units when they are launched.
struct Rows {
  int input, output;
  std::int64_t src_offset, dst_offset;  // bytes
  std::int64_t src_stride, dst_stride;  // bytes from row to row
  std::int64_t rows, row_bytes;

  /// Its lowest bit is the largest power of two that divides everything.
  std::uint64_t alignment() const {
    return static_cast<std::uint64_t>(src_offset | dst_offset | src_stride | dst_stride | row_bytes);
  }
};

constexpr int kMostRowCopies = 32;

struct RowCopy {
  const char* src;
  char* dst;
  std::int64_t src_stride, dst_stride;  // units
  std::int64_t width;                   // units of a row
  std::int64_t units;
  Divider by_width;
  unsigned first_block;
};
struct RowCopies {
  RowCopy at[kMostRowCopies];
  int count;
};

/// Each copy has a range of blocks to itself.
template <class Unit>
__global__ void copy_rows_kernel(const __grid_constant__ RowCopies copies) {
  int k = 0;
  while (k + 1 < copies.count && blockIdx.x >= copies.at[k + 1].first_block) ++k;
  const RowCopy& c = copies.at[k];
  const unsigned end_block = k + 1 < copies.count ? copies.at[k + 1].first_block : gridDim.x;
  const auto* src = reinterpret_cast<const Unit*>(c.src);
  auto* dst = reinterpret_cast<Unit*>(c.dst);
  const std::int64_t step = static_cast<std::int64_t>(end_block - c.first_block) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x - c.first_block) * blockDim.x + threadIdx.x;
  constexpr int kTogether = 4;  // loads before the first store
  if (c.units < kDividerLimit) {
    for (; i < c.units; i += kTogether * step) {
      Unit units[kTogether];
      std::int64_t to[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (i + k * step >= c.units) break;
        const auto at = static_cast<std::uint32_t>(i + k * step);
        const std::uint32_t row = c.by_width.quotient(at);
        const std::uint32_t column = at - row * c.by_width.divisor();
        to[k] = row * c.dst_stride + column;
        units[k] = src[row * c.src_stride + column];
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (i + k * step >= c.units) break;
        dst[to[k]] = units[k];
      }
    }
  } else {
    for (; i < c.units; i += step) {
      const std::int64_t row = i / c.width, column = i - row * c.width;
      dst[row * c.dst_stride + column] = src[row * c.src_stride + column];
    }
  }
}

/// The largest unit of at most 16 bytes.
std::int64_t unit_of(std::uint64_t alignment) {
  return std::int64_t{1} << std::min(std::countr_zero(alignment | 16), 4);
}

template <class F>
void with_unit(std::int64_t bytes, F f) {
  switch (bytes) {
    case 16:
      return f.template operator()<uint4>();
    case 8:
      return f.template operator()<std::uint64_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    default:
      return f.template operator()<std::uint8_t>();
  }
}

/// REQUIRES: 1 to kMostRowCopies of them, none empty.
void launch_rows(std::span<const Rows> boxes, const KernelArgs& a) {
  RowCopies copies{};
  copies.count = static_cast<int>(boxes.size());
  std::uint64_t alignment = 0;
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < boxes.size(); ++k) {
    RowCopy& copy = copies.at[k];
    copy.src = static_cast<const char*>(a.inputs[boxes[k].input]) + boxes[k].src_offset;
    copy.dst = static_cast<char*>(a.outputs[boxes[k].output]) + boxes[k].dst_offset;
    alignment |= boxes[k].alignment() | reinterpret_cast<std::uintptr_t>(copy.src) |
                 reinterpret_cast<std::uintptr_t>(copy.dst);
    bytes += boxes[k].rows * boxes[k].row_bytes;
  }
  const std::int64_t unit = unit_of(alignment);
  // So many units a thread that all of them are a few waves.
  const std::int64_t units_a_block = kThreads * ((bytes / unit) / (std::int64_t{kThreads} * 132 * 16) + 1);
  unsigned blocks = 0;
  for (std::size_t k = 0; k < boxes.size(); ++k) {
    RowCopy& copy = copies.at[k];
    copy.src_stride = boxes[k].src_stride / unit;
    copy.dst_stride = boxes[k].dst_stride / unit;
    copy.width = boxes[k].row_bytes / unit;
    copy.units = boxes[k].rows * copy.width;
    if (copy.units < kDividerLimit) copy.by_width = Divider(copy.width);
    copy.first_block = blocks;
    blocks += static_cast<unsigned>((copy.units + units_a_block - 1) / units_a_block);
  }
  with_unit(unit,
            [&]<class Unit>() { launch(copy_rows_kernel<Unit>, blocks, kThreads, 0, a.stream, copies); });
}

// --------------------------------------------------------------------------------------------------- strided

struct StridedBox {
  struct Axis {
    Divider by_size;
    std::int64_t size, src_stride, dst_stride;  // units
  };
  Axis at[BoxCopy::kMaxAxes];  // innermost first
  int axes = 0;
  std::int64_t units = 1;
};

template <class Unit>
__global__ void copy_strided_kernel(const Unit* src, Unit* dst, const __grid_constant__ StridedBox box) {
  const bool narrow = box.units < kDividerLimit;
  for (std::int64_t i = grid_index(); i < box.units; i += grid_size()) {
    std::int64_t from = 0, to = 0;
    if (narrow) {
      auto rest = static_cast<std::uint32_t>(i);
      for (int k = 0; k < box.axes; ++k) {
        const StridedBox::Axis& axis = box.at[k];
        const std::uint32_t next = k + 1 < box.axes ? axis.by_size.quotient(rest) : 0;
        const std::int64_t index = rest - next * axis.by_size.divisor();
        from += index * axis.src_stride;
        to += index * axis.dst_stride;
        rest = next;
      }
    } else {
      std::int64_t rest = i;
      for (int k = 0; k < box.axes; ++k) {
        const StridedBox::Axis& axis = box.at[k];
        const std::int64_t next = k + 1 < box.axes ? rest / axis.size : 0;
        const std::int64_t index = rest - next * axis.size;
        from += index * axis.src_stride;
        to += index * axis.dst_stride;
        rest = next;
      }
    }
    dst[to] = src[from];
  }
}

/// Any box; `axes` of elements, outermost first.
struct Strided {
  int input, output;
  std::vector<BoxAxis> axes;
  std::int64_t src_offset, dst_offset, element_bytes;

  void run(const KernelArgs& a) const {
    const char* src = static_cast<const char*>(a.inputs[input]) + src_offset * element_bytes;
    char* dst = static_cast<char*>(a.outputs[output]) + dst_offset * element_bytes;
    const BoxAxis& inner = axes.back();
    const bool contiguous = inner.src_stride == 1 && inner.dst_stride == 1;
    std::int64_t unit = element_bytes;
    if (contiguous) {
      auto alignment = reinterpret_cast<std::uintptr_t>(src) | reinterpret_cast<std::uintptr_t>(dst) |
                       static_cast<std::uint64_t>(inner.size * element_bytes);
      for (std::size_t i = 0; i + 1 < axes.size(); ++i)
        alignment |= static_cast<std::uint64_t>((axes[i].src_stride | axes[i].dst_stride) * element_bytes);
      unit = unit_of(alignment);
    }
    StridedBox box;
    box.axes = static_cast<int>(axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i) {
      StridedBox::Axis& axis = box.at[axes.size() - 1 - i];
      const bool in_units = contiguous && i + 1 == axes.size();
      axis.size = in_units ? axes[i].size * element_bytes / unit : axes[i].size;
      axis.src_stride = in_units ? 1 : axes[i].src_stride * element_bytes / unit;
      axis.dst_stride = in_units ? 1 : axes[i].dst_stride * element_bytes / unit;
      if (axis.size < kDividerLimit) axis.by_size = Divider(axis.size);
      box.units *= axis.size;
    }
    with_unit(unit, [&]<class Unit>() {
      launch(copy_strided_kernel<Unit>, blocks_for(box.units), kThreads, 0, a.stream,
             reinterpret_cast<const Unit*>(src), reinterpret_cast<Unit*>(dst), box);
    });
  }
};

// --------------------------------------------------------------------------------------------- transposition

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of a tile that a block moves at once

/// Planes of lines that are contiguous in the source (`lines` positions) and rows that are contiguous in the
/// destination (`inner` positions).
struct TransposedBox {
  std::int64_t lines, line_stride;   // from line to line in dst
  std::int64_t inner, inner_stride;  // from element to element in src
  std::int64_t line_tiles, inner_tiles, planes;
  BoxAxis at[BoxCopy::kMaxAxes];  // of the planes, innermost first
  int axes;
  Divider by_line_tiles, by_inner_tiles, by_size[BoxCopy::kMaxAxes];
};

template <class T>
__global__ void transpose_kernel(const T* src, T* dst, const __grid_constant__ TransposedBox box) {
  __shared__ T tile[kTile][kTile + 1];  // [inner][line]; the odd pitch spreads columns over the banks
  const auto tiles = static_cast<std::uint32_t>(box.line_tiles * box.inner_tiles * box.planes);
  for (std::uint32_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::uint32_t column = box.by_line_tiles.quotient(t);
    const std::int64_t first_line = std::int64_t{t - column * box.by_line_tiles.divisor()} * kTile;
    std::uint32_t rest = box.by_inner_tiles.quotient(column);
    const std::int64_t first_inner = std::int64_t{column - rest * box.by_inner_tiles.divisor()} * kTile;
    const T* from = src;
    T* to = dst;
    for (int k = 0; k < box.axes; ++k) {
      const std::uint32_t next = k + 1 < box.axes ? box.by_size[k].quotient(rest) : 0;
      const std::int64_t index = rest - next * box.by_size[k].divisor();
      from += index * box.at[k].src_stride;
      to += index * box.at[k].dst_stride;
      rest = next;
    }
#pragma unroll
    for (int r = threadIdx.y; r < kTile; r += kTileRows) {
      const std::int64_t line = first_line + threadIdx.x, inner = first_inner + r;
      if (line < box.lines && inner < box.inner) tile[r][threadIdx.x] = from[inner * box.inner_stride + line];
    }
    __syncthreads();
#pragma unroll
    for (int r = threadIdx.y; r < kTile; r += kTileRows) {
      const std::int64_t line = first_line + r, inner = first_inner + threadIdx.x;
      if (line < box.lines && inner < box.inner) to[line * box.line_stride + inner] = tile[threadIdx.x][r];
    }
    __syncthreads();
  }
}

struct Transposed {
  int input, output;
  std::int64_t src_offset, dst_offset, element_bytes;
  TransposedBox box;

  void run(const KernelArgs& a) const {
    const auto tiles = box.line_tiles * box.inner_tiles * box.planes;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, 132 * 64));
    const char* src = static_cast<const char*>(a.inputs[input]) + src_offset * element_bytes;
    char* dst = static_cast<char*>(a.outputs[output]) + dst_offset * element_bytes;
    with_unit(element_bytes, [&]<class T>() {
      if constexpr (sizeof(T) <= 8)
        launch(transpose_kernel<T>, blocks, dim3(kTile, kTileRows), 0, a.stream,
               reinterpret_cast<const T*>(src), reinterpret_cast<T*>(dst), box);
    });
  }
};

/// Narrower sides would leave most of a tile empty.
constexpr std::int64_t kLeastSide = 16;

bool fits_tiles(const BoxCopy& copy) {
  const auto axes = copy.axes();
  return copy.transposed() && copy.elements() < kDividerLimit * kLeastSide * kLeastSide &&
         axes[axes.size() - 1].size >= kLeastSide && axes[axes.size() - 2].size >= kLeastSide;
}

Transposed transposed(const BoxPlan::Part& part) {
  const auto axes = part.copy.axes();
  const BoxAxis& lines = axes[axes.size() - 2];
  const BoxAxis& inner = axes[axes.size() - 1];
  TransposedBox box{};
  box.lines = lines.size;
  box.line_stride = lines.dst_stride;
  box.inner = inner.size;
  box.inner_stride = inner.src_stride;
  box.line_tiles = (lines.size + kTile - 1) / kTile;
  box.inner_tiles = (inner.size + kTile - 1) / kTile;
  box.planes = part.copy.elements() / (lines.size * inner.size);
  box.axes = static_cast<int>(axes.size()) - 2;
  box.by_line_tiles = Divider(box.line_tiles);
  box.by_inner_tiles = Divider(box.inner_tiles);
  for (std::size_t i = 0; i + 2 < axes.size(); ++i) {
    const std::size_t k = axes.size() - 3 - i;
    box.at[k] = axes[i];
    box.by_size[k] = Divider(axes[i].size);
  }
  return {part.input,
          part.output,
          part.copy.src_offset(),
          part.copy.dst_offset(),
          static_cast<std::int64_t>(part.copy.element_bytes()),
          box};
}

/// The box as rows of contiguous bytes, if it is that simple.
std::optional<Rows> as_rows(const BoxPlan::Part& part) {
  const auto axes = part.copy.axes();
  const auto bytes = static_cast<std::int64_t>(part.copy.element_bytes());
  Rows rows{.input = part.input,
            .output = part.output,
            .src_offset = part.copy.src_offset() * bytes,
            .dst_offset = part.copy.dst_offset() * bytes};
  const BoxAxis& inner = axes.back();
  const bool contiguous = inner.src_stride == 1 && inner.dst_stride == 1;
  if (axes.size() > (contiguous ? 2U : 1U)) return std::nullopt;
  rows.row_bytes = (contiguous ? inner.size : 1) * bytes;
  rows.rows = contiguous ? (axes.size() == 2 ? axes[0].size : 1) : inner.size;
  if (rows.rows > 1) {
    rows.src_stride = axes[0].src_stride * bytes;
    rows.dst_stride = axes[0].dst_stride * bytes;
  }
  return rows;
}

}  // namespace

PreparedKernel box_kernel(const PrepareContext& c, const BoxPlan& plan) {
  std::vector<Rows> rows;
  std::vector<Transposed> tiled;
  std::vector<Strided> strided;
  for (const BoxPlan::Part& part : plan.parts) {
    if (part.copy.elements() == 0) continue;
    if (const std::optional<Rows> simple = as_rows(part)) {
      rows.push_back(*simple);
    } else if (fits_tiles(part.copy)) {
      tiled.push_back(transposed(part));
    } else {
      const auto axes = part.copy.axes();
      strided.push_back({part.input,
                         part.output,
                         {axes.begin(), axes.end()},
                         part.copy.src_offset(),
                         part.copy.dst_offset(),
                         static_cast<std::int64_t>(part.copy.element_bytes())});
    }
  }
  std::uint64_t zero_bytes = 0;
  if (plan.zero_first)
    zero_bytes = static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  PreparedKernel kernel;
  kernel.run = [rows = std::move(rows), tiled = std::move(tiled), strided = std::move(strided), zero_bytes,
                device = c.accelerator](const KernelArgs& a) {
    if (zero_bytes != 0) device->fill_zero(a.outputs[0], zero_bytes, a.stream);
    for (std::size_t first = 0; first < rows.size(); first += kMostRowCopies)
      launch_rows(std::span(rows).subspan(first, std::min<std::size_t>(kMostRowCopies, rows.size() - first)),
                  a);
    for (const Transposed& box : tiled) box.run(a);
    for (const Strided& box : strided) box.run(a);
  };
  return kernel;
}

bool has_plain_inputs(std::span<const OutputInfo> inputs) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [](const OutputInfo& input) { return dtype_size(input.dtype) != 0; });
}

}  // namespace braid::cuda
