// CUDA kernels of the BatchMatMuls: cuBLASLt, one strided batch along the longest broadcast axis and a
// product for each combination of the others (most shapes have none; of heads that share keys it is the
// heads); batches of small matrices and of vectors have kernels of their own (small_matmul.h, vector_dots.h,
// common/cuda/combine_vectors.h).
#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/cuda/combine_vectors.h"
#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/halves.h"
#include "engine/ops/math/batch_shape.h"
#include "engine/ops/math/small_matmul.h"
#include "engine/ops/math/vector_dots.h"

namespace braid {
namespace {

/// Where one strided batch begins, in bytes.
struct Offsets {
  std::int64_t a, b, y;
};

/// Row vectors x [lanes, batch, 1, k] times matrices y [(1,) batch, k, n] that the lanes share: one product a
/// matrix, whose rows are the lanes, so the matrices are read once. Sets `g` up for it.
bool share_matrices(const Shape& x, const Shape& y, cuda::Gemm& g) {
  const bool shared = x.rank() == 4 && (y.rank() == 3 || (y.rank() == 4 && y[0] == 1)) &&
                      size_at(y, 3) == x[1] && g.m == 1 && !g.transpose_a && x[0] > 1 && x[1] > 0 &&
                      g.k > 0 && g.n > 0;
  if (!shared || (g.dtype != DType::Float32 && g.dtype != DType::Float64)) return false;
  g.m = x[0];
  g.batch = x[1];
  g.stride_a = g.k;
  g.stride_b = g.k * g.n;
  g.stride_y = g.n;
  g.row_stride_a = x[1] * g.k;
  g.row_stride_y = x[1] * g.n;
  const auto bytes = static_cast<std::int64_t>(dtype_size(g.dtype));
  if (g.k * bytes % 16 != 0 || g.n * bytes % 16 != 0) g.alignment_bytes = static_cast<std::uint32_t>(bytes);
  return true;
}

/// The same where `g`, set up by share_matrices, is short sums of long rows; without a `run` where it is not.
PreparedKernel combine_rows(const cuda::Gemm& g) {
  cuda::Combination sums;
  sums.examples = g.batch;
  sums.terms = static_cast<int>(std::min<std::int64_t>(g.k, cuda::Combination::kMostTerms + 1));
  sums.rows = g.m;
  sums.columns = g.n;
  sums.factor_stride = g.stride_a;
  sums.factor_row = g.row_stride_a;
  sums.vector_stride = g.stride_b;
  sums.out_stride = g.stride_y;
  sums.out_row = g.row_stride_y;
  PreparedKernel kernel;
  if (g.dtype != DType::Float32 || g.transpose_b || !sums.is_supported()) return kernel;
  kernel.run = [sums](const KernelArgs& a) {
    cuda::CombinationArgs args;
    for (int t = 0; t < sums.terms; ++t) {
      args.factors[static_cast<std::size_t>(t)] = a.in<float>(0) + t;
      args.vectors[static_cast<std::size_t>(t)] = a.in<float>(1) + t * sums.columns;
    }
    args.out = a.out<float>(0);
    args.stream = a.stream;
    cuda::combine_vectors(sums, args);
  };
  return kernel;
}

/// Batches of few rows with few columns whose sums are long; without a `run` where `g` is not.
PreparedKernel dots_of_rows(const cuda::Gemm& g) {
  cuda::VectorDots dots;
  dots.examples = g.batch;
  dots.columns = g.k;
  dots.rows = g.m;
  dots.terms = g.n;
  dots.x_stride = g.stride_a;
  dots.x_row = g.row_stride_a ? g.row_stride_a : g.k;
  dots.vector_stride = g.stride_b;
  dots.out_stride = g.stride_y;
  dots.out_row = g.row_stride_y ? g.row_stride_y : g.n;
  PreparedKernel kernel;
  if (g.dtype != DType::Float32 || g.transpose_a || !g.transpose_b || !dots.is_supported()) return kernel;
  kernel.run = [dots](const KernelArgs& a) {
    cuda::vector_dots(dots, a.in<float>(0), a.in<float>(1), a.out<float>(0), a.stream);
  };
  return kernel;
}

/// Makes `g` the strided batch along the longest axis, and says where it begins for each combination of the
/// others.
std::vector<Offsets> along_longest_axis(const BroadcastPlan& plan, cuda::Gemm& g) {
  const std::vector<BroadcastPlan::Axis>& axes = plan.axes();
  const std::int64_t a = g.m * g.k, b = g.k * g.n, y = g.m * g.n;  // elements of a matrix
  std::size_t longest = axes.size() - 1;
  for (std::size_t i = longest; i-- > 0;)
    if (axes[i].size > axes[longest].size) longest = i;

  std::vector<Offsets> batches{{0, 0, 0}};
  std::int64_t entries = 1;  // of the result, between neighbours on an axis
  for (std::size_t i = axes.size(); i-- > 0; entries *= axes[i].size) {
    const auto& [size, strides] = axes[i];
    const Offsets step{strides[0] * a, strides[1] * b, entries * y};
    if (i == longest) {
      g.batch = size;
      g.stride_a = step.a;
      g.stride_b = step.b;
      g.stride_y = step.y;
      continue;
    }
    std::vector<Offsets> more;
    for (std::int64_t at = 0; at < size; ++at)
      for (const Offsets& o : batches)
        more.push_back({o.a + at * step.a, o.b + at * step.b, o.y + at * step.y});
    batches = std::move(more);
  }
  const auto bytes = static_cast<std::int64_t>(dtype_size(g.dtype));
  const auto out_bytes = static_cast<std::int64_t>(dtype_size(g.result));
  for (Offsets& o : batches) {
    o = {o.a * bytes, o.b * bytes, o.y * out_bytes};
    if ((o.a | o.b | o.y) % 16 != 0) g.alignment_bytes = static_cast<std::uint32_t>(bytes);
  }
  return batches;
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &x = c.inputs[0].shape, &y = c.inputs[1].shape, &out = c.outputs[0].shape;
  cuda::Gemm g;
  g.transpose_a = c.attr<bool>("adj_x", false);
  g.transpose_b = c.attr<bool>("adj_y", false);
  g.m = size_at(out, 2);
  g.n = size_at(out, 1);
  g.k = size_at(x, g.transpose_a ? 2 : 1);
  g.dtype = c.inputs[0].dtype;
  g.result = c.outputs[0].dtype;
  if (share_matrices(x, y, g)) {
    PreparedKernel kernel = g.transpose_b ? dots_of_rows(g) : combine_rows(g);
    return kernel.run ? kernel : cuda::gemm_kernel(c, g);
  }
  const Shape x_batch = batch_of(x), y_batch = batch_of(y), out_batch = batch_of(out);
  g.batch = out_batch.elements();
  if (g.m == 0 || g.n == 0 || g.k == 0 || g.batch == 0) return cuda::gemm_kernel(c, g);

  const BroadcastPlan plan({&x_batch, &y_batch}, out_batch);
  const std::vector<Offsets> batches = along_longest_axis(plan, g);
  if (batches.size() == 1 && !cuda::is_small_matmul(g)) {
    PreparedKernel dots = dots_of_rows(g);
    if (dots.run) return dots;
  }
  const cuda::PreparedGemm gemm =
      cuda::is_small_matmul(g) ? cuda::prepare_small_matmul(g) : cuda::prepare_gemm(c, g);
  PreparedKernel kernel;
  kernel.scratch_bytes = gemm.scratch_bytes;
  kernel.run = [gemm, batches](const KernelArgs& args) {
    for (const Offsets& o : batches)
      gemm.run({args.in<char>(0) + o.a, args.in<char>(1) + o.b, args.out<char>(0) + o.y, nullptr,
                args.scratch, args.stream});
  };
  return kernel;
}

}  // namespace

void register_batch_matmul_cuda(OpRegistry& registry) {
  for (const char* name : {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}) registry.add_cuda(name, prepare);
  cuda_takes_halves({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"});
}

}  // namespace braid
