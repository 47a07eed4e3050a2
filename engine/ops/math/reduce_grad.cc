// What gradients of reductions need.
// braid.BroadcastReduced(value, like, axes): the result of a reduction of `like` along `axes`, with or
// without its axes of size 1, put back to like's shape. With attribute `divide`, divided by the number of
// elements that each result was made of. braid.ProdGrad(x, dy, axes): dx = dy times the product of the other
// elements of the group; exact with any number of zeros.
#include "engine/fusion/rules.h"
#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/joined_axes.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

template <class T>
BRAID_VECTOR_CLONES void copy_run(const T* x, std::int64_t stride, T factor, T* y, std::int64_t n) {
  if (stride == 0) {
    const T value = *x * factor;
    for (std::int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
  }
}

PreparedKernel prepare_broadcast(const PrepareContext& c) {
  const Shape& like = c.inputs[1].shape;
  const std::vector<int> axes = known_axes(c, 2, like.rank());
  const Shape kept = reduced_shape(like, axes, true);
  const std::int64_t count = reduced_count(like, axes);
  const bool divide = c.attr<bool>("divide", false);
  return with_float("braid.BroadcastReduced", c.inputs[0].dtype, [&]<class T>() {
    const T factor = divide && count > 0 ? T(1) / static_cast<T>(count) : T(1);
    return parallel_kernel(
        c, like.elements(), kElementGrain,
        [plan = BroadcastPlan({&kept}, like), factor](const KernelArgs& args, std::int64_t begin,
                                                      std::int64_t end) {
          plan.for_runs(begin, end, [&](std::int64_t at, const auto& from, std::int64_t n) {
            copy_run(args.in<T>(0) + from[0], plan.inner_stride(0), factor, args.out<T>(0) + at, n);
          });
        });
  });
}

/// Offsets of all index combinations along the axes for which `chosen` holds, outermost first.
template <class Chosen>
std::vector<std::int64_t> offsets_along(const Shape& shape, Chosen chosen) {
  std::vector<std::int64_t> offsets = {0};
  std::int64_t stride = shape.elements();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 0) return {};
    stride /= shape[axis];
    if (!chosen(axis)) continue;
    std::vector<std::int64_t> next;
    next.reserve(offsets.size() * static_cast<std::size_t>(shape[axis]));
    for (std::int64_t offset : offsets)
      for (std::int64_t i = 0; i < shape[axis]; ++i) next.push_back(offset + i * stride);
    offsets = std::move(next);
  }
  return offsets;
}

PreparedKernel prepare_prod(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::vector<int> axes = known_axes(c, 2, shape.rank());
  const auto is_reduced = [&](int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  std::vector<std::int64_t> group = offsets_along(shape, is_reduced);
  std::vector<std::int64_t> groups = offsets_along(shape, [&](int axis) { return !is_reduced(axis); });
  if (shape.elements() == 0) groups.clear();
  const auto count = static_cast<std::int64_t>(groups.size());
  const std::int64_t grain = row_grain(static_cast<std::int64_t>(group.size()));
  return with_float("braid.ProdGrad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, count, grain,
                           [group, groups](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t g = begin; g < end; ++g) {
                               const T* x = args.in<T>(0) + groups[static_cast<std::size_t>(g)];
                               T* dx = args.out<T>(0) + groups[static_cast<std::size_t>(g)];
                               T before = args.in<T>(1)[g], after = 1;
                               for (std::size_t k = 0; k < group.size(); before *= x[group[k]], ++k)
                                 dx[group[k]] = before;
                               for (std::size_t k = group.size(); k-- > 0; after *= x[group[k]])
                                 dx[group[k]] *= after;
                             }
                           });
  });
}

bool fused_broadcast(fusion::StepWriter& w) {
  const Shape& like = w.output_info().shape;
  if (!w.known(2)) return false;
  Shape kept = like;
  std::int64_t count = 1;
  for (const std::int64_t axis : tensor_to_int64s(*w.known(2))) {
    const int a = static_cast<int>(axis < 0 ? axis + like.rank() : axis);
    count *= kept[a];
    kept.set_dim(a, 1);
  }
  const DType dtype = w.output_info().dtype;
  const bool divide = w.node().attrs.get<bool>("divide", false);
  const double factor = !divide                   ? 1
                        : dtype == DType::Float32 ? double{1.0F / static_cast<float>(count)}
                                                  : 1 / static_cast<double>(count);
  const int x = w.input_as(0, kept);
  w.output(0, w.apply_full("Mul", {x, w.constant(factor, dtype)}, dtype));
  return true;
}

constexpr const char* kReason = "it is part of a gradient; second derivatives are not made";

}  // namespace

void register_reduce_grad(OpRegistry& registry) {
  OpDef broadcast;
  broadcast.name = "braid.BroadcastReduced";
  broadcast.traits = computes();
  broadcast.min_inputs = broadcast.max_inputs = 3;
  broadcast.infer = [](InferContext& c) {
    require_floating(c, 0);
    c.output(c.dtype(0), c.shape(1));
  };
  broadcast.no_gradient_reason = kReason;
  broadcast.cost = cost_per_output(1);
  broadcast.cpu = prepare_broadcast;
  broadcast.shape_values = {2};
  broadcast.shape_only = {1};
  registry.add(std::move(broadcast));
  fusion::rules().add("braid.BroadcastReduced", {.steps = fused_broadcast});

  OpDef prod;
  prod.name = "braid.ProdGrad";
  prod.traits = computes();
  prod.min_inputs = prod.max_inputs = 3;
  prod.infer = [](InferContext& c) {
    require_floating(c, 0);
    c.require_same_dtype(0, 1);
    infer_same_as_first(c);
  };
  prod.no_gradient_reason = kReason;
  prod.cost = cost_per_output(3);
  prod.cpu = prepare_prod;
  prod.shape_values = {2};
  registry.add(std::move(prod));
}

}  // namespace braid
