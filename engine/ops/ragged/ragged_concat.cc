// Two ragged values row by row, and back (ragged_offsets.h has the terms):
//   braid.RaggedConcat(a [m, row...], b [n, row...], [a_offsets], [b_offsets]) -> values [m + n, row...],
//     offsets [B + 1] int64: row r is a's row and b's behind it
//   braid.RaggedSplit(values [k, row...], like_a [m, ...], like_b [n, ...], [a_offsets], [b_offsets])
//     -> a [m, row...], b [n, row...]: what RaggedConcat was made of; of the likes only m and n count
// An attribute a_width or b_width, where it is not 0, stands in the place of offsets: each row of the batch
// has as many values. Behind the values that count are zeros, or with the attribute repeat_last (of ids, so
// that no other row of a table is touched) the last value that counts. Gradients are the other op.
#include <cstring>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/ragged/ragged_offsets.h"
#include "engine/ops/ragged/ragged_parts.h"

namespace braid {
namespace {

/// Returns the rows of the batch, or unknown. `values`: inputs of a and b.
std::int64_t check_parts(InferContext& c, const RaggedParts& parts, const int (&values)[2]) {
  std::int64_t batch = Shape::kUnknown;
  const auto meet = [&](std::int64_t rows) {
    if (batch >= 0 && rows >= 0 && batch != rows)
      c.fail("a and b have " + std::to_string(batch) + " and " + std::to_string(rows) +
             " rows of the batch, which must be equal");
    if (batch < 0) batch = rows;
  };
  if (parts.width[0] < 0 || parts.width[1] < 0) c.fail("a_width and b_width must not be negative");
  if (parts.offsets[0] < 0 && parts.offsets[1] < 0)
    c.fail("one of a and b must have offsets: a_width and b_width are both set");
  if (c.inputs() != parts.inputs)
    c.fail("needs " + std::to_string(parts.inputs) + " inputs, got " + std::to_string(c.inputs()));
  for (const int p : {0, 1}) {
    require_min_rank(c, values[p], 1);
    const std::int64_t rows = rows_of(c.shape(values[p]));
    if (parts.offsets[p] >= 0) {
      meet(check_offsets_input(c, parts.offsets[p]));
    } else if (rows >= 0) {
      if (rows % parts.width[p] != 0)
        c.fail(std::string(p == 0 ? "a" : "b") + " has " + std::to_string(rows) +
               " values, which is no multiple of its width " + std::to_string(parts.width[p]));
      meet(rows / parts.width[p]);
    }
  }
  return batch;
}

Shape row_of(const Shape& shape) { return with_rows(shape, 0); }

void infer_concat(InferContext& c) {
  const std::int64_t batch = check_parts(c, ragged_parts(c.node().attrs, 2), {0, 1});
  c.require_same_dtype(0, 1);
  const Shape &a = c.shape(0), &b = c.shape(1);
  if (a.has_rank() && b.has_rank() && row_of(a).is_static() && row_of(b).is_static() &&
      row_of(a) != row_of(b))
    c.fail("values of a and b must have one shape");
  const std::int64_t m = rows_of(a), n = rows_of(b);
  const Shape& row = a.has_rank() && (row_of(a).is_static() || !b.has_rank()) ? a : b;
  c.output(c.dtype(0), with_rows(row, m < 0 || n < 0 ? Shape::kUnknown : m + n));
  c.output(DType::Int64, {batch < 0 ? Shape::kUnknown : batch + 1});
}

void infer_split(InferContext& c) {
  check_parts(c, ragged_parts(c.node().attrs, 3), {1, 2});
  require_min_rank(c, 0, 1);
  for (const int like : {1, 2}) c.output(c.dtype(0), with_rows(c.shape(0), rows_of(c.shape(like))));
}

/// The lengths of a's and b's rows, checked.
struct PartReader {
  PartReader(const PrepareContext& c, const RaggedParts& parts, std::int64_t m, std::int64_t n)
      : place(place_of(c.node)), values{m, n} {
    for (const int p : {0, 1})
      if (parts.offsets[p] >= 0)
        inputs.emplace_back(c, parts.offsets[p]);
      else
        width[p] = parts.width[p];
  }
  RaggedOffsets read(const KernelArgs& args, int p) const {
    if (width[p] > 0) return RaggedOffsets::of_width(width[p], values[p] / width[p]);
    return inputs[p == 1 && inputs.size() == 2 ? 1 : 0].checked(args, values[p]);
  }

