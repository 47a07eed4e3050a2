// What flows back into one value: contributions of its uses, dense or as rows. The sum does not depend on the
// order in which they came: dense ones are added in the order of the uses' (node id, input), then all rows
// together. Thread rule: one thread.
#pragma once

#include <optional>
#include <vector>

#include "engine/autodiff/backward_nodes.h"
#include "engine/ir/op.h"

namespace braid {

/// A use of the value: input `input` of node `node`.
struct GradientUse {
  NodeId node = kNoNode;
  int input = 0;
  friend auto operator<=>(const GradientUse&, const GradientUse&) = default;
};

class GradientSum {
 public:
  void add(GradientUse use, ValueRef dense) { dense_.push_back({use, dense}); }
  void add(GradientUse use, IndexedSlices slices) { slices_.push_back({use, slices}); }
  void add(const GradientSum& other);

  bool empty() const { return dense_.empty() && slices_.empty(); }
  bool only_slices() const { return dense_.empty() && !slices_.empty(); }

  /// The sum as a dense value, `like` being the value (or handle) whose shape it has. New nodes belong to
  /// `forward`.
  ValueRef dense(BackwardNodes& nodes, NodeId forward, ValueRef like) const;
  /// All rows, one contribution behind the other. REQUIRES: only_slices().
  IndexedSlices slices(BackwardNodes& nodes, NodeId forward) const;

 private:
  template <class T>
  struct Contribution {
    GradientUse use;
    T gradient;
  };
  template <class T>
  static std::vector<T> in_order(std::vector<Contribution<T>> contributions);

  std::vector<Contribution<ValueRef>> dense_;
  std::vector<Contribution<IndexedSlices>> slices_;
};

}  // namespace braid
