#include "engine/autodiff/gradient_sum.h"

#include <algorithm>

namespace braid {

namespace {

/// Ops of gradients say so where negative indices name no row (engine/ops/common/index_groups.h).
constexpr const char* kPadsIndices = "pads_indices";
bool pads(const BackwardNodes& nodes, const IndexedSlices& slices) {
  return nodes.graph().node(slices.indices.node).attrs.get(kPadsIndices, false);
}

}  // namespace

template <class T>
std::vector<T> GradientSum::in_order(std::vector<Contribution<T>> contributions) {
  std::stable_sort(contributions.begin(), contributions.end(),
                   [](const auto& a, const auto& b) { return a.use < b.use; });
  std::vector<T> gradients;
  for (auto& contribution : contributions) gradients.push_back(contribution.gradient);
  return gradients;
}

void GradientSum::add(const GradientSum& other) {
  dense_.insert(dense_.end(), other.dense_.begin(), other.dense_.end());
  slices_.insert(slices_.end(), other.slices_.begin(), other.slices_.end());
}

ValueRef GradientSum::dense(BackwardNodes& nodes, NodeId forward, ValueRef like) const {
  std::vector<ValueRef> terms = in_order(dense_);
  if (!slices_.empty()) {
    const IndexedSlices rows = slices(nodes, forward);
    const bool padded = pads(nodes, rows);
    terms.push_back(nodes.add(forward, "braid.SlicesToDense", {rows.indices, rows.values, like},
                              padded ? AttrMap{{"skip_negative", true}} : AttrMap{}));
  }
  if (terms.size() == 1) return terms[0];
  const auto count = static_cast<std::int64_t>(terms.size());
  return nodes.add(forward, "AddN", std::move(terms), {{"N", count}});
}

IndexedSlices GradientSum::slices(BackwardNodes& nodes, NodeId forward) const {
  const std::vector<IndexedSlices> parts = in_order(slices_);
  if (parts.size() == 1) return parts[0];
  const auto dtype = [&](const IndexedSlices& part) { return nodes.graph().info(part.indices).dtype; };
  const bool same_type = std::all_of(
      parts.begin(), parts.end(), [&](const IndexedSlices& part) { return dtype(part) == dtype(parts[0]); });
  std::vector<ValueRef> indices;
  std::vector<ValueRef> values;
  for (const IndexedSlices& part : parts) {
    const bool widen = !same_type && dtype(part) != DType::Int64;
    indices.push_back(widen ? nodes.add(forward, "Cast", {part.indices}, {{"DstT", DType::Int64}})
                            : part.indices);
    values.push_back(part.values);
  }
  const auto count = static_cast<std::int64_t>(parts.size());
  const ValueRef axis = nodes.constant(forward, Tensor::scalar<std::int32_t>(0));
  indices.push_back(axis);
  values.push_back(axis);
  AttrMap attrs{{"N", count}};
  if (std::any_of(parts.begin(), parts.end(), [&](const IndexedSlices& part) { return pads(nodes, part); }))
    attrs.set(kPadsIndices, true);
  return {nodes.add(forward, "ConcatV2", std::move(indices), std::move(attrs)),
          nodes.add(forward, "ConcatV2", std::move(values), {{"N", count}})};
}

}  // namespace braid