  std::string place;
  std::int64_t values[2];
  std::int64_t width[2] = {0, 0};
  std::vector<OffsetsInput> inputs;
};

using Bytes = const std::byte*;

void fill_rest(std::byte* out, std::int64_t used, std::int64_t all, std::size_t row, bool repeat) {
  std::byte* at = out + static_cast<std::size_t>(used) * row;
  if (!repeat || used == 0) {
    std::memset(at, 0, static_cast<std::size_t>(all - used) * row);
    return;
  }
  for (std::int64_t k = used; k < all; ++k, at += row) std::memcpy(at, at - row, row);
}

PreparedKernel prepare_concat(const PrepareContext& c) {
  const std::size_t row = row_bytes(c.outputs[0]);
  const std::int64_t all = c.outputs[0].shape[0], batch = c.outputs[1].shape[0] - 1;
  const bool repeat = c.attr("repeat_last", false);
  const PartReader parts(c, ragged_parts(c.node.attrs, 2), c.inputs[0].shape[0], c.inputs[1].shape[0]);
  return serial_kernel([=, pool = &c.pool](const KernelArgs& args) {
    const RaggedOffsets a = parts.read(args, 0), b = parts.read(args, 1);
    std::byte* out = args.out<std::byte>(0);
    auto* offsets = args.out<std::int64_t>(1);
    offsets[batch] = a.begin(batch) + b.begin(batch);
    const std::int64_t grain =
        row_grain(static_cast<std::int64_t>(row) * (all / std::max<std::int64_t>(batch, 1) + 1) / 4);
    pool->parallel_range(batch, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        offsets[r] = a.begin(r) + b.begin(r);
        std::byte* to = out + static_cast<std::size_t>(offsets[r]) * row;
        const std::size_t of_a = static_cast<std::size_t>(a.length(r)) * row;
        std::memcpy(to, args.in<std::byte>(0) + static_cast<std::size_t>(a.begin(r)) * row, of_a);
        std::memcpy(to + of_a, args.in<std::byte>(1) + static_cast<std::size_t>(b.begin(r)) * row,
                    static_cast<std::size_t>(b.length(r)) * row);
      }
    });
    fill_rest(out, offsets[batch], all, row, repeat);
  });
}

PreparedKernel prepare_split(const PrepareContext& c) {
  const std::size_t row = row_bytes(c.inputs[0]);
  const std::int64_t all = c.inputs[0].shape[0], m = c.outputs[0].shape[0], n = c.outputs[1].shape[0];
  const PartReader parts(c, ragged_parts(c.node.attrs, 3), m, n);
  return serial_kernel([=, pool = &c.pool](const KernelArgs& args) {
    const RaggedOffsets a = parts.read(args, 0), b = parts.read(args, 1);
    if (a.used() + b.used() > all)
      throw InvalidArgument(parts.place + ": a and b have " + std::to_string(a.used() + b.used()) +
                            " values, the input has room for " + std::to_string(all));
    const std::int64_t batch = a.rows();
    const std::int64_t grain =
        row_grain(static_cast<std::int64_t>(row) * (all / std::max<std::int64_t>(batch, 1) + 1) / 4);
    pool->parallel_range(batch, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        Bytes from = args.in<std::byte>(0) + static_cast<std::size_t>(a.begin(r) + b.begin(r)) * row;
        const std::size_t of_a = static_cast<std::size_t>(a.length(r)) * row;
        std::memcpy(args.out<std::byte>(0) + static_cast<std::size_t>(a.begin(r)) * row, from, of_a);
        std::memcpy(args.out<std::byte>(1) + static_cast<std::size_t>(b.begin(r)) * row, from + of_a,
                    static_cast<std::size_t>(b.length(r)) * row);
      }
    });
    fill_rest(args.out<std::byte>(0), a.used(), m, row, false);
    fill_rest(args.out<std::byte>(1), b.used(), n, row, false);
  });
}

/// The offsets of a and b and the widths, which both ops have alike.
void add_offsets(GradContext& c, std::vector<ValueRef>& inputs, int first) {
  for (int i = first; i < static_cast<int>(c.node().inputs.size()); ++i) inputs.push_back(c.input(i));
}
AttrMap widths(const AttrMap& attrs) {
  AttrMap same;
  for (const char* name : kPartWidths)
    if (const Attr* width = attrs.find(name)) same.set(name, *width);
  return same;
}

void concat_gradient(GradContext& c) {
  if (!c.grad(0).valid()) return;
  std::vector<ValueRef> inputs{c.grad(0), c.input(0), c.input(1)};
  add_offsets(c, inputs, 2);
  const ValueRef a = c.op("braid.RaggedSplit", inputs, widths(c.node().attrs));
  c.set_grad(0, a);
  c.set_grad(1, ValueRef{a.node, 1});
}

void split_gradient(GradContext& c) {
  std::vector<ValueRef> inputs;
  for (const int p : {0, 1})
    inputs.push_back(c.grad(p).valid() ? c.grad(p) : c.op("ZerosLike", {c.output(p)}));
  add_offsets(c, inputs, 3);
  const ValueRef both = c.op("braid.RaggedConcat", inputs, widths(c.node().attrs));
  c.set_grad(0, c.op("braid.RowsLike", {both, c.input(0)}));
}

}  // namespace

void register_ragged_concat(OpRegistry& registry) {
  registry.add({.name = "braid.RaggedConcat",
                .traits = computes().any_type().names({"values", "offsets"}),
                .min_inputs = 3,
                .max_inputs = 4,
                .infer = infer_concat,
                .gradient = concat_gradient,
                .cost = cost_per_output(0),
                .cpu = prepare_concat,
                .in_files = true});
  registry.add({.name = "braid.RaggedSplit",
                .traits = computes().any_type().names({"a", "b"}),
                .min_inputs = 4,
                .max_inputs = 5,
                .infer = infer_split,
                .gradient = split_gradient,
                .cost = cost_per_output(0),
                .cpu = prepare_split,
                .shape_only = {1, 2},
                .in_files = true});
}

}  // namespace braid
