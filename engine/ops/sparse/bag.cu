// CUDA kernels of braid.Bag and braid.BagMany: one launch for up to kMost tables, whose addresses and sizes
// are the kernel's argument. The lanes of a bag, up to a warp, read its rows in packs of up to 16 bytes,
// kAhead rows in flight, and add them in the order of the ids. What is done for an id as a whole is done by
// each of these lanes, so few lanes have kPieces packs each of a wide row, and a warp several bags. Where
// lists are short, the same lanes take as many bags as have kAhead ids. A row whose id is out of range, and
// bags whose offsets are, are reported; such a row is left out.
#include <bit>
#include <limits>
#include <type_traits>

#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/sparse/bag_args.h"
#include "engine/ops/sparse/bag_parts.cuh"

namespace braid {
namespace {

constexpr int kAhead = 4;
constexpr int kPieces = 2;
constexpr int kFewLanes = 16;  // that share a row of more packs, as long as each has no more than kPieces
constexpr int kMost = 36;      // a kernel's arguments are 4 KiB
constexpr int kWarp = 32;

template <class T, class Out>
struct BagTable {
  const T* rows;
  Out* out;
  cuda::DeviceBags<T> bags;
  std::int64_t row_count;
  std::int32_t width;
  std::int32_t stride;   // of a row of `out`
  std::int32_t lanes;    // that share a bag: a power of two
  std::int16_t at_once;  // bags that such lanes take together
  bool is_wide;          // lanes enough for kAhead ids
  std::int32_t first_block;
};

template <class T, class Out>
struct BagTables {
  int count = 0;
  BagTable<T, Out> at[kMost];
};
static_assert(sizeof(BagTables<float, float>) + 64 <= 4096);

/// A group of lanes, and what it has of a row.
struct BagLanes {
  int lane, lanes;
  unsigned mask;  // of the group, in its warp

  __device__ explicit BagLanes(int lanes_of_bag)
      : lane(static_cast<int>(threadIdx.x) & (lanes_of_bag - 1)),
        lanes(lanes_of_bag),
        mask(lanes_of_bag == kWarp
                 ? 0xffffffffU
                 : ((1U << lanes_of_bag) - 1) << (static_cast<int>(threadIdx.x) % kWarp - lane)) {}
};

/// The row of id k; -1 from `end` on, and where the table has no such row.
template <class T, class Out>
__device__ std::int32_t row_of_id(const BagTable<T, Out>& t, std::int64_t k, std::int64_t end,
                                  StepStatus* status, int op) {
  if (k >= end) return -1;
  const std::int64_t id = t.bags.id(k);
  if (id >= 0 && id < t.row_count) return static_cast<std::int32_t>(id);
  cuda::report(status, op, StatusCode::IndexOutOfRange, id, t.row_count);
  return -1;
}

/// A lane's packs of rows and sums, from `column` on, so many columns apart. Those behind the last column are
/// read in the first one's place, and not written.
template <class T, class Out, int kPack>
struct Pieces {
  using Elements = cuda::Pack<T, kPack>;
  const BagTable<T, Out>& t;
  std::int32_t column, step;
  const char* rows[kPieces];

  __device__ Pieces(const BagTable<T, Out>& table, std::int32_t first, std::int32_t between)
      : t(table), column(first), step(between) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      rows[p] = reinterpret_cast<const char*>(t.rows + (has(p) ? column + p * step : 0));
  }
  __device__ bool has(int piece) const { return column + piece * step < t.width; }
  /// REQUIRES: the table has the row, or `row` is negative and it has any.
  __device__ void load(std::int32_t row, Elements (&to)[kPieces]) const {
    const std::int64_t bytes =
        static_cast<std::int64_t>(max(row, 0)) * (t.width * static_cast<std::int32_t>(sizeof(T)));
#pragma unroll
    for (int p = 0; p < kPieces; ++p) to[p] = *reinterpret_cast<const Elements*>(rows[p] + bytes);
  }
  __device__ void write(std::int64_t bag, const Elements (&sums)[kPieces], T scale) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (!has(p)) continue;
      cuda::Pack<Out, kPack> out;
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.at[e] = static_cast<Out>(sums[p].at[e] * scale);
      *reinterpret_cast<cuda::Pack<Out, kPack>*>(t.out + bag * t.stride + column + p * step) = out;
    }
  }
};

/// How a row joins a sum.
enum class Take { Add, AddWeighted, Max };

