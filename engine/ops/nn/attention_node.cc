// Where the values of a node of attention are (attention_node.h).
#include "engine/ops/nn/attention_node.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace braid::attention {
namespace {

DenseSteps steps_of(const Shape& shape, bool inside) {
  const int rank = shape.rank();
  const auto behind = [&](int axis) {
    std::int64_t n = 1;
    for (int a = axis + 1; a < rank; ++a) n *= shape[a];
    return n;
  };
  const int head = head_axis(rank, inside), row = row_axis(rank, inside);
  return {behind(std::min(head, row) - 1), head < 0 ? 0 : behind(head), behind(row), 0};
}

/// Where values of `shape` are: as the attribute says, else side by side.
DenseSteps place_of(const AttrMap& attrs, const char* part, const Shape& shape, bool inside) {
  const auto said = attrs.get<std::vector<std::int64_t>>(part, {});
  return said.empty() ? steps_of(shape, inside) : DenseSteps{said[1], said[2], said[3], said[0]};
}

}  // namespace

Shape values_shape(const AttrMap& attrs, int i, const Shape& input) {
  const auto said = attrs.get<std::vector<std::int64_t>>(kPartShapes[i], {});
  return said.empty() ? input : Shape(said);
}

Shape scores_of(const Shape& q, const Shape& k, bool inside) {
  const int rank = q.rank();
  std::vector<std::int64_t> dims(q.dims().begin(), q.dims().end());
  if (inside) dims[static_cast<std::size_t>(rank) - 3] = q[rank - 2];
  dims[static_cast<std::size_t>(rank) - 2] = q[row_axis(rank, inside)];
  dims[static_cast<std::size_t>(rank) - 1] = k[row_axis(rank, inside)];
  return Shape(std::move(dims));
}

std::optional<MaskSteps> mask_steps(const Shape& mask, const Shape& scores) {
  const int rank = scores.rank();
  std::vector<std::int64_t> steps(static_cast<std::size_t>(rank), 0);
  std::int64_t step = 1;
  for (int a = mask.rank() - 1, s = rank - 1; a >= 0; --a, --s) {
    steps[static_cast<std::size_t>(s)] = mask[a] == 1 ? 0 : step;
    step *= mask[a];
  }
  MaskSteps to{0, rank < 3 ? 0 : steps[static_cast<std::size_t>(rank) - 3],
               steps[static_cast<std::size_t>(rank) - 2], steps[static_cast<std::size_t>(rank) - 1]};
  std::int64_t counted = 1;  // outer indices of the axes behind
  for (int a = rank - 4; a >= 0; --a) {
    if (scores[a] == 1) continue;
    const std::int64_t here = steps[static_cast<std::size_t>(a)];
    if (counted == 1)
      to.outer = here;
    else if (here != to.outer * counted)
      return std::nullopt;
    counted *= scores[a];
  }
  return to;
}

DenseNode dense_node(const Node& node, std::span<const OutputInfo> inputs, bool backward) {
  const Shape q = values_shape(node.attrs, 0, inputs[0].shape),
              k = values_shape(node.attrs, 1, inputs[1].shape),
              v = values_shape(node.attrs, 2, inputs[2].shape);
  const bool inside = heads_inside(node.attrs);
  const int rank = q.rank(), row = row_axis(rank, inside), head = head_axis(rank, inside);
  DenseNode n;
  n.heads = head < 0 ? 1 : q[head];
  for (int a = 0; a < std::min(head, row); ++a) n.outer *= q[a];
  n.queries = q[row];
  n.keys = k[row];
  n.qk = q[rank - 1];
  n.v = v[rank - 1];
  n.at_q = place_of(node.attrs, kParts[0], q, inside);
  n.at_k = place_of(node.attrs, kParts[1], k, inside);
  n.at_v = place_of(node.attrs, kParts[2], v, inside);
  n.at_dq = place_of(node.attrs, kJoinedParts[0], q, inside);
  n.at_dk = place_of(node.attrs, kJoinedParts[1], k, inside);
  n.at_dv = place_of(node.attrs, kJoinedParts[2], v, inside);
  std::vector<std::int64_t> out(q.dims().begin(), q.dims().end());
  out.back() = n.v;
  n.at_out = steps_of(Shape(out), inside);
  out.back() = 2;
  n.at_sums = steps_of(Shape(out), inside);
  n.scale = node.attrs.get("scale", 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(n.qk, 1))));
  n.hidden = node.attrs.get("hidden", -1e30);
  n.causal = node.attrs.get("causal", false);
  n.offset = node.attrs.get("causal_offset", std::int64_t{0});
  const int last = backward ? kDenseBackward : kDenseForward;
  if (static_cast<int>(inputs.size()) <= last) return n;
  n.mask = last;
  n.at_mask = *mask_steps(inputs[static_cast<std::size_t>(last)].shape, scores_of(q, k, inside));
  n.mask_gradient = node.attrs.get(kMaskGradient, false);
  return n;
}

bool is_short(std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t number,
              bool sums_mask) {
  constexpr std::int64_t kLeast = 8, kMost = 128, kWidest = 64, kShared = 227 * 1024;
  if (std::min(queries, keys) < kLeast || std::max(queries, keys) > kMost || width > kWidest) return false;
  const auto whole = [](std::int64_t n, std::int64_t of) { return (n + of - 1) / of * of; };
  const std::int64_t pad = 16 / number, wide = whole(width, 32) + pad, across = whole(keys, 32);
  const std::int64_t rows = whole(queries, 16), all = rows + whole(keys, 16);
  return 2 * (all * wide + rows * (across + pad)) * number + (sums_mask ? rows * (across + 4) * 4 : 0) <=
         kShared;
}

}  // namespace braid::attention
