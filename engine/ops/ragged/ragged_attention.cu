// CUDA kernels of braid.RaggedAttention and its gradients. A plan of the batch is made first
// (attention_plan.cuh); then come blocks of tensor cores where widths of heads, up to 128, are multiples of
// 16 bytes, else plain ones. float32 values are rounded to TF32 where the device's options allow it.
#include "engine/ops/common/device_boxes.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/ragged/attention_args.cuh"

namespace braid {
namespace {

namespace on_device = cuda::attention;
using attention::Inputs;
using on_device::RaggedArgs;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// What a node says, and which kernels it has.
struct Work {
  Work(const PrepareContext& c, bool backward)
      : in(attention::inputs_of(c.node, backward)),
        type(c.inputs[0].dtype),
        planner(c, in),
        offsets(c, in.offsets(), c.inputs[0].shape[0]),
        plain(on_device::plain_kernels<RaggedArgs>(type, in.softmax)) {
    const Shape &q = c.inputs[0].shape, &v = c.inputs[2].shape;
    const attention::HeadParts parts(c.node.attrs);
    const auto narrow = [](std::int64_t x) {
      return static_cast<std::int32_t>(std::min<std::int64_t>(x, 1 << 30));  // as good as no limit
    };
    const MaskRules rules = attention::rules_of(c.node.attrs);
    args.rules = {rules.causal, narrow(rules.window), narrow(rules.context)};
    args.heads = narrow(parts.heads > 0 ? parts.heads : q[1]);
    args.qk_width = narrow(q[2]);
    args.v_width = narrow(v[2]);
    args.max_length = c.attr("max_length", std::int64_t{0});
    args.scale = attention::scale_of(c.node.attrs, q[2]);
    place_values(c, parts);
    tiles = on_device::kernels_with_tensor_cores<RaggedArgs>(c, q[2], v[2], in.softmax);
    args.most_tiles = planner.most_tiles();
  }

  /// Where parts of values and results lie.
  void place_values(const PrepareContext& c, const attention::HeadParts& parts) {
    const auto row = [&](std::size_t i) { return c.inputs[i].shape[1] * c.inputs[i].shape[2]; };
    args.q_row = row(0);
    args.k_row = row(1);
    args.v_row = row(2);
    args.out_row = static_cast<std::int64_t>(args.heads) * args.v_width;
    for (std::size_t i = 0; i < 3; ++i)
      first_bytes[i] = static_cast<std::size_t>(parts.first_of(i) * c.inputs[i].shape[2]) * dtype_size(type);
    is_joined = parts.joined > 0;
    const std::int64_t widths[] = {args.qk_width, args.qk_width, args.v_width};
    std::int64_t* const steps[] = {&args.dq_row, &args.dk_row, &args.dv_row};
    for (std::size_t o = 0; o < (in.backward ? 3U : 1U); ++o) {
      const OutputInfo& output = c.outputs[is_joined ? 0 : o];
      const std::size_t number = dtype_size(output.dtype);
      const std::int64_t width = in.backward ? widths[o] : args.v_width;
      args.are_halves[o] = is_half(output.dtype);
      result_bytes[o] = static_cast<std::size_t>(args.heads * width) * number;
      result_steps[o] = row_bytes(output);
      if (is_joined) first_result_bytes[o] = static_cast<std::size_t>(parts.gradients[o] * width) * number;
      *steps[o] = (is_joined ? parts.joined : static_cast<std::int64_t>(args.heads)) * width;
    }
    if (is_joined && !parts.rest.empty()) rest = device_box_kernel(c, rest_plan(c, parts));
  }

  /// What is copied beside the gradients.
  static BoxPlan rest_plan(const PrepareContext& c, const attention::HeadParts& parts) {
    BoxPlan plan;
    const OutputInfo& joined = c.outputs[0];
    const std::int64_t rows = joined.shape[0], width = parts.joined * joined.shape[2];
    for (std::size_t r = 0; r < parts.rest.size(); ++r) {
      const std::size_t input = c.inputs.size() - parts.rest.size() + r;
      const std::int64_t columns = c.inputs[input].shape.elements() / std::max<std::int64_t>(rows, 1);
      plan.parts.push_back(
          {BoxCopy({{rows, columns, width}, {columns, 1, 1}}, 0, parts.rest[r], dtype_size(joined.dtype)),
           static_cast<int>(input), 0});
    }
    return plan;
  }

