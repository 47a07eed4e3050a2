#include "worker/strategies/keep_op.h"

#include <fmt/format.h>

#include "engine/ir/op.h"
#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/device_boxes.h"

namespace braid::worker {
namespace {

void infer_keep(InferContext& c) {
  const int count = c.inputs() / 2;
  if (c.inputs() != 2 * count) c.fail("as many values as variables are needed");
  for (int i = 0; i < count; ++i) {
    if (c.dtype(i) != DType::Resource) c.fail(fmt::format("input {} must be a variable's handle", i));
    Shape merged;
    if (!merge_shapes(c.shape(i), c.shape(count + i), merged))
      c.fail(fmt::format("variable {} is {}, its value {}", i, c.shape(i).to_string(),
                         c.shape(count + i).to_string()));
  }
}

BoxPlan copies_of(const PrepareContext& c) {
  const int count = static_cast<int>(c.inputs.size()) / 2;
  BoxPlan plan;
  for (int i = 0; i < count; ++i) {
    const OutputInfo &variable = c.inputs[static_cast<std::size_t>(i)],
                     &value = c.inputs[static_cast<std::size_t>(count + i)];
    if (variable.dtype != value.dtype)
      c.fail(fmt::format("variable {} holds {}, its value is {}", i, dtype_name(variable.dtype),
                         dtype_name(value.dtype)));
    const std::int64_t bytes = value.shape.elements() * static_cast<std::int64_t>(dtype_size(value.dtype));
    if (bytes > 0) plan.parts.push_back({BoxCopy({{bytes, 1, 1}}, 0, 0, 1), i, i});
  }
  return plan;
}

PreparedKernel prepare(const PrepareContext& c, PreparedKernel (*boxes)(const PrepareContext&, BoxPlan)) {
  BoxPlan plan = copies_of(c);
  PreparedKernel kernel;
  if (plan.parts.empty()) {
    kernel.run = [](const KernelArgs&) {};
    return kernel;
  }
  kernel.run = [copy = boxes(c, std::move(plan)), count = c.inputs.size() / 2](const KernelArgs& args) {
    KernelArgs all = args;
    all.inputs = args.inputs + count;
    all.outputs = args.inputs;  // a handle's pointer is the variable's memory
    copy.run(all);
  };
  return kernel;
}

}  // namespace

void register_keep_op(OpRegistry& registry) {
  OpDef op;
  op.name = "braid.KeepValues";
  op.traits = updates().any_type();
  op.min_inputs = 2;
  op.max_inputs = -1;
  op.infer = infer_keep;
  op.no_gradient_reason = "it writes variables";
  op.cpu = [](const PrepareContext& c) { return prepare(c, host_box_kernel); };
  op.further_handles = Access::Write;
  op.side_effect = true;
  registry.add(std::move(op));
  registry.add_cuda("braid.KeepValues",
                    [](const PrepareContext& c) { return prepare(c, device_box_kernel); });
}

}  // namespace braid::worker