template <Take kTake, class T, int kPack>
__device__ void take(cuda::Pack<T, kPack>& sum, const cuda::Pack<T, kPack>& row, T weight, bool is_first) {
#pragma unroll
  for (int e = 0; e < kPack; ++e) {
    if constexpr (kTake == Take::Add)
      sum.at[e] += row.at[e];
    else if constexpr (kTake == Take::AddWeighted)
      sum.at[e] += weight * row.at[e];
    else if (is_first || row.at[e] > sum.at[e])
      sum.at[e] = row.at[e];
  }
}
template <Take kTake, class T, int kPack>
__device__ void take_pieces(cuda::Pack<T, kPack> (&sums)[kPieces], const cuda::Pack<T, kPack> (&row)[kPieces],
                            T weight, bool is_first) {
#pragma unroll
  for (int p = 0; p < kPieces; ++p) take<kTake>(sums[p], row[p], weight, is_first);
}

/// Bags of few ids each, lists without weights: t.at_once of them from `bag` on. As pool_wide reads ids.
template <Take kTake, class T, class Out, int kPack>
__device__ void pool_short(const BagTable<T, Out>& t, const BagLanes& own, std::int64_t bag,
                           StepStatus* status, int op) {
  using Elements = cuda::Pack<T, kPack>;
  const int hot = t.bags.hot;
  const auto count =
      static_cast<int>(min(t.bags.count - bag, static_cast<std::int64_t>(t.at_once))) * hot;  // of ids
  const std::int64_t first = bag * hot;
  const std::int32_t own_row = row_of_id(t, first + (own.lane & (kAhead - 1)), first + count, status, op);
  const T scale = t.bags.scale({0, hot});
  const std::int32_t step = own.lanes * kPack;
  for (std::int32_t base = 0; base < t.width; base += step * kPieces) {
    const Pieces<T, Out, kPack> pieces(t, base + own.lane * kPack, step);
    Elements rows[kAhead][kPieces], sums[kPieces]{};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) pieces.load(__shfl_sync(own.mask, own_row, i, kAhead), rows[i]);
    int taken = 0;
    std::int64_t to = bag;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int32_t row = __shfl_sync(own.mask, own_row, i, kAhead);
      if (i >= count) continue;
      if (row >= 0) take_pieces<kTake>(sums, rows[i], T(1), taken == 0);
      if (++taken != hot) continue;
      pieces.write(to++, sums, scale);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) sums[p] = {};
      taken = 0;
    }
  }
}

/// One bag of lanes enough to read kAhead ids together, of which the next ones are under way.
template <Take kTake, class T, class Out, int kPack>
__device__ void pool_wide(const BagTable<T, Out>& t, const BagLanes& own, std::int64_t bag,
                          StepStatus* status, int op) {
  using Elements = cuda::Pack<T, kPack>;
  const cuda::BagRange range = t.bags.range(bag, status, op);
  const int ahead = own.lane & (kAhead - 1);
  const std::int32_t step = own.lanes * kPack;
  for (std::int32_t base = 0; base < t.width; base += step * kPieces) {
    const Pieces<T, Out, kPack> pieces(t, base + own.lane * kPack, step);
    Elements sums[kPieces]{};
    std::int32_t own_row = row_of_id(t, range.begin + ahead, range.end, status, op);
    for (std::int64_t k = range.begin; k < range.end; k += kAhead) {
      T own_weight = T(1);
      if constexpr (kTake == Take::AddWeighted)
        if (k + ahead < range.end) own_weight = t.bags.weights[k + ahead];
      const std::int32_t next = row_of_id(t, k + kAhead + ahead, range.end, status, op);
      Elements rows[kAhead][kPieces];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) pieces.load(__shfl_sync(own.mask, own_row, i, kAhead), rows[i]);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const std::int32_t row = __shfl_sync(own.mask, own_row, i, kAhead);
        T weight = T(1);
        if constexpr (kTake == Take::AddWeighted) weight = __shfl_sync(own.mask, own_weight, i, kAhead);
        if (row >= 0) take_pieces<kTake>(sums, rows[i], weight, k + i == range.begin);
      }
      own_row = next;
    }
    pieces.write(bag, sums, t.bags.scale(range));
  }
}

