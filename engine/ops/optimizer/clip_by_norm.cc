// What clipping gradients by their global norm takes beside L2Loss:
//   braid.RowsL2Loss(indices [n], values [n, row...]), attribute rows: half the sum of squares of the rows
//     of a sparse gradient, where rows of equal indices are summed first, in the order of their positions;
//     with the attribute skip_negative rows of negative indices are left out; values may be of 16 bits
//   braid.ClipScale(half squares...), attributes clip_norm and scaled: min(1, clip_norm / norm) with
//     norm = s sqrt(2 (sum of the inputs)), where s is StepParams::grad_scale or, unless `scaled`, 1.
//     Of a norm that is infinite or not a number it is NaN, as in TensorFlow, so that it shows.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
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
