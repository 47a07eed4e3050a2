// Ragged values as a dense tensor, and back (ragged_offsets.h has the terms):
//   braid.RaggedToDense(values [n, row...], offsets [B + 1]), attribute max_length L -> [B, L, row...]: row b
//     begins with its values, at most L, and has zeros behind them
//   braid.DenseToRagged(dense [B, L, row...], offsets [B + 1], like [n, ...]) -> [n, row...]: values of rows,
//     zeros for those beyond L; of `like` only n counts
// Gradients are the other op.
#include <cstring>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/ragged/ragged_offsets.h"

namespace braid {
namespace {

constexpr const char* kMaxLength = "max_length";

void infer_to_dense(InferContext& c) {
  require_min_rank(c, 0, 1);
  const std::int64_t batch = check_offsets_input(c, 1), length = c.attr(kMaxLength, std::int64_t{0});
  if (length < 1) c.fail("max_length must be positive");
  if (!c.shape(0).has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims{batch, length};
  const auto row = c.shape(0).dims().subspan(1);
  dims.insert(dims.end(), row.begin(), row.end());
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void infer_to_ragged(InferContext& c) {
  require_min_rank(c, 0, 2);
  require_min_rank(c, 2, 1);
  const std::int64_t batch = check_offsets_input(c, 1), rows = rows_of(c.shape(0));
  if (batch >= 0 && rows >= 0 && batch != rows)
    c.fail("dense has " + std::to_string(rows) + " rows, offsets are of " + std::to_string(batch));
  if (!c.shape(0).has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims{rows_of(c.shape(2))};
  const auto row = c.shape(0).dims().subspan(2);
  dims.insert(dims.end(), row.begin(), row.end());
  c.output(c.dtype(0), Shape(std::move(dims)));
}

PreparedKernel prepare_to_dense(const PrepareContext& c) {
  const std::size_t row = row_bytes(c.inputs[0]);
  const std::int64_t values = c.inputs[0].shape[0], length = c.outputs[0].shape[1];
  const OffsetsInput input(c, 1);
  return serial_kernel([=, pool = &c.pool](const KernelArgs& args) {
    const RaggedOffsets offsets = input.checked(args, values);
    const std::size_t bytes = static_cast<std::size_t>(length) * row;
    pool->parallel_range(
        input.rows(), row_grain(static_cast<std::int64_t>(bytes / 4)),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) {
            const std::size_t have = static_cast<std::size_t>(std::min(offsets.length(b), length)) * row;
            std::byte* to = args.out<std::byte>(0) + static_cast<std::size_t>(b) * bytes;
            std::memcpy(to, args.in<std::byte>(0) + static_cast<std::size_t>(offsets.begin(b)) * row, have);
            std::memset(to + have, 0, bytes - have);
          }
        });
  });
}

PreparedKernel prepare_to_ragged(const PrepareContext& c) {
  const std::size_t row = row_bytes(c.outputs[0]);
  const std::int64_t values = c.outputs[0].shape[0], length = c.inputs[0].shape[1];
  const OffsetsInput input(c, 1);
  return serial_kernel([=, pool = &c.pool](const KernelArgs& args) {
    const RaggedOffsets offsets = input.checked(args, values);
    std::byte* out = args.out<std::byte>(0);
    const std::size_t bytes = static_cast<std::size_t>(length) * row;
    pool->parallel_range(input.rows(), row_grain(static_cast<std::int64_t>(bytes / 4)),
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t b = begin; b < end; ++b) {
                             const std::size_t all = static_cast<std::size_t>(offsets.length(b)) * row;
                             const std::size_t have = std::min(all, bytes);
                             std::byte* to = out + static_cast<std::size_t>(offsets.begin(b)) * row;
                             std::memcpy(to, args.in<std::byte>(0) + static_cast<std::size_t>(b) * bytes,
                                         have);
                             std::memset(to + have, 0, all - have);
                           }
                         });
    std::memset(out + static_cast<std::size_t>(offsets.used()) * row, 0,
                static_cast<std::size_t>(values - offsets.used()) * row);
  });
}

void to_dense_gradient(GradContext& c) {
  c.set_grad(0, c.op("braid.DenseToRagged", {c.grad(), c.input(1), c.input(0)}));
}

/// The length of the dense tensor must be known: gradients are made before shapes of feeds are, but a length
/// is never one of them.
void to_ragged_gradient(GradContext& c) {
  const Shape& dense = c.input_info(0).shape;
  if (!dense.has_rank() || dense[1] < 1)
    throw InvalidArgument(place_of(c.node()) +
                          ": its gradient needs the length of dense, axis 1, to be known");
  c.set_grad(0, c.op("braid.RaggedToDense", {c.grad(), c.input(1)}, {{kMaxLength, dense[1]}}));
}

}  // namespace

void register_ragged_dense(OpRegistry& registry) {
  registry.add({.name = "braid.RaggedToDense",
                .traits = computes().any_type(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_to_dense,
                .gradient = to_dense_gradient,
                .cost = cost_per_output(0),
                .cpu = prepare_to_dense,
                .in_files = true});
  registry.add({.name = "braid.DenseToRagged",
                .traits = computes().any_type(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_to_ragged,
                .gradient = to_ragged_gradient,
                .cost = cost_per_output(0),
                .cpu = prepare_to_ragged,
                .shape_only = {2},
                .in_files = true});
}

}  // namespace braid
