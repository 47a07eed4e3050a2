#include "worker/strategies/bucket_places.h"

#include <algorithm>

namespace braid::worker {
namespace {

/// By node: whether it is made of a gradient of rows, or of what that is made of in the last instance.
std::vector<char> behind_rows(const Graph& graph, const std::vector<VariableGradient>& rows) {
  std::vector<char> behind(static_cast<std::size_t>(graph.size()), 0);
  const auto at = [&](NodeId id) -> char& { return behind[static_cast<std::size_t>(id)]; };
  for (const VariableGradient& gradient : rows) {
    const NodeId values = gradient.slices->values.node;
    at(values) = 1;
    if (!graph.node(values).inputs.empty()) at(graph.node(values).inputs[0].node) = 1;
  }
  for (const NodeId id : graph.topological_order())
    for (const ValueRef input : graph.node(id).inputs) at(id) = static_cast<char>(at(id) | at(input.node));
  return behind;
}

double bytes_of(const std::vector<VariableGradient>& bucket) {
  double bytes = 0;
  for (const VariableGradient& gradient : bucket)
    bytes += static_cast<double>(gradient.variable.shape.elements()) * sizeof(float);
  return bytes;
}

}  // namespace

std::size_t buckets_before_rows(const Graph& graph, const std::vector<std::vector<VariableGradient>>& buckets,
                                const std::vector<VariableGradient>& rows, double bytes) {
  const std::vector<char> behind = behind_rows(graph, rows);
  const auto is_late = [&](const std::vector<VariableGradient>& bucket) {
    return std::ranges::any_of(bucket, [&](const VariableGradient& gradient) {
      return behind[static_cast<std::size_t>(gradient.dense.node)] != 0;
    });
  };
  auto before = static_cast<std::size_t>(std::ranges::find_if(buckets, is_late) - buckets.begin());
  before = std::min(before, buckets.size() - 1);
  double all = 0;
  for (const auto& bucket : buckets) all += bytes_of(bucket);
  double room = std::min(bytes, all / 4);
  while (before > 0 && (room -= bytes_of(buckets[before - 1])) >= 0) --before;
  return before;
}

}  // namespace braid::worker
