// CUDA kernel of braid.TileGrad: the sum over the axes that number the repetitions. (Tile is a copy:
// box_ops.cu.)
#include "engine/ops/common/cuda/axis_reduce.h"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const std::vector<std::int64_t> multiples = tensor_to_int64s(*c.values[1]);
  std::vector<std::int64_t> dims;
  std::vector<int> axes;
  for (std::size_t i = 0; i < multiples.size(); ++i) {
    axes.push_back(static_cast<int>(dims.size()));
    dims.push_back(multiples[i]);
    dims.push_back(c.outputs[0].shape[static_cast<int>(i)]);
  }
  return with_number("braid.TileGrad", c.inputs[0].dtype,
                     [&]<class T>() { return cuda::prepare_reduce<reduce::Sum, T>(c, Shape(dims), axes); });
}

}  // namespace

void register_tile_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.TileGrad", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    // Twice as many axes are reduced, and the kernel takes 16.
    return inputs[0].shape.has_rank() && inputs[0].shape.rank() <= 8;
  });
}

}  // namespace braid