  /// What differs from run to run.
  RaggedArgs args_of(const KernelArgs& a) const {
    RaggedArgs now = args;
    const auto input = [&](std::size_t i) {
      return static_cast<const std::byte*>(a.inputs[i]) + first_bytes[i];
    };
    now.q = input(0);
    now.k = input(1);
    now.v = input(2);
    for (std::size_t o = 0; o < (in.backward ? 3U : 1U); ++o) now.results[o] = result(a, o);
    now.d_out = in.backward ? a.inputs[3] : nullptr;
    now.plan = planner.make(a, a.scratch);
    return now;
  }
  const on_device::KernelsOf<RaggedArgs>& kernels_for(const RaggedArgs& a) const {
    return on_device::kernels_for(a, tiles, plain);
  }
  void* result(const KernelArgs& a, std::size_t o) const {
    return static_cast<std::byte*>(a.outputs[is_joined ? 0 : o]) + first_result_bytes[o];
  }
  /// Zeros in results behind the values that belong to rows.
  void zero_room(const KernelArgs& a) const {
    for (std::size_t o = 0; o < (in.backward ? 3U : 1U); ++o)
      on_device::zero_room(a, offsets.of(a), result(a, o), result_bytes[o], result_steps[o]);
  }
  bool is_nothing() const { return planner.values() == 0 || args.heads == 0; }

  Inputs in;
  DType type;
  on_device::Planner planner;
  cuda::DeviceOffsetsInput offsets;
  on_device::KernelsOf<RaggedArgs> plain, tiles;
  RaggedArgs args{};
  std::size_t first_bytes[3] = {};  // in front of q, k and v
  std::size_t result_bytes[3] = {}, result_steps[3] = {},
              first_result_bytes[3] = {};  // of a value; to the next
  bool is_joined = false;
  PreparedKernel rest;
};

PreparedKernel prepare_forward(const PrepareContext& c) {
  const Work work(c, false);
  PreparedKernel kernel;
  kernel.scratch_bytes = work.planner.bytes();
  const std::size_t log_sum_bytes = row_bytes(c.outputs[1]);
  kernel.run = [work, log_sum_bytes](const KernelArgs& a) {
    RaggedArgs args = work.args_of(a);
    if (work.is_nothing()) return;
    if (work.in.softmax) args.new_log_sum = a.outputs[1];
    work.kernels_for(args).forward(args, a.stream);
    work.zero_room(a);
    if (work.in.softmax)
      on_device::zero_room(a, work.offsets.of(a), a.outputs[1], log_sum_bytes, log_sum_bytes);
  };
  return kernel;
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  const Work work(c, true);
  const std::size_t plan = aligned(work.planner.bytes());
  const std::size_t number = work.type == DType::Float64 ? sizeof(double) : sizeof(float);
  PreparedKernel kernel;
  kernel.scratch_bytes = plan;
  if (work.in.softmax)
    kernel.scratch_bytes += static_cast<std::size_t>(work.planner.values() * work.args.heads) * number;
  kernel.run = [work, plan](const KernelArgs& a) {
    RaggedArgs args = work.args_of(a);
    if (work.is_nothing()) return;
    if (work.in.softmax) {
      void* const dots = static_cast<std::byte*>(a.scratch) + plan;
      on_device::row_dots(work.type, args, a.inputs[work.in.output()], dots,
                          work.planner.values() * work.args.heads, a.stream);
      args.dots = dots;
      args.log_sum = a.inputs[work.in.output() + 1];
    }
    work.kernels_for(args).backward(args, a.stream);
    work.zero_room(a);
    if (work.rest.run) work.rest.run(a);
  };
  return kernel;
}

}  // namespace

void register_ragged_attention_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.RaggedAttention", prepare_forward);
  registry.add_cuda("braid.RaggedAttentionGrad", prepare_backward);
  cuda_takes_halves({"braid.RaggedAttention", "braid.RaggedAttentionGrad"});
}

}  // namespace braid
