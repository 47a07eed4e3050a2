// Select and SelectV2: y = condition ? a : b. SelectV2 broadcasts all three; Select wants a and b of one
// shape and a condition of that shape, a scalar, or a vector that chooses rows. Gradient: dy where the
// operand was chosen, 0 elsewhere.
#include <fmt/format.h>

#include "engine/fusion/rules.h"
#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/select_shape.h"

namespace braid {
namespace {

template <class T>
BRAID_VECTOR_CLONES void select_run(const bool* condition, std::int64_t cs, const T* a, std::int64_t as,
                                    const T* b, std::int64_t bs, T* y, std::int64_t n) {
  if (cs != 0 && as != 0 && bs != 0) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : b[i];
  } else if (cs != 0 && as != 0) {
    const T other = *b;
    for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : other;
  } else if (cs != 0 && bs != 0) {
    const T chosen = *a;
    for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] ? chosen : b[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i * cs] ? a[i * as] : b[i * bs];
  }
}

template <class T>
PreparedKernel select_kernel(const PrepareContext& c, BroadcastPlan plan) {
  const std::int64_t elements = plan.elements();
  return parallel_kernel(
      c, elements, kElementGrain,
      [plan = std::move(plan)](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
        plan.for_runs(begin, end,
                      [&](std::int64_t at, const BroadcastPlan::Positions& from, std::int64_t count) {
                        select_run(args.in<bool>(0) + from[0], plan.inner_stride(0), args.in<T>(1) + from[1],
                                   plan.inner_stride(1), args.in<T>(2) + from[2], plan.inner_stride(2),
                                   args.out<T>(0) + at, count);
                      });
      });
}

PreparedKernel prepare(const PrepareContext& c, bool v2) {
  const Shape& out = c.outputs[0].shape;
  const Shape condition = v2 ? c.inputs[0].shape : row_condition(c.inputs[0].shape, out);
  return with_number_or_bool("Select", c.outputs[0].dtype, [&]<class T>() {
    return select_kernel<T>(c, BroadcastPlan({&condition, &c.inputs[1].shape, &c.inputs[2].shape}, out));
  });
}

void infer_v2(InferContext& c) {
  require_dtype(c, 0, {DType::Bool});
  c.require_same_dtype(1, 2);
  const Shape values = broadcast_shape(c, 1, 2);
  Shape out = Shape::unknown_rank();
  if (values.has_rank() && c.shape(0).has_rank() && !broadcast_shapes(c.shape(0), values, out))
    c.fail(
        fmt::format("condition {} does not broadcast with {}", c.shape(0).to_string(), values.to_string()));
  c.output(c.dtype(1), out);
}

void infer_v1(InferContext& c) {
  require_dtype(c, 0, {DType::Bool});
  c.require_same_dtype(1, 2);
  const Shape out = merged_shape(c, 1, 2);
  const Shape& condition = c.shape(0);
  if (condition.has_rank() && out.has_rank() && condition.rank() != 0) {
    Shape merged;
    const bool rows =
        condition.rank() == 1 && out.rank() >= 1 && merge_shapes(condition, Shape{out[0]}, merged);
    if (!rows && !merge_shapes(condition, out, merged))
      c.fail(fmt::format("condition must have shape {}, a vector of its rows, or a scalar, got {}",
                         out.to_string(), condition.to_string()));
  }
  c.output(c.dtype(1), out);
}

void gradient_v2(GradContext& c) {
  const ValueRef zero = grad::scalar(c, 0, 1);
  grad::set_broadcast_grad(c, 1, c.op("SelectV2", {c.input(0), c.grad(), zero}));
  grad::set_broadcast_grad(c, 2, c.op("SelectV2", {c.input(0), zero, c.grad()}));
}

void gradient_v1(GradContext& c) {
  const ValueRef zeros = c.op("ZerosLike", {c.grad()});
  c.set_grad(1, c.op("Select", {c.input(0), c.grad(), zeros}));
  c.set_grad(2, c.op("Select", {c.input(0), zeros, c.grad()}));
}

fusion::ElementLoop fused_loop(std::string_view, std::span<const DType> operands, DType dtype,
                               const fusion::Parameters&) {
  if (operands.size() != 3 || operands[0] != DType::Bool || operands[1] != dtype || operands[2] != dtype)
    return {};
  return with_number_or_bool("Select", dtype, [&]<class T>() -> fusion::ElementLoop {
    return [](const void* const* in, void* y, std::int64_t n) {
      select_run(static_cast<const bool*>(in[0]), 1, static_cast<const T*>(in[1]), 1,
                 static_cast<const T*>(in[2]), 1, static_cast<T*>(y), n);
    };
  });
}

/// Of Select: the other op, whose condition broadcasts.
bool fused_steps(fusion::StepWriter& w) {
  const Shape condition = row_condition(w.input_info(0).shape, w.output_info().shape);
  const int chosen = w.input_as(0, condition);
  const std::vector<int> operands{chosen, w.input(1), w.input(2)};
  w.output(0, w.apply_full("SelectV2", operands, w.output_info().dtype));
  return true;
}

}  // namespace

void register_select(OpRegistry& registry) {
  for (bool v2 : {false, true}) {
    OpDef def;
    def.name = v2 ? "SelectV2" : "Select";
    def.traits = (v2 ? broadcasts({"a ? b : c", {"0", "a ? 1 : 0", "a ? 0 : 1"}})
                     : pointwise_without_formula("a vector of conditions chooses rows"))
                     .on_string_ids()
                     .type_attrs({{"T", 1}});
    def.min_inputs = def.max_inputs = 3;
    def.infer = v2 ? infer_v2 : infer_v1;
    def.gradient = v2 ? gradient_v2 : gradient_v1;
    def.cost = cost_per_output(1);
    def.cpu = [v2](const PrepareContext& c) { return prepare(c, v2); };
    registry.add(std::move(def));
    if (v2)
      fusion::rules().add("SelectV2", {.loop = fused_loop});
    else
      fusion::rules().add("Select", {.steps = fused_steps});
  }
}

}  // namespace braid
