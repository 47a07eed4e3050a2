// What clipping gradients by their global norm takes beside L2Loss:
//   braid.RowsL2Loss(indices [n], values [n, row...]), attribute rows: half the sum of squares of the rows
//     of a sparse gradient, where rows of equal indices are summed first, in the order of their positions;
//     with the attribute skip_negative rows of negative indices are left out; values may be of 16 bits
//   braid.RowsL2LossMany(values of each table..., entries), attribute rows [tables]: the sum of that over
//     tables, whose rows are grouped (engine/ops/common/row_entries.h)
//   braid.L2LossMany(x...): half the sum of squares of all
//   braid.ClipScale(half squares...), attributes clip_norm and scaled: min(1, clip_norm / norm) with
//     norm = s sqrt(2 (sum of the inputs)), where s is StepParams::grad_scale or, unless `scaled`, 1.
//     Of a norm that is infinite or not a number it is NaN, as in TensorFlow, so that it shows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/clip_scale.h"

namespace braid {
namespace {

void infer_rows(InferContext& c) {
  c.require_rank(0, 1);
  require_index_dtype(c, 0);
  require_dtype(c, 1, {DType::Float32});
  const Shape& values = c.shape(1);
  if (values.has_rank() && values.rank() == 0) c.fail("a scalar has no rows");
  if (values.has_rank() && c.shape(0).has_rank() && c.shape(0)[0] >= 0 && values[0] >= 0 &&
      c.shape(0)[0] != values[0])
    c.fail("there are " + std::to_string(c.shape(0)[0]) + " indices, but " + std::to_string(values[0]) +
           " rows of values");
  if (c.attr<std::int64_t>("rows", -1) < 0) c.fail("attribute rows must not be negative");
  c.output(DType::Float32, Shape{});
}

/// The sum of squares of the summed rows of a group.
double group_squares(const IndexGroups& groups, std::int64_t group, const float* values, std::int64_t width) {
  constexpr std::int64_t kPiece = 512;
  std::array<float, kPiece> sum;
  double squares = 0;
  for (std::int64_t at = 0; at < width; at += kPiece) {
    const std::int64_t n = std::min(kPiece, width - at);
    std::copy_n(values + groups.position(groups.begin(group)) * width + at, n, sum.data());
    for (std::int64_t e = groups.begin(group) + 1; e < groups.end(group); ++e)
      add_row(sum.data(), values + groups.position(e) * width + at, n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(sum[static_cast<std::size_t>(i)]);
      squares += x * x;
    }
  }
  return squares;
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0], rows = c.attr<std::int64_t>("rows", 0);
  const std::int64_t width = n == 0 ? 0 : c.inputs[1].shape.elements() / n;
  return with_index("braid.RowsL2Loss", c.inputs[0].dtype, [&]<class I>() {
    PreparedKernel kernel;
    const std::size_t groups_bytes = (IndexGroups::scratch_bytes(n) + 63) / 64 * 64;
    kernel.scratch_bytes = groups_bytes + static_cast<std::size_t>(n) * sizeof(double);
    kernel.run = [=, pool = &c.pool, place = place_of(c.node),
                  padded = c.attr(kSkipNegative, false)](const KernelArgs& a) {
      (padded ? check_segment_ids<I> : check_indices<I>)(place, a.in<I>(0), n, rows);
      const IndexGroups groups(a.in<I>(0), n, rows, a.scratch);
      auto* squares = reinterpret_cast<double*>(static_cast<std::byte*>(a.scratch) + groups_bytes);
      pool->parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t g = first; g < last; ++g)
          squares[g] = group_squares(groups, g, a.in<float>(1), width);
      });
      double sum = 0;
      for (std::int64_t g = 0; g < groups.size(); ++g) sum += squares[g];
      *a.out<float>(0) = static_cast<float>(sum / 2);
    };
    return kernel;
  });
}

using Rows = std::vector<std::int64_t>;

void infer_many_rows(InferContext& c) {
  const Rows rows = c.attr<Rows>("rows", {});
  const int entries = c.inputs() - 1;
  if (std::ssize(rows) != entries)
    c.fail(fmt::format("rows: expected those of {} tables, got {}", entries, rows.size()));
  std::int64_t all = 0;
  for (int t = 0; t < entries; ++t) {
    require_dtype(c, t, {DType::Float32});
    const Shape& values = c.shape(t);
    if (values.has_rank() && values.rank() == 0) c.fail("a scalar has no rows");
    all = all < 0 || !values.has_rank() || values[0] < 0 ? Shape::kUnknown : all + values[0];
  }
  require_dtype(c, entries, {DType::Int64});
  Shape merged;
  if (!merge_shapes(c.shape(entries), Shape{all}, merged))
    c.fail("an entry for each row of values is needed");
  c.output(DType::Float32, Shape{});
}

