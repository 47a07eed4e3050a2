#include "engine/import/widen.h"

#include <algorithm>
#include <iterator>

namespace braid {

std::optional<DType> wide_type(DType dtype) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
      return DType::Float32;
    case DType::Int8:
    case DType::UInt8:
    case DType::Int16:
    case DType::UInt16:
      return DType::Int32;
    case DType::UInt32:
      return DType::Int64;
    default:
      return std::nullopt;
  }
}

namespace {

bool takes_bools_as_integers(std::string_view op) {
  return op == "ArgMax" || op == "ArgMin" || op == "ScatterNd" || op == "TensorScatterUpdate";
}

}  // namespace

std::optional<DType> compute_type(std::string_view op, DType dtype) {
  if (dtype == DType::Float64 && (op.starts_with("Conv2D") || op.starts_with("DepthwiseConv2d")))
    return DType::Float32;
  const bool is_integer =
      dtype == DType::Int32 || dtype == DType::Int64 || wide_type(dtype).value_or(dtype) == DType::Int32;
  if (is_integer && op == "MaxPool") return DType::Float64;
  if (dtype == DType::Bool && takes_bools_as_integers(op)) return DType::Int32;
  return wide_type(dtype);
}

bool moves_elements(std::string_view op) {
  static constexpr std::string_view kOps[] = {"AssignVariableOp",
                                              "BatchToSpace",
                                              "BatchToSpaceND",
                                              "braid.BatchGather",
                                              "Bitcast",
                                              "Cast",
                                              "Concat",
                                              "ConcatV2",
                                              "Const",
                                              "DepthToSpace",
                                              "DynamicPartition",
                                              "DynamicStitch",
                                              "EnsureShape",
                                              "ExpandDims",
                                              "Gather",
                                              "GatherNd",
                                              "GatherV2",
                                              "Identity",
                                              "IdentityN",
                                              "Pack",
                                              "ParallelDynamicStitch",
                                              "Placeholder",
                                              "PlaceholderWithDefault",
                                              "PreventGradient",
                                              "RandomShuffle",
                                              "Rank",
                                              "ReadVariableOp",
                                              "Reshape",
                                              "ResourceGather",
                                              "ReverseV2",
                                              "Shape",
                                              "ShapeN",
                                              "Size",
                                              "Slice",
                                              "Snapshot",
                                              "SpaceToBatch",
                                              "SpaceToBatchND",
                                              "SpaceToDepth",
                                              "Split",
                                              "SplitV",
                                              "Squeeze",
                                              "StopGradient",
                                              "StridedSlice",
                                              "Tile",
                                              "Transpose",
                                              "Unpack",
                                              "VarHandleOp",
                                              "VariableShape"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

bool has_data_type(std::string_view op, int output) {
  if (op == "ArgMax" || op == "ArgMin" || op == "Where" || op == "ResizeBilinear") return false;
  const bool first_only = op.starts_with("FusedBatchNorm") || op.starts_with("TopK") ||
                          op.starts_with("Unique") || op == "ListDiff";
  return output == 0 || !first_only;
}

}  // namespace braid
