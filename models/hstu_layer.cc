#include "models/hstu_layer.h"

#include "models/common.h"

namespace braid {
namespace {

Output silu(GraphBuilder& b, const Output& x) { return b.mul(x, b.op("Sigmoid", {x})); }

}  // namespace

Output hstu_layer(GraphBuilder& b, const Output& x, const Output& offsets, const HstuLayer& sizes) {
  const std::int64_t dim = sizes.dim;
  const Output wide = dense_layer(b, "uvqk", layer_norm(b, "norm", x, dim, 1e-6F), dim, 4 * dim, false,
                                  LayerInit::GlorotUniform);
  const Output parts =
      b.op("Split", {b.constant(Tensor::scalar<std::int32_t>(1), "axis"), wide}, {{"num_split", 4}}, "parts");
  const auto heads = [&](int part) {
    return b.reshape({parts.node, part}, {-1, sizes.heads, dim / sizes.heads});
  };
  const Output u = silu(b, {parts.node, 0});
  Output mixed = b.reshape(b.op("braid.RaggedAttention", {heads(2), heads(3), heads(1), offsets},
                                {{"activation", "silu"}}, "attention"),
                           {-1, dim});
  if (sizes.share) mixed = b.mul(mixed, *sizes.share);
  const Output y = b.concat({u, mixed, b.mul(u, layer_norm(b, "output_norm", mixed, dim, 1e-6F))}, 1);
  const Output kernel =
      b.read(b.variable("output/kernel", Shape{3 * dim, dim}, {.init = glorot_uniform(3 * dim, dim)}));
  return b.add(x, b.matmul(dropout(b, y, sizes.dropout), kernel));
}

}  // namespace braid
