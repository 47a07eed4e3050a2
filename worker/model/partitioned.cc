#include "worker/model/partitioned.h"

#include <cstring>
#include <optional>
#include <vector>

#include "proto/graph.pb.h"

namespace braid::worker {
namespace {

struct VariablePart {
  std::string name;
  Shape shape;
};

std::optional<Shape> shape_of(const NodeDef& variable) {
  const auto at = variable.attr().find("shape");
  if (at == variable.attr().end() || at->second.shape().unknown_rank()) return std::nullopt;
  std::vector<std::int64_t> dims;
  for (const auto& dim : at->second.shape().dim()) dims.push_back(dim.size());
  return Shape(std::move(dims));
}

/// The parts of each whole variable, in their order.
std::map<std::string, std::vector<VariablePart>> parts_in(const GraphDef& graph) {
  std::map<std::string, Shape> shapes;
  for (const NodeDef& node : graph.node())
    if (is_variable(node))
      if (const auto shape = shape_of(node)) shapes.emplace(variable_name(node), *shape);
  constexpr std::string_view kFirst = "/part_0";
  std::map<std::string, std::vector<VariablePart>> found;
  for (const auto& [name, shape] : shapes) {
    if (!name.ends_with(kFirst)) continue;
    const std::string whole = name.substr(0, name.size() - kFirst.size());
    for (std::size_t k = 0;; ++k) {
      const auto at = shapes.find(whole + "/part_" + std::to_string(k));
      if (at == shapes.end()) break;
      found[whole].push_back({at->first, at->second});
    }
  }
  return found;
}

/// The one axis along which the parts make up the whole.
std::optional<int> axis_of(const Shape& whole, const std::vector<VariablePart>& parts) {
  std::optional<int> axis;
  for (const VariablePart& part : parts) {
    if (part.shape.rank() != whole.rank()) return std::nullopt;
    for (int d = 0; d < whole.rank(); ++d) {
      if (part.shape.dim(d) == whole.dim(d)) continue;
      if (axis.value_or(d) != d) return std::nullopt;
      axis = d;
    }
  }
  if (!axis && parts.size() == 1 && whole.rank() > 0) axis = 0;
  if (!axis) return std::nullopt;
  std::int64_t sum = 0;
  for (const VariablePart& part : parts) sum += part.shape.dim(*axis);
  return sum == whole.dim(*axis) ? axis : std::nullopt;
}

Tensor cut(const Tensor& whole, const Shape& shape, int axis, std::int64_t begin) {
  std::size_t outer = 1, inner = dtype_size(whole.dtype());
  for (int d = 0; d < axis; ++d) outer *= static_cast<std::size_t>(shape.dim(d));
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= static_cast<std::size_t>(shape.dim(d));
  const std::size_t from = static_cast<std::size_t>(whole.shape().dim(axis)) * inner;
  const std::size_t to = static_cast<std::size_t>(shape.dim(axis)) * inner;
  Tensor part(whole.dtype(), shape);
  for (std::size_t i = 0; i < outer && to > 0; ++i)
    std::memcpy(part.raw() + i * to, whole.raw() + i * from + static_cast<std::size_t>(begin) * inner, to);
  return part;
}

}  // namespace

void add_parts(const GraphDef& graph, std::map<std::string, Tensor>& stored) {
  for (const auto& [name, parts] : parts_in(graph)) {
    const auto whole = stored.find(name);
    if (whole == stored.end() || stored.contains(parts.front().name)) continue;
    const auto axis = axis_of(whole->second.shape(), parts);
    if (!axis) continue;
    std::int64_t begin = 0;
    for (const VariablePart& part : parts) {
      stored.emplace(part.name, cut(whole->second, part.shape, *axis, begin));
      begin += part.shape.dim(*axis);
    }
  }
}

}  // namespace braid::worker
