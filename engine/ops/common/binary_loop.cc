#include "engine/ops/common/binary_loop.h"

namespace braid {

PreparedKernel prepare_binary(const PrepareContext& c, const BinaryLoops& loops, const Shape& a_shape,
                              const Shape& b_shape) {
  const DType dtype = c.inputs[0].dtype;
  const BinaryLoop loop = loops.of(dtype);
  if (!loop) throw_no_kernel(c.node.op->name, dtype);
  const auto in_size = static_cast<std::int64_t>(dtype_size(dtype));
  const auto out_size = static_cast<std::int64_t>(dtype_size(c.outputs[0].dtype));
  BroadcastPlan plan({&a_shape, &b_shape}, c.outputs[0].shape);
  const std::int64_t elements = plan.elements();
  return parallel_kernel(
      c, elements, kElementGrain,
      [=, plan = std::move(plan)](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
        const char* a = args.in<char>(0);
        const char* b = args.in<char>(1);
        char* y = args.out<char>(0);
        plan.for_tiles(
            begin, end,
            [&](std::int64_t at, const BroadcastPlan::Positions& from, std::int64_t rows, std::int64_t n) {
              loop({.a = a + from[0] * in_size,
                    .b = b + from[1] * in_size,
                    .y = y + at * out_size,
                    .rows = rows,
                    .n = n,
                    .a_row = plan.row_stride(0),
                    .a_inner = plan.inner_stride(0),
                    .b_row = plan.row_stride(1),
                    .b_inner = plan.inner_stride(1)});
            });
      });
}

}  // namespace braid
