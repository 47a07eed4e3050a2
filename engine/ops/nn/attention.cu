// CUDA kernels of braid.Attention and its gradients: those of ragged attention, over rows of equal lengths
// (engine/ops/ragged/dense_args.cuh).
#include <algorithm>

#include "engine/ops/common/halves.h"
#include "engine/ops/nn/attention_node.h"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid {
namespace {

namespace on_device = cuda::attention;
using attention::DenseNode;
using on_device::DenseArgs;

/// What a node says, and which kernels it has.
struct Work {
  Work(const PrepareContext& c, bool backward)
      : node(attention::dense_node(c.node, c.inputs, backward)),
        type(c.inputs[0].dtype),
        plain(on_device::plain_kernels<DenseArgs>(type, true)),
        tiles(on_device::kernels_with_tensor_cores<DenseArgs>(c, node.qk, node.v, true)),
        few(on_device::short_kernels(c, node)) {
    const auto narrow = [](std::int64_t x) {
      constexpr std::int64_t kMost = 1 << 30;  // of 32 bits, with room for sums of two
      return static_cast<std::int32_t>(std::clamp(x, -kMost, kMost));
    };
    if (std::max(node.queries, node.keys) > narrow(node.queries) + narrow(node.keys))
      throw InvalidArgument("attention takes up to 2^30 queries and keys");
    args.heads = narrow(node.heads);
    args.qk_width = narrow(node.qk);
    args.v_width = narrow(node.v);
    args.scale = node.scale;
    args.outer = node.outer;
    args.rules = {narrow(node.queries), narrow(node.keys), node.causal, narrow(node.offset)};
    args.at_q = node.at_q;
    args.at_k = node.at_k;
    args.at_v = node.at_v;
    args.at_out = node.at_out;
    args.at_sums = node.at_sums;
    args.at_dq = node.at_dq;
    args.at_dk = node.at_dk;
    args.at_dv = node.at_dv;
    is_joined = c.node.attrs.has(attention::kJoinedShape);
    args.at_mask = node.at_mask;
    args.hidden = std::max(node.hidden, -1e30);
    for (std::size_t o = 0; o < c.outputs.size() && o < 3; ++o)
      args.are_halves[o] = is_half(c.outputs[is_joined ? 0 : o].dtype);
    if (node.mask_gradient) args.slices = on_device::mask_slices(args);
    if (node.mask >= 0) is_bool = c.inputs[static_cast<std::size_t>(node.mask)].dtype == DType::Bool;
  }
  DenseArgs args_of(const KernelArgs& a) const {
    DenseArgs now = args;
    now.q = a.inputs[0];
    now.k = a.inputs[1];
    now.v = a.inputs[2];
    if (node.mask < 0) return now;
    const void* const mask = a.inputs[node.mask];
    if (is_bool)
      now.seen = static_cast<const bool*>(mask);
    else
      now.added = mask;
    return now;
  }
  std::int64_t mask_numbers() const {
    return node.mask_heads() * node.mask_rows() * node.queries * node.keys;
  }
  std::int64_t rows() const { return node.heads_of_all() * node.queries; }
  /// Whether kernels for few queries and keys took it.
  bool is_short(const DenseArgs& args, bool backward, StreamRef stream) const {
    return few.launch && on_device::is_aligned(args) && few.launch(args, backward, few.shared, stream);
  }

  DenseNode node;
  DType type;
  on_device::KernelsOf<DenseArgs> plain, tiles;
  on_device::ShortKernels few;
  DenseArgs args{};
  bool is_bool = false, is_joined = false;
};

PreparedKernel prepare_forward(const PrepareContext& c) {
  const Work work(c, false);
  PreparedKernel kernel;
  kernel.run = [work](const KernelArgs& a) {
    DenseArgs args = work.args_of(a);
    args.results[0] = a.outputs[0];
    args.new_log_sum = a.outputs[1];
    if (work.is_short(args, false, a.stream)) return;
    on_device::kernels_for(args, work.tiles, work.plain).forward(args, a.stream);
  };
  return kernel;
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  const Work work(c, true);
  PreparedKernel kernel;
  const std::size_t number = work.type == DType::Float64 ? sizeof(double) : sizeof(float);
  const std::size_t sums =
      work.node.mask_gradient && work.args.slices > 1
          ? static_cast<std::size_t>(work.args.slices * work.mask_numbers()) * sizeof(float)
          : 0;
  kernel.scratch_bytes = std::max(static_cast<std::size_t>(work.rows()) * number, sums);
  kernel.run = [work, sums](const KernelArgs& a) {
    DenseArgs args = work.args_of(a);
    args.d_out = a.inputs[3];
    for (int o = 0; o < 3; ++o) args.results[o] = a.outputs[work.is_joined ? 0 : o];
    args.log_sum = a.inputs[5];
    if (work.node.mask_gradient) args.mask_sums = static_cast<float*>(sums > 0 ? a.scratch : a.outputs[3]);
    if (work.is_short(args, true, a.stream)) {
      if (sums > 0)
        on_device::add_slices(args, static_cast<float*>(a.outputs[3]), work.mask_numbers(), a.stream);
      return;
    }
    on_device::row_dots(work.type, args, a.inputs[4], a.scratch, work.rows(), a.stream);
    args.dots = a.scratch;
    on_device::kernels_for(args, work.tiles, work.plain).backward(args, a.stream);
    if (work.node.mask_gradient)
      on_device::mask_gradient(work.type, args, a.outputs[3], work.mask_numbers(), a.stream);
  };
  return kernel;
}

/// Without a mask, which scales by itself, what a query does not see is -inf before it is scaled.
template <int kInputs>
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  return node.attrs.get("scale", 1.0) > 0 || inputs.size() > kInputs;
}

}  // namespace

void register_attention_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.Attention", prepare_forward, supports<attention::kDenseForward>);
  registry.add_cuda("braid.AttentionGrad", prepare_backward, supports<attention::kDenseBackward>);
  cuda_takes_halves({"braid.Attention", "braid.AttentionGrad"});
}

}  // namespace braid
