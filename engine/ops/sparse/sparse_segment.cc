// SparseSegmentSum, Mean, SqrtN(data, indices, segment_ids): y[s] = the sum of data[indices[k]] over the k
// with segment_ids[k] == s, divided by their number n or by sqrt(n); the ids never fall. The WithNumSegments
// forms are told the number of segments; the others have as many as the last id says. An empty segment is 0.
// SparseSegment*Grad(dy, indices, segment_ids, output_dim0): its gradient, rows added in the order of k.
// GradV2 gives only the rows that indices name, and their numbers, which rise: that the indices are known
// decides how many.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/segment_rules.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

enum class Scale { Sum, Mean, SqrtN };

void require_operands(InferContext& c) {
  require_number(c, 0);
  for (const int i : {1, 2}) {
    require_index_dtype(c, i);
    c.require_rank(i, 1);
  }
  merged_shape(c, 1, 2);
  require_min_rank(c, 0, 1);
}

void infer(InferContext& c) {
  require_operands(c);
  std::int64_t segments = Shape::kUnknown;
  if (c.inputs() > 3)
    segments = count_input(c, 3, "num_segments");
  else if (c.value(2))
    segments = sorted_segment_count(c, *c.value(2));
  c.output(c.dtype(0),
           c.shape(0).has_rank() ? segments_shape(c.shape(0), 1, segments) : Shape::unknown_rank());
}

void infer_grad(InferContext& c) {
  require_operands(c);
  const std::int64_t rows = count_input(c, 3, "output_dim0");
  c.output(c.dtype(0), c.shape(0).has_rank() ? segments_shape(c.shape(0), 1, rows) : Shape::unknown_rank());
}

std::int64_t distinct_count(const Tensor& indices) {
  std::vector<std::int64_t> sorted = tensor_to_int64s(indices);
  std::sort(sorted.begin(), sorted.end());
  return std::unique(sorted.begin(), sorted.end()) - sorted.begin();
}

void infer_grad_rows(InferContext& c) {
  require_operands(c);
  count_input(c, 3, "dense_output_dim0");
  const std::int64_t rows = c.value(1) ? distinct_count(*c.value(1)) : Shape::kUnknown;
  c.output(c.dtype(0), c.shape(0).has_rank() ? segments_shape(c.shape(0), 1, rows) : Shape::unknown_rank());
  c.output(c.dtype(1), Shape{rows});
}

std::int64_t width_of(const Shape& rows) {
  std::int64_t width = 1;
  for (int i = 1; i < rows.rank(); ++i) width *= rows[i];
  return width;
}

template <class T>
T scale_of(Scale scale, std::int64_t n) {
  if (scale == Scale::Sum) return T(1);
  return static_cast<T>(scale == Scale::Mean ? 1.0 / static_cast<double>(n)
                                             : 1.0 / std::sqrt(static_cast<double>(n)));
}

template <class I>
void find_segments(const std::string& place, const I* ids, std::int64_t n, std::int64_t segments,
                   std::int64_t* starts) {
  std::int64_t next = 0;  // the segment whose start is not known yet
  for (std::int64_t k = 0; k < n; ++k) {
    const auto id = static_cast<std::int64_t>(ids[k]);
    if (id < 0 || id >= segments || id < next - 1)
      throw InvalidArgument(
          fmt::format("{}: segment_ids[{}] = {} falls, or is not in [0, {})", place, k, id, segments));
    while (next <= id) starts[next++] = k;
  }
  while (next <= segments) starts[next++] = n;
}

/// starts[s] is the first k of segment s; starts[segments] is n. Fails for ids that fall or are out of range.
void find_segments(const std::string& place, DType dtype, const void* ids, std::int64_t n,
                   std::int64_t segments, std::int64_t* starts) {
  with_index(place, dtype,
             [&]<class I>() { find_segments(place, static_cast<const I*>(ids), n, segments, starts); });
}

PreparedKernel prepare(Scale scale_by, const PrepareContext& c) {
  const std::int64_t n = c.inputs[1].shape[0], rows = c.inputs[0].shape[0], segments = c.outputs[0].shape[0];
  const std::int64_t width = width_of(c.outputs[0].shape);
  const std::string& name = c.node.op->name;
  return with_number(name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(name, c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = static_cast<std::size_t>(segments + 1) * sizeof(std::int64_t);
      kernel.run = [=, pool = &c.pool, ids = c.inputs[2].dtype,
                    place = place_of(c.node)](const KernelArgs& a) {
        auto* starts = static_cast<std::int64_t*>(a.scratch);
        const I* indices = a.in<I>(1);
        check_indices(place, indices, n, rows);
        find_segments(place, ids, a.inputs[2], n, segments, starts);
        pool->parallel_range(segments, row_grain(width), [&](std::int64_t begin, std::int64_t end) {
          std::fill(a.out<T>(0) + begin * width, a.out<T>(0) + end * width, T{});
          for (std::int64_t s = begin; s < end; ++s) {
            T* y = a.out<T>(0) + s * width;
            for (std::int64_t k = starts[s]; k < starts[s + 1]; ++k)
              add_row(y, a.in<T>(0) + static_cast<std::int64_t>(indices[k]) * width, width);
            if (scale_by == Scale::Sum || starts[s] == starts[s + 1]) continue;
            const T scale = scale_of<T>(scale_by, starts[s + 1] - starts[s]);
            for (std::int64_t i = 0; i < width; ++i) y[i] *= scale;
          }
        });
      };
      return kernel;
    });
  });
}

