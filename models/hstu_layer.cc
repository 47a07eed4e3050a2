#include "models/hstu_layer.h"

#include <array>

#include "models/common.h"

namespace braid {
namespace {

constexpr float kEpsilon = 1e-6F;

Output silu(GraphBuilder& b, const Output& x) { return b.mul(x, b.op("Sigmoid", {x})); }

Output as_heads(GraphBuilder& b, const Output& x, const HstuLayer& sizes) {
  return b.reshape(x, {-1, sizes.heads, sizes.dim / sizes.heads});
}

/// Four parts side by side, in the order u, v, q, k.
std::array<Output, 4> parts_of(GraphBuilder& b, const Output& all, std::int32_t axis) {
  const Output parts =
      b.op("Split", {b.constant(Tensor::scalar(axis), "axis"), all}, {{"num_split", 4}}, "parts");
  return {Output{parts.node, 0}, {parts.node, 1}, {parts.node, 2}, {parts.node, 3}};
}

/// x + [u, mixed, u LN(mixed)] W of some tokens. Parts are dropped out before they are joined, so that each
/// is written once.
Output finish(GraphBuilder& b, const Output& x, const Output& u, Output mixed, const HstuLayer& sizes) {
  const std::int64_t dim = sizes.dim;
  if (sizes.share) mixed = b.mul(mixed, *sizes.share);
  std::vector<Output> y{u, mixed, b.mul(u, layer_norm(b, "output_norm", mixed, dim, kEpsilon))};
  for (Output& part : y) part = dropout(b, part, sizes.dropout);
  const Output kernel =
      b.read(b.variable("output/kernel", Shape{3 * dim, dim}, {.init = glorot_uniform(3 * dim, dim)}));
  return b.add(x, b.matmul(b.concat(y, 1), kernel));
}

}  // namespace

Output hstu_layer(GraphBuilder& b, const Output& x, const Output& offsets, const HstuLayer& sizes) {
  const std::int64_t dim = sizes.dim;
  const Output wide = dense_layer(b, "uvqk", layer_norm(b, "norm", x, dim, kEpsilon), dim, 4 * dim, false,
                                  LayerInit::GlorotUniform);
  const auto [u, v, q, k] = parts_of(b, wide, 1);
  const Output mixed = b.op("braid.RaggedAttention",
                            {as_heads(b, q, sizes), as_heads(b, k, sizes), as_heads(b, v, sizes), offsets},
                            {{"activation", "silu"}}, "attention");
  return finish(b, x, silu(b, u), b.reshape(mixed, {-1, dim}), sizes);
}

Output hstu_last_layer(GraphBuilder& b, const Output& x, const Output& offsets, const Output& last,
                       const HstuLayer& sizes) {
  const std::int64_t dim = sizes.dim;
  const Output of_last = b.op("GatherV2", {x, last, b.constant(Tensor::scalar<std::int32_t>(0), "axis")});
  const NormWeights norm = norm_weights(b, "norm", dim);
  const Output all = layer_norm(b, norm, x, kEpsilon), one = layer_norm(b, norm, of_last, kEpsilon);
  std::array<Output, 4> kernels, biases;
  {
    const NameScope scope(b, "uvqk");
    kernels = parts_of(
        b, b.read(b.variable("kernel", Shape{dim, 4 * dim}, {.init = glorot_uniform(dim, 4 * dim)})), 1);
    biases = parts_of(b, b.read(b.variable("bias", Shape{4 * dim}, {})), 0);
  }
  const auto part = [&](const Output& of, std::size_t i) {
    return b.bias_add(b.matmul(of, kernels[i]), biases[i]);
  };
  const Output mixed = b.op("braid.QueryAttention",
                            {as_heads(b, part(one, 2), sizes), as_heads(b, part(all, 3), sizes),
                             as_heads(b, part(all, 1), sizes), offsets},
                            {{"activation", "silu"}}, "attention");
  return finish(b, of_last, silu(b, part(one, 0)), b.reshape(mixed, {-1, dim}), sizes);
}

}  // namespace braid
