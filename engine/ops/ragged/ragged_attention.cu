// CUDA kernels of braid.RaggedAttention and its gradients. A plan of the batch is made first
// (attention_plan.cuh); then come blocks of tensor cores where widths of heads, up to 128, are multiples of
// 16 bytes, else plain ones. float32 values are rounded to TF32 where the device's options allow it.
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
    const auto narrow = [](std::int64_t x) {
      return static_cast<std::int32_t>(std::min<std::int64_t>(x, 1 << 30));  // as good as no limit
    };
    const MaskRules rules = attention::rules_of(c.node.attrs);
    args.rules = {rules.causal, narrow(rules.window), narrow(rules.context)};
    args.heads = narrow(q[1]);
    args.qk_width = narrow(q[2]);
    args.v_width = narrow(v[2]);
    args.max_length = c.attr("max_length", std::int64_t{0});
    args.scale = attention::scale_of(c.node.attrs, q[2]);
    for (std::size_t o = 0; o < c.outputs.size() && o < 3; ++o) {
      args.are_halves[o] = is_half(c.outputs[o].dtype);
      rows[o] = row_bytes(c.outputs[o]);
    }
    tiles = on_device::kernels_with_tensor_cores<RaggedArgs>(c, q[2], v[2], in.softmax);
    args.most_tiles = planner.most_tiles();
  }

  /// What differs from run to run.
  RaggedArgs args_of(const KernelArgs& a) const {
    RaggedArgs now = args;
    now.q = a.inputs[0];
    now.k = a.inputs[1];
    now.v = a.inputs[2];
    now.d_out = in.backward ? a.inputs[3] : nullptr;
    now.plan = planner.make(a, a.scratch);
    return now;
  }
  const on_device::KernelsOf<RaggedArgs>& kernels_for(const RaggedArgs& a) const {
    return on_device::kernels_for(a, tiles, plain);
  }
  bool is_nothing() const { return planner.values() == 0 || args.heads == 0; }

  Inputs in;
  DType type;
  on_device::Planner planner;
  cuda::DeviceOffsetsInput offsets;
  on_device::KernelsOf<RaggedArgs> plain, tiles;
  RaggedArgs args{};
  std::size_t rows[3] = {};  // bytes of a value's outputs
};

PreparedKernel prepare_forward(const PrepareContext& c) {
  const Work work(c, false);
  PreparedKernel kernel;
  kernel.scratch_bytes = work.planner.bytes();
  kernel.run = [work](const KernelArgs& a) {
    RaggedArgs args = work.args_of(a);
    if (work.is_nothing()) return;
    args.results[0] = a.outputs[0];
    if (work.in.softmax) args.new_log_sum = a.outputs[1];
    work.kernels_for(args).forward(args, a.stream);
    for (int o = 0; o < (work.in.softmax ? 2 : 1); ++o)
      on_device::zero_room(a, work.offsets.of(a), a.outputs[o], work.rows[o]);
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
    for (int o = 0; o < 3; ++o) args.results[o] = a.outputs[o];
    if (work.in.softmax) {
      void* const dots = static_cast<std::byte*>(a.scratch) + plan;
      on_device::row_dots(work.type, args, a.inputs[work.in.output()], dots,
                          work.planner.values() * work.args.heads, a.stream);
      args.dots = dots;
      args.log_sum = a.inputs[work.in.output() + 1];
    }
    work.kernels_for(args).backward(args, a.stream);
    for (int o = 0; o < 3; ++o) on_device::zero_room(a, work.offsets.of(a), a.outputs[o], work.rows[o]);
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
