// What a bag is: the ids of a row of the batch, whose rows of a table are pooled to one. Shared by the ops
// (bag.cc, bag_grad.cc) and their CUDA kernels. Thread rule: pure functions.
//
//   y[b] = s_b * sum over k of bag b: w_k * table[ids[k]]
//   pooling   sum: s_b = 1     mean: s_b = 1 / sum of w_k     sqrtn: s_b = 1 / sqrt(sum of w_k^2)
//
//   max: y[b] is the largest of table[ids[k]], each element by itself; without weights
// w_k is 1 without weights. A bag of no ids, or whose sum of weights is 0, is a row of zeros.
// Bags are the rows of ids [B, hot] (weights likewise), or with the attribute "ragged" the parts that offsets
// [B + 1] cut from ids [n]: bag b is [offsets[b], offsets[b + 1]). offsets[0] is 0; ids from offsets[B] on
// belong to no bag and are not looked at, so that lists may be filled up to a size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/ir/op.h"

namespace braid {

enum class Pooling : int { Sum, Mean, SqrtN, Max };

inline constexpr const char* kPooling = "pooling";
inline constexpr const char* kRagged = "ragged";
inline constexpr const char* kBagWeights = "weighted";

inline constexpr std::string_view kPoolingNames[] = {"sum", "mean", "sqrtn", "max"};

/// How a node's inputs of one table lie: [table], ids, [offsets], [weights].
struct BagInputs {
  Pooling pooling = Pooling::Sum;
  bool ragged = false, weighted = false;
  bool has_table = true;

  int stride() const { return (has_table ? 1 : 0) + 1 + (ragged ? 1 : 0) + (weighted ? 1 : 0); }
  // Of table t, where inputs begin at `first`.
  int table(int t, int first = 0) const { return first + t * stride(); }
  int ids(int t, int first = 0) const { return table(t, first) + (has_table ? 1 : 0); }
  int offsets(int t, int first = 0) const { return ragged ? ids(t, first) + 1 : -1; }
  int weights(int t, int first = 0) const { return weighted ? ids(t, first) + (ragged ? 2 : 1) : -1; }
};

/// From the attributes. Throws: InvalidArgument for a pooling that is none.
inline BagInputs bag_inputs(const AttrMap& attrs, bool has_table) {
  BagInputs in;
  in.ragged = attrs.get(kRagged, false);
  in.weighted = attrs.get(kBagWeights, false);
  in.has_table = has_table;
  const std::string name = attrs.get(kPooling, std::string("sum"));
  for (int p = 0; p < 4; ++p) {
    if (kPoolingNames[p] != name) continue;
    in.pooling = static_cast<Pooling>(p);
    return in;
  }
  throw InvalidArgument("attribute pooling is none of sum, mean, sqrtn, max: '" + name + "'");
}

/// Attributes of braid.BagMany whose sums are columns of one output, the last: for each table the first of
/// them, -1 for one with an output of its own; and how wide that output is. What no table has of it is left
/// as it is.
inline constexpr const char* kJoinOffsets = "join_offsets";
inline constexpr const char* kJoinWidth = "join_width";

/// Where the sums of each table are written.
struct BagPlaces {
  std::vector<std::int64_t> offsets;  // empty: each table has its output
  std::int64_t width = 0;
  int outputs = 0;

  /// Throws: InvalidArgument where offsets are not of so many tables.
  BagPlaces(const AttrMap& attrs, int tables)
      : offsets(attrs.get(kJoinOffsets, std::vector<std::int64_t>{})),
        width(attrs.get(kJoinWidth, std::int64_t{0})),
        outputs(tables) {
    if (offsets.empty()) return;
    if (std::ssize(offsets) != tables) throw InvalidArgument("join_offsets has not one for each table");
    outputs = static_cast<int>(std::count(offsets.begin(), offsets.end(), -1)) + 1;
  }
  bool joins(int table) const { return !offsets.empty() && offsets[static_cast<std::size_t>(table)] >= 0; }
  int output(int table) const {
    if (offsets.empty()) return table;
    return joins(table) ? outputs - 1
                        : static_cast<int>(std::count(offsets.begin(), offsets.begin() + table, -1));
  }
  std::int64_t offset(int table) const { return joins(table) ? offsets[static_cast<std::size_t>(table)] : 0; }
  /// Of a row of the output; `own`: the table's.
  std::int64_t stride(int table, std::int64_t own) const { return joins(table) ? width : own; }
};

/// Sizes of the bags of one table.
struct BagSizes {
  std::int64_t bags = 0, ids = 0;
  std::int64_t hot = 0;  // of each; ragged: 0
};
inline BagSizes bag_sizes(const BagInputs& in, const Shape& ids, const Shape* offsets) {
  if (in.ragged) return {offsets->dims()[0] - 1, ids.elements(), 0};
  return {ids[0], ids.elements(), ids[1]};
}

/// Checks ids, offsets and weights that begin at input `first`. Returns the number of bags, or unknown.
std::int64_t check_bag_inputs(InferContext& c, const BagInputs& in, int first);

}  // namespace braid
