#include "worker/input/padding.h"

#include <algorithm>

namespace braid::worker {

Padding::Padding(const std::vector<std::string>& columns) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto offsets = std::ranges::find(columns, columns[c] + "/offsets");
    if (offsets != columns.end())
      ragged_.emplace_back(c, static_cast<std::size_t>(offsets - columns.begin()));
  }
}

void Padding::count(const Batch& batch) {
  for (const auto& [values, offsets] : ragged_) {
    const Tensor &of = batch.tensors[values], &ends = batch.tensors[offsets];
    // What a stage has made of a column need not lie in it as the column did.
    if (ends.domain() != Domain::Host || ends.dtype() != DType::Int32 || ends.elements() == 0 ||
        of.shape().rank() < 1)
      continue;
    values_ += ends.data<std::int32_t>().back();
    room_ += of.shape()[0];
  }
}

}  // namespace braid::worker
