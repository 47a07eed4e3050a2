#include "engine/rewrite/image_ops.h"

#include <map>
#include <string>
#include <string_view>

namespace braid {
namespace {

const std::map<std::string_view, ImageOp>& image_ops() {
  static const std::map<std::string_view, ImageOp> table{
      {"Conv2D", {{0}}},
      {"Conv2DBackpropInput", {{2}, true, 0}},
      {"Conv2DBackpropFilter", {{0, 2}, false}},
      {"DepthwiseConv2dNative", {{0}}},
      {"DepthwiseConv2dNativeBackpropInput", {{2}, true, 0}},
      {"DepthwiseConv2dNativeBackpropFilter", {{0, 2}, false}},
      {"Conv3D", {{0}}},
      {"Conv3DBackpropInputV2", {{2}, true, 0}},
      {"Conv3DBackpropFilterV2", {{0, 2}, false}},
      {"MaxPool", {{0}}},
      {"MaxPoolGrad", {{0, 1, 2}}},
      {"AvgPool", {{0}}},
      {"AvgPoolGrad", {{1}, true, 0}},
      {"MaxPool3D", {{0}}},
      {"MaxPool3DGrad", {{0, 1, 2}}},
      {"AvgPool3D", {{0}}},
      {"AvgPool3DGrad", {{1}, true, 0}},
      {"FusedBatchNorm", {{0}}},
      {"FusedBatchNormV2", {{0}}},
      {"FusedBatchNormV3", {{0}}},
      {"FusedBatchNormGrad", {{0, 1}}},
      {"FusedBatchNormGradV2", {{0, 1}}},
      {"FusedBatchNormGradV3", {{0, 1}}},
      {"BiasAdd", {{0}}},
      {"BiasAddGrad", {{0}, false}},
  };
  return table;
}

}  // namespace

bool is_of_images(const OpDef& op) { return image_ops().contains(op.name); }

std::optional<ImageOp> image_op(const Node& node) {
  const auto found = image_ops().find(node.op->name);
  const auto format = node.attrs.get<std::string>("data_format", "");
  if (found == image_ops().end() || (format != "NCHW" && format != "NCDHW")) return std::nullopt;
  return found->second;
}

}  // namespace braid