PreparedKernel prepare_many_rows(const PrepareContext& c) {
  PreparedKernel kernel;
  const Rows rows = c.attr<Rows>("rows", {});
  for (std::size_t t = 0; t < rows.size(); ++t)
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, IndexGroups::scratch_bytes(c.inputs[t].shape[0]));
  kernel.run = [rows,
                values = std::vector<OutputInfo>(c.inputs.begin(), c.inputs.end() - 1)](const KernelArgs& a) {
    const auto* entries = a.in<std::int64_t>(static_cast<int>(values.size()));
    auto* own = static_cast<std::uint64_t*>(a.scratch);
    double sum = 0;
    EntryBase base;
    for (std::size_t t = 0; t < values.size(); ++t) {
      const std::int64_t n = values[t].shape[0], width = n == 0 ? 0 : values[t].shape.elements() / n;
      std::transform(entries + base.entry, entries + base.entry + n, own,
                     [key = base.key()](std::int64_t e) { return static_cast<std::uint64_t>(e) - key; });
      const IndexGroups groups(n, a.scratch);
      for (std::int64_t g = 0; g < groups.size() && groups.index(g) < rows[t]; ++g)
        sum += group_squares(groups, g, a.in<float>(static_cast<int>(t)), width);
      base.pass(rows[t], n);
    }
    *a.out<float>(0) = static_cast<float>(sum / 2);
  };
  return kernel;
}

/// All are read once.
Cost cost_of_inputs(const InferContext& c, std::span<const OutputInfo>) {
  Cost cost;
  for (int i = 0; i < c.inputs(); ++i) {
    cost.bytes += known_bytes({c.dtype(i), c.shape(i)});
    cost.flops += 2 * known_elements(c.shape(i));
  }
  return cost;
}

void infer_tensors(InferContext& c) {
  for (int i = 0; i < c.inputs(); ++i) require_dtype(c, i, {DType::Float32});
  c.output(DType::Float32, Shape{});
}

PreparedKernel prepare_tensors(const PrepareContext& c) {
  std::vector<std::int64_t> elements;
  for (const OutputInfo& input : c.inputs) elements.push_back(input.shape.elements());
  return serial_kernel([elements = std::move(elements)](const KernelArgs& a) {
    double sum = 0;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto* x = a.in<float>(static_cast<int>(i));
      for (std::int64_t k = 0; k < elements[i]; ++k)
        sum += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    }
    *a.out<float>(0) = static_cast<float>(sum / 2);
  });
}

void infer_scale(InferContext& c) {
  for (int i = 0; i < c.inputs(); ++i) {
    require_dtype(c, i, {DType::Float32});
    c.require_rank(i, 0);
  }
  if (!(c.attr<double>("clip_norm", 0) > 0)) c.fail("attribute clip_norm must be above 0");
  c.output(DType::Float32, Shape{});
}

PreparedKernel prepare_scale(const PrepareContext& c) {
  return serial_kernel([count = static_cast<int>(c.inputs.size()),
                        most = static_cast<float>(c.attr<double>("clip_norm", 0)),
                        scaled = c.attr<bool>("scaled", false)](const KernelArgs& a) {
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += *a.in<float>(i);
    const float norm = (scaled ? a.params->grad_scale : 1.0F) * std::sqrt(2 * sum);
    *a.out<float>(0) = clip_scale(norm, most);
  });
}

}  // namespace

void register_clip_by_norm(OpRegistry& registry) {
  const char* reason = "works on gradients, after differentiation";
  OpDef rows;
  rows.name = "braid.RowsL2Loss";
  rows.traits = computes();
  rows.min_inputs = rows.max_inputs = 2;
  rows.infer = infer_rows;
  rows.no_gradient_reason = reason;
  rows.cpu = prepare_rows;
  registry.add(takes_halves(std::move(rows), {.kind = HalfKind::Follower, .inputs = {1}}));

  registry.add(takes_halves({.name = "braid.RowsL2LossMany",
                             .traits = computes(),
                             .min_inputs = 2,
                             .max_inputs = -1,
                             .infer = infer_many_rows,
                             .no_gradient_reason = reason,
                             .cost = cost_of_inputs,
                             .cpu = prepare_many_rows},
                            {.kind = HalfKind::Follower, .inputs_of = [](const Node& node) {
                               std::vector<int> values(node.inputs.size() - 1);
                               std::iota(values.begin(), values.end(), 0);
                               return values;
                             }}));
  registry.add({.name = "braid.L2LossMany",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_tensors,
                .no_gradient_reason = reason,
                .cost = cost_of_inputs,
                .cpu = prepare_tensors});

  OpDef scale;
  scale.name = "braid.ClipScale";
  scale.traits = computes();
  scale.min_inputs = 1;
  scale.max_inputs = -1;
  scale.infer = infer_scale;
  scale.no_gradient_reason = reason;
  scale.cpu = prepare_scale;
  scale.stateful = true;  // the step's gradient scale may change from step to step
  registry.add(std::move(scale));
}

}  // namespace braid
