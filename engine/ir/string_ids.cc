#include "engine/ir/string_ids.h"

#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"

namespace braid {

bool moves_strings(const Node& node, std::span<const OutputInfo> inputs) {
  static constexpr std::string_view kOps[] = {"BroadcastTo",
                                              "Concat",
                                              "ConcatV2",
                                              "DynamicPartition",
                                              "DynamicStitch",
                                              "Equal",
                                              "Fill",
                                              "Gather",
                                              "GatherNd",
                                              "GatherV2",
                                              "ListDiff",
                                              "NotEqual",
                                              "Pack",
                                              "ParallelDynamicStitch",
                                              "ReverseV2",
                                              "Select",
                                              "SelectV2",
                                              "Slice",
                                              "SparseToDense",
                                              "Split",
                                              "SplitV",
                                              "StridedSlice",
                                              "TensorScatterUpdate",
                                              "Tile",
                                              "Transpose",
                                              "Unique",
                                              "UniqueV2",
                                              "UniqueWithCounts",
                                              "UniqueWithCountsV2",
                                              "Unpack",
                                              "ZerosLike",
                                              "braid.BatchGather"};
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const OutputInfo& input) { return input.dtype == DType::String; }) &&
         std::find(std::begin(kOps), std::end(kOps), node.op->name) != std::end(kOps);
}

Tensor StringIds::ids_of(const Tensor& strings) {
  Tensor ids(DType::Int64, strings.shape());
  const auto data = ids.data<std::int64_t>();
  for (std::int64_t i = 0; i < strings.elements(); ++i) {
    const auto [at, is_new] =
        ids_.try_emplace(std::string(strings.string_at(i)), static_cast<std::int64_t>(strings_.size()));
    if (is_new) strings_.push_back(at->first);
    data[static_cast<std::size_t>(i)] = at->second;
  }
  return ids;
}

Tensor StringIds::strings_of(const Tensor& ids) const {
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(ids.elements()));
  for (const std::int64_t id : ids.data<std::int64_t>())
    texts.push_back(strings_.at(static_cast<std::size_t>(id)));
  return Tensor::strings(ids.shape(), texts);
}

}  // namespace braid
