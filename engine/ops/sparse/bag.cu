// CUDA kernels of braid.Bag and braid.BagMany: one launch for up to kMost tables, whose addresses and sizes
// are the kernel's argument. The lanes of a bag, up to a warp, read its rows in packs of up to 16 bytes,
// kAhead rows in flight, and add them in the order of the ids. A row whose id is out of range, and bags
// whose offsets are, are reported and count as zeros.
#include <bit>
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

constexpr int kAhead = 8;
constexpr int kMost = 36;  // a kernel's arguments are 4 KiB
constexpr int kWarp = 32;

template <class T, class Out>
struct BagTable {
  const T* rows;
  Out* out;
  cuda::DeviceBags<T> bags;
  std::int64_t row_count;
  std::int32_t width;
  std::int32_t lanes;  // that share a bag: a power of two
  std::int32_t first_block;
};

template <class T, class Out>
struct BagTables {
  int count = 0;
  BagTable<T, Out> at[kMost];
};
static_assert(sizeof(BagTables<float, float>) + 64 <= 4096);

template <class T, class Out, int kPack>
__global__ void __launch_bounds__(cuda::kThreads)
    bag_kernel(const __grid_constant__ BagTables<T, Out> tables, StepStatus* status, int op) {
  using Elements = cuda::Pack<T, kPack>;
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const BagTable<T, Out>& t = cuda::part_of_block(tables, block);
  const int lane = static_cast<int>(threadIdx.x) & (t.lanes - 1);
  const std::int64_t bag =
      static_cast<std::int64_t>(block - t.first_block) * (cuda::kThreads / t.lanes) + threadIdx.x / t.lanes;
  if (bag >= t.bags.count) return;
  const cuda::BagRange range = t.bags.range(bag, status, op);
  const std::int64_t width = t.width;
  const bool is_max = t.bags.is_max();
  for (std::int64_t column = lane * kPack; column < width; column += t.lanes * kPack) {
    Elements sum{};
    for (std::int64_t k = range.begin; k < range.end; k += kAhead) {
      std::int64_t ids[kAhead];
      Elements rows[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ids[i] = k + i < range.end ? t.bags.id(k + i) : -1;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        rows[i] = Elements{};
        if (ids[i] >= 0 && ids[i] < t.row_count)
          rows[i] = *reinterpret_cast<const Elements*>(t.rows + ids[i] * width + column);
        else if (k + i < range.end)
          cuda::report(status, op, StatusCode::IndexOutOfRange, ids[i], t.row_count);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const T weight = t.bags.weights && k + i < range.end ? t.bags.weights[k + i] : T(1);
#pragma unroll
        for (int e = 0; e < kPack; ++e) {
          const T value = rows[i].at[e];
          if (!is_max)
            sum.at[e] += weight * value;
          else if (k + i < range.end && (k + i == range.begin || value > sum.at[e]))
            sum.at[e] = value;
        }
      }
    }
    const T scale = t.bags.scale(range);
    cuda::Pack<Out, kPack> out;
#pragma unroll
    for (int e = 0; e < kPack; ++e) out.at[e] = static_cast<Out>(sum.at[e] * scale);
    *reinterpret_cast<cuda::Pack<Out, kPack>*>(t.out + bag * width + column) = out;
  }
}

/// What does not change from run to run.
struct Size {
  cuda::BagShape shape;
  std::int64_t rows, width;
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
    const auto lanes = static_cast<std::int32_t>(std::min<std::uint64_t>(std::bit_ceil(packs), kWarp));
    tables.at[tables.count++] = {.rows = a.in<T>(in.table(t)),
                                 .out = a.out<Out>(t),
                                 .bags = cuda::device_bags<T>(size.shape, in, a, in.table(t)),
                                 .row_count = size.rows,
                                 .width = static_cast<std::int32_t>(size.width),
                                 .lanes = lanes,
                                 .first_block = static_cast<std::int32_t>(blocks)};
    const std::int64_t of_block = cuda::kThreads / lanes;
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
  for (int t = 0; in.table(t) < static_cast<int>(c.inputs.size()); ++t) {
    const Shape& table = c.inputs[static_cast<std::size_t>(in.table(t))].shape;
    sizes.push_back({cuda::bag_shape(c, in, in.table(t)), table[0], table[1]});
  }
  for (const OutputInfo& output : c.outputs)
    if (output.dtype != c.outputs[0].dtype) c.fail("sums must be of one type");
  return with_types(c, [&]<class T, class Out>() {
    PreparedKernel kernel;
    kernel.run = [in, sizes = std::move(sizes)](const KernelArgs& a) {
      constexpr int kPack = cuda::kPackOf<T>;
      bool packed = true;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        packed = packed && sizes[i].width % kPack == 0 &&
                 cuda::is_aligned16(a.inputs[in.table(static_cast<int>(i))]) &&
                 cuda::is_aligned16(a.outputs[i]);
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
