#include <algorithm>
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>

#include "engine/ops/common/dnnl_engine.h"
#include "engine/ops/common/gemm.h"

namespace braid {
namespace {

constexpr double kBlockFlops = 24e6;  // about 150 us of one core: far above the cost of handing out a block
constexpr std::int64_t kMaxBlocks = 16;  // each has its own scratchpad
constexpr std::int64_t kAlign = 64;      // rows or columns of a block are a multiple of this
constexpr std::int64_t kLeast = 128;     // and at least these: every block packs the other operand again

/// The part of the product that one call computes.
struct Block {
  std::int64_t entry, entries;  // of the batch
  std::int64_t row, rows, column, columns;
};

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The length of at most `wanted` pieces of `size`, at least kLeast.
std::int64_t piece(std::int64_t size, std::int64_t wanted) {
  return std::max(round_up((size + wanted - 1) / wanted, kAlign), kLeast);
}

/// a and b of consecutive entries are consecutive matrices, or always the same one.
bool is_regular(const std::vector<std::int64_t>& index) {
  const std::int64_t step = index.size() > 1 ? index[1] - index[0] : 0;
  for (std::size_t i = 1; i < index.size(); ++i)
    if (index[i] - index[i - 1] != step) return false;
  return step == 0 || step == 1;
}

std::vector<Block> cut_blocks(const Gemm& g) {
  std::vector<Block> blocks;
  const double flops = g.flops_each() * static_cast<double>(g.batch());
  const auto wanted = std::clamp<std::int64_t>(static_cast<std::int64_t>(flops / kBlockFlops), 1, kMaxBlocks);
  if (g.batch() > 1) {
    const bool regular = is_regular(g.a_index) && is_regular(g.b_index);
    const std::int64_t step = regular ? (g.batch() + wanted - 1) / wanted : 1;
    for (std::int64_t e = 0; e < g.batch(); e += step)
      blocks.push_back({e, std::min(step, g.batch() - e), 0, g.m, 0, g.n});
  } else if (g.m >= g.n) {
    const std::int64_t step = piece(g.m, wanted);
    for (std::int64_t row = 0; row < g.m; row += step)
      blocks.push_back({0, 1, row, std::min(step, g.m - row), 0, g.n});
  } else {
    const std::int64_t step = piece(g.n, wanted);
    for (std::int64_t column = 0; column < g.n; column += step)
      blocks.push_back({0, 1, 0, g.m, column, std::min(step, g.n - column)});
  }
  return blocks;
}

using Dims = dnnl::memory::dims;

/// A batch of matrices inside larger ones; a transposed matrix is described by its strides.
dnnl::memory::desc matrices(std::int64_t count, std::int64_t rows, std::int64_t columns,
                            std::int64_t row_stride, std::int64_t column_stride, std::int64_t matrix_stride) {
  const auto f32 = dnnl::memory::data_type::f32;
  if (count == 0) return {{rows, columns}, f32, Dims{row_stride, column_stride}};
  return {{count, rows, columns}, f32, Dims{matrix_stride, row_stride, column_stride}};
}

bool is_repeated(const std::vector<std::int64_t>& index) { return index.front() == index.back(); }

dnnl::matmul::primitive_desc describe(const Gemm& g, const Block& b) {
  const bool batched = b.entries > 1;
  const auto count = [&](const std::vector<std::int64_t>& index) -> std::int64_t {
    if (!batched) return 0;
    return is_repeated(index) ? 1 : b.entries;
  };
  const auto a =
      matrices(count(g.a_index), b.rows, g.k, g.transpose_a ? 1 : g.k, g.transpose_a ? g.m : 1, g.m * g.k);
  const auto w =
      matrices(count(g.b_index), g.k, b.columns, g.transpose_b ? 1 : g.n, g.transpose_b ? g.k : 1, g.k * g.n);
  const auto y = matrices(batched ? b.entries : 0, b.rows, b.columns, g.n, 1, g.m * g.n);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {dnnl::matmul::desc(a, w, y), attr, dnnl_cpu_engine()};
}

struct BlockCall {
  DnnlCall call;
  std::int64_t a_offset, b_offset, y_offset;
};

}  // namespace

PreparedKernel prepare_gemm_dnnl(const PrepareContext& c, const Gemm& g) {
  const dnnl::engine& engine = dnnl_cpu_engine();
  std::map<std::array<std::int64_t, 3>, std::pair<dnnl::matmul::primitive_desc, dnnl::matmul>> primitives;
  auto calls = std::make_shared<std::vector<BlockCall>>();
  std::size_t scratch = 0;
  for (const Block& b : cut_blocks(g)) {
    auto& [desc, primitive] = primitives[{b.entries, b.rows, b.columns}];
    if (!primitive) {
      desc = describe(g, b);
      primitive = dnnl::matmul(desc);
    }
    const auto memory = [&](const dnnl::memory::desc& d) {
      return dnnl::memory(d, engine, DNNL_MEMORY_NONE);
    };
    const auto entry = static_cast<std::size_t>(b.entry);
    calls->push_back({DnnlCall(primitive, {{DNNL_ARG_SRC, memory(desc.src_desc())},
                                           {DNNL_ARG_WEIGHTS, memory(desc.weights_desc())},
                                           {DNNL_ARG_DST, memory(desc.dst_desc())},
                                           {DNNL_ARG_SCRATCHPAD, memory(desc.scratchpad_desc())}}),
                      g.a_index[entry] * g.m * g.k + b.row * (g.transpose_a ? 1 : g.k),
                      g.b_index[entry] * g.k * g.n + b.column * (g.transpose_b ? g.k : 1),
                      b.entry * g.m * g.n + b.row * g.n + b.column});
    scratch = std::max(scratch, dnnl_scratch_bytes(desc.scratchpad_desc().get_size()));
  }
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch * calls->size();
  kernel.run = [calls, scratch, pool = &c.pool](const KernelArgs& args) {
    pool->parallel_for(static_cast<std::int64_t>(calls->size()), [&](std::int64_t i) {
      const BlockCall& b = (*calls)[static_cast<std::size_t>(i)];
      b.call.execute({args.in<float>(0) + b.a_offset, args.in<float>(1) + b.b_offset,
                      args.out<float>(0) + b.y_offset,
                      static_cast<char*>(args.scratch) + static_cast<std::size_t>(i) * scratch});
    });
  };
  return kernel;
}

}  // namespace braid
