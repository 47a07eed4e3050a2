// CUDA kernels of Einsum: of two operands a batched product (common/cuda/gemm.h), with the copies that bring
// operands and result into its order (einsum_plan.h); of one a copy, or a sum with a warp or a block
// an output.
#include <algorithm>
#include <array>

#include "engine/ops/common/cuda/axes.cuh"
#include "engine/ops/common/cuda/box_kernel.h"
#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/softmax_rows.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/math/einsum_plan.h"
#include "engine/ops/math/small_matmul.h"

namespace braid {
namespace {

using cuda::RowGroup;

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// A copy of an operand or of the result, and the scratch memory for its other side.
struct Staged {
  PreparedKernel copy;  // nothing to run where there is none
  std::size_t bytes = 0;

  Staged(const PrepareContext& c, const std::optional<BoxCopy>& box, std::int64_t elements) {
    if (!box) return;
    copy = cuda::box_kernel(c, BoxPlan{.parts = {{*box, 0, 0}}});
    bytes = rounded(static_cast<std::size_t>(elements) * box->element_bytes());
  }

  void run(const KernelArgs& args, void* from, void* to) const {
    KernelArgs inside = args;
    inside.inputs = &from;
    inside.outputs = &to;
    copy.run(inside);
  }
};

/// Multiplies inputs 0 and 1.
PreparedKernel multiplication(const PrepareContext& c, const cuda::Gemm& g) {
  if (!cuda::is_small_matmul(g)) return cuda::gemm_kernel(c, g);
  PreparedKernel kernel;
  kernel.run = [gemm = cuda::prepare_small_matmul(g)](const KernelArgs& a) {
    gemm.run({a.inputs[0], a.inputs[1], a.outputs[0], nullptr, a.scratch, a.stream});
  };
  return kernel;
}

PreparedKernel prepare_product(const PrepareContext& c, const EinsumPlan& plan,
                               const std::vector<Shape>& shapes) {
  const EinsumProduct product(plan, shapes, c.outputs[0].shape, dtype_size(c.outputs[0].dtype));
  cuda::Gemm g;
  g.m = product.m;
  g.n = product.n;
  g.k = product.k;
  g.transpose_a = product.transpose_first;
  g.transpose_b = product.transpose_second;
  g.batch = product.batch;
  g.stride_a = g.m * g.k;
  g.stride_b = g.k * g.n;
  g.stride_y = g.m * g.n;
  g.dtype = c.outputs[0].dtype;
  const auto bytes = static_cast<std::int64_t>(dtype_size(g.dtype));
  if (g.batch > 1 && (g.stride_a | g.stride_b | g.stride_y) * bytes % 16 != 0)
    g.alignment_bytes = static_cast<std::uint32_t>(bytes);
  const Staged first(c, product.first_copy, product.first_elements());
  const Staged second(c, product.second_copy, product.second_elements());
  const Staged result(c, product.result_copy, product.result_elements());
  PreparedKernel kernel = multiplication(c, g);
  kernel.scratch_bytes = rounded(kernel.scratch_bytes) + first.bytes + second.bytes + result.bytes;
  kernel.run = [=, multiply = std::move(kernel.run), first_input = product.first,
                second_input = product.second()](const KernelArgs& args) {
    char* at = static_cast<char*>(args.scratch);
    const auto take = [&at](std::size_t n) { return std::exchange(at, at + n); };
    const auto bring = [&](const Staged& staged, void* operand) -> void* {
      if (!staged.copy.run) return operand;
      void* to = take(staged.bytes);
      staged.run(args, operand, to);
      return to;
    };
    void* inputs[] = {bring(first, args.inputs[first_input]), bring(second, args.inputs[second_input])};
    void* output = result.copy.run ? take(result.bytes) : args.outputs[0];
    KernelArgs inside = args;
    inside.inputs = inputs;
    inside.outputs = &output;
    inside.scratch = at;
    multiply(inside);
    if (result.copy.run) result.run(args, output, args.outputs[0]);
  };
  return kernel;
}

template <class T, bool kBlock>
__global__ void __launch_bounds__(1024)
    sum_kernel(const T* x, T* y, const __grid_constant__ cuda::DeviceAxes kept,
               const __grid_constant__ cuda::DeviceAxes summed, std::int64_t outputs, std::int64_t terms) {
  using G = RowGroup<kBlock>;
  using C = reduce::Sum::Compute<T>;
  for (std::int64_t r = G::first(); r < outputs; r += G::step()) {
    const T* from = x + kept.offset(r);
    C sum = 0;
    for (std::int64_t k = G::lane(); k < terms; k += G::size()) sum += static_cast<C>(from[summed.offset(k)]);
    sum = G::template reduce<reduce::Sum>(sum);
    if (G::lane() == 0) y[r] = static_cast<T>(sum);
  }
}

cuda::DeviceAxes device_axes(const PrepareContext& c, const EinsumSum::Axes& axes) {
  cuda::DeviceAxes result;
  for (std::size_t i = axes.sizes.size(); i-- > 0;)
    if (!result.add(axes.sizes[i], axes.strides[i])) c.fail("has too many axes");
  return result;
}

PreparedKernel prepare_sum(const PrepareContext& c, const EinsumSum& sum) {
  if (sum.terms == 1)
    return cuda::box_kernel(c, BoxPlan{.parts = {{sum.copy(dtype_size(c.outputs[0].dtype)), 0, 0}}});
  const cuda::DeviceAxes kept = device_axes(c, sum.kept), summed = device_axes(c, sum.summed);
  return with_number("Einsum", c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=, outputs = sum.outputs, terms = sum.terms](const KernelArgs& a) {
      cuda::launch_rows_of(terms, outputs, sum_kernel<T, false>, sum_kernel<T, true>, a.stream, a.in<T>(0),
                           a.out<T>(0), kept, summed, outputs, terms);
    };
    return kernel;
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  const Fail fail = [&c](const std::string& message) { c.fail(message); };
  std::vector<Shape> shapes;
  for (const OutputInfo& input : c.inputs) shapes.push_back(input.shape);
  const EinsumPlan plan(EinsumEquation(c.attr("equation", std::string()), shapes.size(), fail), shapes, fail);
  return shapes.size() == 2 ? prepare_product(c, plan, shapes) : prepare_sum(c, EinsumSum(plan, shapes[0]));
}

bool supports(const Node&, std::span<const OutputInfo> inputs) {
  return inputs.size() > 1 || inputs[0].shape.rank() <= cuda::DeviceAxes::kMax;
}

}  // namespace

void register_einsum_cuda(OpRegistry& registry) {
  registry.add_cuda("Einsum", prepare, supports);
  cuda_takes_halves({"Einsum"});
}

}  // namespace braid
