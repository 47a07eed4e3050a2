// What a node of dense attention says (attention.cc has the terms): sizes, where its values lie, who sees
// whom. Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/ir/op.h"

namespace braid::attention {

/// Elements from an outer index, a head, a row to the next, and in front of the first.
struct DenseSteps {
  std::int64_t outer = 0, head = 0, row = 0, first = 0;
  constexpr std::int64_t at(std::int64_t o, std::int64_t h) const { return first + o * outer + h * head; }
};

struct MaskSteps {
  std::int64_t outer = 0, head = 0, query = 0, key = 0;
};

struct DenseNode {
  std::int64_t outer = 1, heads = 1, queries = 0, keys = 0, qk = 0, v = 0;
  DenseSteps at_q, at_k, at_v, at_out, at_sums, at_dq, at_dk, at_dv;
  double scale = 1, hidden = 0;
  bool causal = false;
  std::int64_t offset = 0;  // of causal: query i sees keys up to i + offset
  int mask = -1;            // input; none
  MaskSteps at_mask;
  bool mask_gradient = false;

  /// Heads, and rows, that have numbers of the mask for themselves.
  std::int64_t mask_heads() const { return at_mask.head != 0 ? heads : 1; }
  std::int64_t mask_rows() const { return at_mask.outer != 0 ? outer : 1; }
  std::int64_t mask_at(std::int64_t o, std::int64_t h) const { return o * at_mask.outer + h * at_mask.head; }
  std::int64_t heads_of_all() const { return outer * heads; }
};

/// Inputs in front of the mask.
inline constexpr int kDenseForward = 3, kDenseBackward = 6;

/// Attributes of queries, keys and values that are parts of wider inputs: their shape, and where they are in
/// the input, {first, outer, head, row} as DenseSteps has them.
inline constexpr const char* kPartShapes[] = {"q_shape", "k_shape", "v_shape"};
inline constexpr const char* kParts[] = {"q_part", "k_part", "v_part"};
/// Attributes of gradients that lie in one output of shape `joined_shape`: where each one is.
inline constexpr const char* kJoinedShape = "joined_shape";
inline constexpr const char* kJoinedParts[] = {"dq_part", "dk_part", "dv_part"};

/// Attribute of the gradient: there is a fourth output, that of the mask.
inline constexpr const char* kMaskGradient = "mask_gradient";

/// Whether a device has one kernel for heads of so few queries and keys, forwards and back: `number` bytes
/// each, `sums_mask` with the mask's gradient (engine/ops/ragged/attention_short.cuh).
bool is_short(std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t number,
              bool sums_mask);

/// The shape of queries (0), keys or values: of the input, or of the part that it has.
Shape values_shape(const AttrMap& attrs, int i, const Shape& input);

inline bool heads_inside(const AttrMap& attrs) { return attrs.get("heads_inside", false); }

/// The places of heads and rows in a shape of `rank`; heads: -1 where there is no such axis.
inline int row_axis(int rank, bool inside) { return inside ? rank - 3 : rank - 2; }
inline int head_axis(int rank, bool inside) { return inside ? rank - 2 : rank - 3; }

/// Steps of a mask through scores of `scores`, [..., H, n, m]; nothing where its axes in front of the heads
/// do not lie in even steps. REQUIRES: it broadcasts.
std::optional<MaskSteps> mask_steps(const Shape& mask, const Shape& scores);
/// [..., H, n, m]
Shape scores_of(const Shape& q, const Shape& k, bool inside);
/// `backward`: of the gradient. REQUIRES: the shapes have passed the shape rule.
DenseNode dense_node(const Node& node, std::span<const OutputInfo> inputs, bool backward);

}  // namespace braid::attention