/// Where the row of id k begins in the table; -1 from `end` on, and where the table has no such row.
template <class T, class Out>
__device__ std::int64_t begin_of_row(const BagTable<T, Out>& t, std::int64_t k, std::int64_t end,
                                     StepStatus* status, int op) {
  if (k >= end) return -1;
  const std::int64_t id = t.bags.id(k);
  if (id >= 0 && id < t.row_count) return id * t.width;
  cuda::report(status, op, StatusCode::IndexOutOfRange, id, t.row_count);
  return -1;
}

template <class T, class Out, int kPack>
__device__ cuda::Pack<T, kPack> load_row(const BagTable<T, Out>& t, std::int64_t begin, std::int64_t column) {
  using Elements = cuda::Pack<T, kPack>;
  if (begin < 0 || column >= t.width) return Elements{};
  return *reinterpret_cast<const Elements*>(t.rows + begin + column);
}

template <class T, class Out, int kPack>
__device__ void write(const BagTable<T, Out>& t, std::int64_t bag, std::int64_t column,
                      const cuda::Pack<T, kPack>& sum, T scale) {
  if (column >= t.width) return;
  cuda::Pack<Out, kPack> out;
#pragma unroll
  for (int e = 0; e < kPack; ++e) out.at[e] = static_cast<Out>(sum.at[e] * scale);
  *reinterpret_cast<cuda::Pack<Out, kPack>*>(t.out + bag * t.stride + column) = out;
}

/// One bag of narrow rows.
template <class T, class Out, int kPack>
__device__ void pool_narrow(const BagTable<T, Out>& t, const BagLanes& own, std::int64_t bag,
                            StepStatus* status, int op) {
  constexpr int kIds = 4;  // more groups of lanes hide the waits of each
  const cuda::BagRange range = t.bags.range(bag, status, op);
  const bool is_max = t.bags.is_max();
  for (std::int64_t column = own.lane * kPack; column < t.width; column += own.lanes * kPack) {
    cuda::Pack<T, kPack> sum{};
    for (std::int64_t k = range.begin; k < range.end; k += kIds) {
      std::int64_t begins[kIds];
      cuda::Pack<T, kPack> rows[kIds];
#pragma unroll
      for (int i = 0; i < kIds; ++i) begins[i] = begin_of_row(t, k + i, range.end, status, op);
#pragma unroll
      for (int i = 0; i < kIds; ++i) rows[i] = load_row<T, Out, kPack>(t, begins[i], column);
#pragma unroll
      for (int i = 0; i < kIds; ++i) {
        if (k + i >= range.end) continue;
        if (is_max)
          take<Take::Max>(sum, rows[i], T(1), k + i == range.begin);
        else
          take<Take::AddWeighted>(sum, rows[i], t.bags.weights ? t.bags.weights[k + i] : T(1), false);
      }
    }
    write(t, bag, column, sum, t.bags.scale(range));
  }
}

template <class T, class Out, int kPack>
__global__ void __launch_bounds__(cuda::kThreads, sizeof(T) == 4 ? 4 : 1)
    bag_kernel(const __grid_constant__ BagTables<T, Out> tables, StepStatus* status, int op) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const BagTable<T, Out>& t = cuda::part_of_block(tables, block);
  const BagLanes own(t.lanes);
  const std::int64_t group =
      static_cast<std::int64_t>(block - t.first_block) * (cuda::kThreads / t.lanes) + threadIdx.x / t.lanes;
  const std::int64_t bag = group * t.at_once;
  if (bag >= t.bags.count) return;
  if (!t.is_wide)
    pool_narrow<T, Out, kPack>(t, own, bag, status, op);
  else if (t.bags.is_max())
    pool_wide<Take::Max, T, Out, kPack>(t, own, bag, status, op);
  else if (t.bags.weights)
    pool_wide<Take::AddWeighted, T, Out, kPack>(t, own, bag, status, op);
  else if (t.at_once > 1)
    pool_short<Take::Add, T, Out, kPack>(t, own, bag, status, op);
  else
    pool_wide<Take::Add, T, Out, kPack>(t, own, bag, status, op);
}

/// What does not change from run to run.
struct Size {
  cuda::BagShape shape;
  std::int64_t rows, width;
  // Of the output.
  int output;
  std::int64_t offset, stride;
};

