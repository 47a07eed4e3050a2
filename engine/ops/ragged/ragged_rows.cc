// What belongs to the rows of ragged values (ragged_offsets.h has the terms):
//   braid.RowsLike(x [m, row...], like [n, ...]) -> [n, row...]: the first rows of x, zeros behind them; of
//     `like` only n counts. Values in the room of others. Its gradient is the same op back
//   braid.SameOffsets(offsets [B + 1], other [B + 1]) -> offsets as int64: an error unless both are equal
//   braid.RaggedPositions(offsets [B + 1], like [n, ...]) -> [n] int64: a value's position i in its row, of
//     length l. Attributes: `prefix` p and `from_end`: i where i < p, else p + l - 1 - i; `limit`: at most
//     limit - 1, where it is not 0. Of values of no row: 0
#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/ragged/ragged_offsets.h"

namespace braid {
namespace {

void infer_rows_like(InferContext& c) {
  require_min_rank(c, 0, 1);
  require_min_rank(c, 1, 1);
  c.output(c.dtype(0), with_rows(c.shape(0), rows_of(c.shape(1))));
}

PreparedKernel prepare_rows_like(const PrepareContext& c) {
  const std::size_t row = row_bytes(c.outputs[0]);
  const std::int64_t rows = c.outputs[0].shape[0], kept = std::min(rows, c.inputs[0].shape[0]);
  const std::size_t copied = static_cast<std::size_t>(kept) * row, all = static_cast<std::size_t>(rows) * row;
  return serial_kernel([=](const KernelArgs& args) {
    std::memcpy(args.out<std::byte>(0), args.in<std::byte>(0), copied);
    std::memset(args.out<std::byte>(0) + copied, 0, all - copied);
  });
}

void infer_same_offsets(InferContext& c) {
  const std::int64_t a = check_offsets_input(c, 0), b = check_offsets_input(c, 1);
  if (a >= 0 && b >= 0 && a != b)
    c.fail("offsets are of " + std::to_string(a) + " and " + std::to_string(b) + " rows");
  const std::int64_t rows = a < 0 ? b : a;
  c.output(DType::Int64, {rows < 0 ? Shape::kUnknown : rows + 1});
}

PreparedKernel prepare_same_offsets(const PrepareContext& c) {
  const std::int64_t rows = c.outputs[0].shape[0] - 1;
  return serial_kernel([rows, place = place_of(c.node),
                        types = std::pair(c.inputs[0].dtype, c.inputs[1].dtype)](const KernelArgs& args) {
    const RaggedOffsets a(args.inputs[0], types.first, rows), b(args.inputs[1], types.second, rows);
    for (std::int64_t r = 0; r <= rows; ++r) {
      if (a.begin(r) != b.begin(r))
        throw InvalidArgument(place + ": lists that go together differ in length: row " +
                              std::to_string(r - 1) + " of the batch has " +
                              std::to_string(r > 0 ? a.length(r - 1) : a.begin(0)) + " values and " +
                              std::to_string(r > 0 ? b.length(r - 1) : b.begin(0)));
      args.out<std::int64_t>(0)[r] = a.begin(r);
    }
  });
}

void infer_positions(InferContext& c) {
  check_offsets_input(c, 0);
  require_min_rank(c, 1, 1);
  if (c.attr("prefix", std::int64_t{0}) < 0 || c.attr("limit", std::int64_t{0}) < 0)
    c.fail("prefix and limit must not be negative");
  c.output(DType::Int64, {rows_of(c.shape(1))});
}

PreparedKernel prepare_positions(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape[0], prefix = c.attr("prefix", std::int64_t{0});
  const std::int64_t limit = c.attr("limit", std::int64_t{0});
  const std::int64_t most = limit > 0 ? limit - 1 : n;
  const bool from_end = c.attr("from_end", false);
  const OffsetsInput input(c, 0);
  return serial_kernel([=](const KernelArgs& args) {
    const RaggedOffsets offsets = input.checked(args, n);
    auto* out = args.out<std::int64_t>(0);
    for (std::int64_t b = 0; b < offsets.rows(); ++b) {
      const std::int64_t length = offsets.length(b);
      std::int64_t* at = out + offsets.begin(b);
      for (std::int64_t i = 0; i < length; ++i)
        at[i] = std::min(i < prefix || !from_end ? i : prefix + length - 1 - i, most);
    }
    std::fill(out + offsets.used(), out + n, 0);
  });
}

}  // namespace

void register_ragged_rows(OpRegistry& registry) {
  registry.add({.name = "braid.RowsLike",
                .traits = computes().any_type(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_rows_like,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("braid.RowsLike", {c.grad(), c.input(0)}));
                    },
                .cost = cost_per_output(0),
                .cpu = prepare_rows_like,
                .shape_only = {1},
                .in_files = true});
  registry.add({.name = "braid.SameOffsets",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_same_offsets,
                .no_gradient_reason = "offsets have no gradient",
                .cpu = prepare_same_offsets,
                .in_files = true});
  registry.add({.name = "braid.RaggedPositions",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_positions,
                .no_gradient_reason = "positions follow from offsets alone",
                .cpu = prepare_positions,
                .shape_only = {1},
                .in_files = true});
}

}  // namespace braid
