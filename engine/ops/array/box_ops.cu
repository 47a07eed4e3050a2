// CUDA kernels of the ops that only move elements: the plans of their stems (common/box_plan.h).
#include "engine/ops/common/cuda/box_kernel.h"
#include "engine/ops/common/device_boxes.h"

namespace braid {
namespace {

struct Row {
  const char* name;
  PreparedKernel (*prepare)(const PrepareContext&);
};

using cuda::prepare_boxes;

constexpr Row kRows[] = {
    {"BatchToSpace", prepare_boxes<plans::batch_to_space>},
    {"BatchToSpaceND", prepare_boxes<plans::batch_to_space>},
    {"Bitcast", prepare_boxes<plans::bitcast>},
    {"BroadcastTo", prepare_boxes<plans::broadcast_to>},
    {"Concat", prepare_boxes<plans::concat>},
    {"ConcatV2", prepare_boxes<plans::concat>},
    {"DepthToSpace", prepare_boxes<plans::depth_to_space>},
    {"IdentityN", prepare_boxes<plans::identity_n>},
    {"Pack", prepare_boxes<plans::pack>},
    {"Pad", prepare_boxes<plans::pad>},
    {"ReverseV2", prepare_boxes<plans::reverse>},
    {"Roll", prepare_boxes<plans::roll>},
    {"Slice", prepare_boxes<plans::slice>},
    {"SpaceToBatch", prepare_boxes<plans::space_to_batch>},
    {"SpaceToBatchND", prepare_boxes<plans::space_to_batch>},
    {"SpaceToDepth", prepare_boxes<plans::space_to_depth>},
    {"Split", prepare_boxes<plans::split>},
    {"SplitV", prepare_boxes<plans::split>},
    {"StridedSlice", prepare_boxes<plans::strided_slice>},
    {"StridedSliceGrad", prepare_boxes<plans::strided_slice_grad>},
    {"Tile", prepare_boxes<plans::tile>},
    {"Transpose", prepare_boxes<plans::transpose>},
    {"Unpack", prepare_boxes<plans::unpack>},
    {"braid.PadGrad", prepare_boxes<plans::pad_grad>},
    {"braid.PutColumns", device_put_columns},
    {"braid.SliceGrad", prepare_boxes<plans::slice_grad>},
    {"braid.SplitLike", prepare_boxes<plans::split_like>},
};

}  // namespace

void register_box_ops_cuda(OpRegistry& registry) {
  for (const Row& row : kRows)
    registry.add_cuda(row.name, row.prepare, [](const Node&, std::span<const OutputInfo> inputs) {
      return cuda::has_plain_inputs(inputs);
    });
}

}  // namespace braid