PreparedKernel prepare_grad(Scale scale_by, const PrepareContext& c) {
  const std::int64_t n = c.inputs[1].shape[0], segments = c.inputs[0].shape[0];
  const std::int64_t rows = tensor_to_int64s(*c.values[3])[0], out_rows = c.outputs[0].shape[0];
  const bool named_only = c.outputs.size() > 1;
  const std::int64_t width = width_of(c.outputs[0].shape);
  const std::string& name = c.node.op->name;
  const std::size_t starts_bytes =
      (static_cast<std::size_t>(segments + 1) * sizeof(std::int64_t) + 63) / 64 * 64;
  return with_number(name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(name, c.inputs[1].dtype, [&]<class I>() {
      return with_index(name, c.inputs[2].dtype, [&]<class S>() {
        PreparedKernel kernel;
        kernel.scratch_bytes = starts_bytes + IndexGroups::scratch_bytes(n);
        kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
          auto* starts = static_cast<std::int64_t*>(a.scratch);
          const S* ids = a.in<S>(2);
          check_indices(place, a.in<I>(1), n, rows);
          find_segments(place, ids, n, segments, starts);
          const IndexGroups groups(a.in<I>(1), n, rows, static_cast<char*>(a.scratch) + starts_bytes);
          pool->parallel_range(out_rows * width, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
            std::fill(a.out<T>(0) + begin, a.out<T>(0) + end, T{});
          });
          pool->parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t g = first; g < last; ++g) {
              T* dx = a.out<T>(0) + (named_only ? g : groups.index(g)) * width;
              if (named_only) a.out<I>(1)[g] = static_cast<I>(groups.index(g));
              for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
                const auto s = static_cast<std::int64_t>(ids[groups.position(e)]);
                const T* dy = a.in<T>(0) + s * width;
                const T scale = scale_of<T>(scale_by, starts[s + 1] - starts[s]);
                for (std::int64_t i = 0; i < width; ++i) dx[i] += scale * dy[i];
              }
            }
          });
        };
        return kernel;
      });
    });
  });
}

struct Row {
  const char* name;
  Scale scale;
};

constexpr Row kRows[] = {
    {"SparseSegmentSum", Scale::Sum},
    {"SparseSegmentMean", Scale::Mean},
    {"SparseSegmentSqrtN", Scale::SqrtN},
};

}  // namespace

void register_sparse_segment(OpRegistry& registry) {
  for (const Row& row : kRows) {
    const std::string grad_name = std::string(row.name) + "Grad";
    for (const bool counted : {false, true}) {
      OpDef def;
      def.name = row.name + std::string(counted ? "WithNumSegments" : "");
      def.traits = computes();
      def.min_inputs = def.max_inputs = counted ? 4 : 3;
      def.infer = [sum = std::string_view(row.name) == "SparseSegmentSum"](InferContext& c) {
        if (!sum) require_floating(c, 0);
        infer(c);
      };
      def.gradient = [grad_name](GradContext& c) {
        const ValueRef shape = c.op("Shape", {c.input(0)}, {{"out_type", DType::Int32}});
        const ValueRef rows = c.op("Gather", {shape, c.constant(Tensor::scalar(std::int32_t{0}))});
        c.set_grad(0, c.op(grad_name, {c.grad(), c.input(1), c.input(2), rows}));
      };
      def.cost = cost_per_output(2);
      def.cpu = [scale = row.scale](const PrepareContext& c) { return prepare(scale, c); };
      def.shape_values = {counted ? 3 : 2};
      registry.add(std::move(def));
    }
    registry.add({.name = grad_name,
                  .traits = computes(),
                  .min_inputs = 4,
                  .max_inputs = 4,
                  .infer = infer_grad,
                  .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                  .cost = cost_per_output(2),
                  .cpu = [scale = row.scale](const PrepareContext& c) { return prepare_grad(scale, c); },
                  .shape_values = {3}});
    registry.add({.name = grad_name + "V2",
                  .traits = computes().names({"output", "sorted_unique_indices"}),
                  .min_inputs = 4,
                  .max_inputs = 4,
                  .infer = infer_grad_rows,
                  .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                  .cost = cost_per_output(2),
                  .cpu = [scale = row.scale](const PrepareContext& c) { return prepare_grad(scale, c); },
                  .shape_values = {1, 3}});
  }
}

}  // namespace braid
