#include "engine/ir/string_ids.h"

#include <algorithm>

#include "engine/ir/op.h"

namespace braid {

bool moves_strings(const Node& node, std::span<const OutputInfo> inputs) {
  return node.op->traits.runs_on_string_ids &&
         std::any_of(inputs.begin(), inputs.end(),
                     [](const OutputInfo& input) { return input.dtype == DType::String; });
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