template <class T, class Out, int kPack>
void pool(const std::vector<Size>& sizes, const BagInputs& in, const KernelArgs& a) {
  BagTables<T, Out> tables;
  std::int64_t blocks = 0;
  const auto flush = [&] {
    if (blocks != 0)
      cuda::launch(bag_kernel<T, Out, kPack>, static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream,
                   tables, a.status, a.op);
    tables.count = 0;
    blocks = 0;
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Size& size = sizes[i];
    const int t = static_cast<int>(i);
    if (size.shape.sizes.bags * size.width == 0) continue;
    const auto packs = static_cast<std::uint64_t>((size.width + kPack - 1) / kPack);
    const std::uint64_t shared =
        packs <= kFewLanes ? packs : std::max<std::uint64_t>(kFewLanes, (packs + 1) / kPieces);
    const auto lanes = static_cast<std::int32_t>(std::min<std::uint64_t>(std::bit_ceil(shared), kWarp));
    const bool is_wide =
        lanes >= 2 * kAhead && size.rows > 0 && size.rows <= std::numeric_limits<std::int32_t>::max();
    const bool is_short =
        is_wide && !in.ragged && !in.weighted && in.pooling != Pooling::Max && size.shape.sizes.hot > 0;
    const auto at_once = static_cast<std::int16_t>(
        is_short ? std::max(kAhead / size.shape.sizes.hot, std::int64_t{1}) : std::int64_t{1});
    tables.at[tables.count++] = {.rows = a.in<T>(in.table(t)),
                                 .out = a.out<Out>(size.output) + size.offset,
                                 .bags = cuda::device_bags<T>(size.shape, in, a, in.table(t)),
                                 .row_count = size.rows,
                                 .width = static_cast<std::int32_t>(size.width),
                                 .stride = static_cast<std::int32_t>(size.stride),
                                 .lanes = lanes,
                                 .at_once = at_once,
                                 .is_wide = is_wide,
                                 .first_block = static_cast<std::int32_t>(blocks)};
    const std::int64_t of_block = cuda::kThreads / lanes * at_once;
    blocks += (size.shape.sizes.bags + of_block - 1) / of_block;
    if (tables.count == kMost) flush();
  }
  flush();
}

/// Calls f.operator()<T, Out>(): rows of the table's type, and sums of it or, of float32, of a half.
template <class F>
PreparedKernel with_types(const PrepareContext& c, const F& f) {
  const DType out = c.outputs[0].dtype;
  return with_float(c.node.op->name, c.attr("dtype", DType::Invalid), [&]<class T>() -> PreparedKernel {
    if constexpr (std::is_same_v<T, float>) {
      if (out == DType::Float16) return f.template operator()<T, Float16>();
      if (out == DType::BFloat16) return f.template operator()<T, BFloat16>();
    }
    return f.template operator()<T, T>();
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  const BagInputs in = bag_inputs(c.node.attrs, true);
  std::vector<Size> sizes;
  const BagPlaces places(c.node.attrs, static_cast<int>(c.inputs.size()) / in.stride());
  for (int t = 0; in.table(t) < static_cast<int>(c.inputs.size()); ++t) {
    const Shape& table = c.inputs[static_cast<std::size_t>(in.table(t))].shape;
    sizes.push_back({cuda::bag_shape(c, in, in.table(t)), table[0], table[1], places.output(t),
                     places.offset(t), places.stride(t, table[1])});
  }
  for (const OutputInfo& output : c.outputs)
    if (output.dtype != c.outputs[0].dtype) c.fail("sums must be of one type");
  return with_types(c, [&]<class T, class Out>() {
    PreparedKernel kernel;
    kernel.run = [in, sizes = std::move(sizes)](const KernelArgs& a) {
      constexpr int kPack = cuda::kPackOf<T>;
      bool packed = true;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        packed = packed && sizes[i].width % kPack == 0 && sizes[i].stride % kPack == 0 &&
                 sizes[i].offset % kPack == 0 &&
                 cuda::is_aligned16(a.inputs[in.table(static_cast<int>(i))]) &&
                 cuda::is_aligned16(a.outputs[sizes[i].output]);
      if (packed)
        pool<T, Out, kPack>(sizes, in, a);
      else
        pool<T, Out, 1>(sizes, in, a);
    };
    return kernel;
  });
}

bool supports(const Node& node, std::span<const OutputInfo>) {
  const DType dtype = node.attrs.get<DType>("dtype", DType::Invalid);
  return dtype == DType::Float32 || dtype == DType::Float64;
}

}  // namespace

void register_bag_cuda(OpRegistry& registry) {
  for (const char* op : {"braid.Bag", "braid.BagMany"}) registry.add_cuda(op, prepare, supports);
  cuda_takes_halves({"braid.Bag", "braid.BagMany"});
}

}  // namespace braid
