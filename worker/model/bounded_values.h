// Values of a bounded size, for bounded_sizes.h. Where the data choose some of a fixed number of places, as
// Where does, the values of the chosen ones are kept padded: one element for each place, and a mask that says
// which count. What an element of a place that was not chosen is, is anybody's guess, so whoever adds them up
// masks them first. Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

/// Places, of which the data choose some.
struct PlaceSet {
  ValueRef valid;  // [places] bool
  ValueRef
      coordinates;   // [places, rank] int64: where they are in what they were chosen from; none behind a fill
  bool all = false;  // of values that have no unknown size: every place is chosen
};

struct Bounded {
  enum class Kind {
    Rows,    // an element for each place of `set`: padded [places, ...]
    Places,  // for each place of `set` its number among the places of `of`
    Size,    // a number or a shape that has the number of places where the graph has that of the chosen ones
  };
  Kind kind = Kind::Rows;
  std::shared_ptr<const PlaceSet> set;
  ValueRef padded;
  ValueRef limits = {};  // of coordinates: the dense shape; of one column of them: its size, a scalar
  std::shared_ptr<const PlaceSet> of = {};  // of Places
};

/// Makes the nodes that take the places of those whose sizes are unknown.
class BoundedGraph {
 public:
  explicit BoundedGraph(Graph& graph) : graph(graph) {}

  /// A node named after the one that is being replaced.
  ValueRef op(const char* op, std::vector<ValueRef> inputs, AttrMap attrs = {});
  ValueRef number(std::int64_t value, DType dtype = DType::Int64);  // a scalar
  ValueRef numbers(std::vector<std::int64_t> values);               // [n] int64
  ValueRef like(ValueRef value, double filler);                     // a scalar of its type
  ValueRef cast(ValueRef value, DType dtype);
  ValueRef flat(ValueRef value);
  ValueRef column(ValueRef matrix, std::int64_t at);  // [n, m] -> [n]
  ValueRef element(ValueRef vector, std::int64_t at);
  /// The mask with dimensions of 1 behind it, as `value` has them.
  ValueRef mask_for(const PlaceSet& set, ValueRef value);
  ValueRef masked(const PlaceSet& set, ValueRef value, double filler);
  /// Numbers 0 to n - 1 as places of a dense shape: [n] and [rank] -> [n, rank].
  ValueRef coordinates(ValueRef linear, ValueRef shape);
  ValueRef strides(ValueRef shape);
  int rank(ValueRef value) const;  // -1: not known

  /// The bounded value, or null.
  const Bounded* find(ValueRef value) const;
  void set(ValueRef value, Bounded bounded) { values_[value] = std::move(bounded); }
  /// What a Where of an equal condition gives, as masks of logits and of labels are; or null.
  const Bounded* chosen_by(ValueRef condition) const;
  void remember_choice(ValueRef condition, ValueRef where) { choices_.emplace_back(condition, where); }
  /// As bounded rows, also where it is a plain value: all of it.
  Bounded rows_of(ValueRef value);
  /// Places of both become one set: those that are in both. Of ids and weights beside each other, which are
  /// chosen from two dense values, and of which TensorFlow wants as many.
  void merge(const std::shared_ptr<const PlaceSet>& a, const std::shared_ptr<const PlaceSet>& b);
  /// Everybody who uses `value` uses `with`, whose size is known.
  void replace(ValueRef value, ValueRef with);
  /// Takes away waits for nodes that only compute what is replaced.
  void drop_controls(Node& node) const;
  /// A copy of the node that is being replaced, with padded inputs.
  ValueRef copy_with_padded_inputs();

  /// Ids of places that were not chosen become one that was, so that no row learns that the batch does not
  /// name.
  ValueRef safe_ids(const Bounded& ids);
  /// Those places of `parts` whose number is k: the same set each time.
  std::shared_ptr<const PlaceSet> part_of(const Bounded& parts, int k);

  /// The set of these places, which are at these indices, with those for empty rows behind them; null: not
  /// made yet.
  std::shared_ptr<const PlaceSet>& filled(const std::shared_ptr<const PlaceSet>& set, ValueRef indices) {
    return filled_[{set, indices}];
  }

  Graph& graph;
  NodeId at = kNoNode;  // the node that is being replaced
  const Node& node() const { return graph.node(at); }
  ValueRef input(std::size_t i) const { return node().inputs[i]; }
  ValueRef output(int i = 0) const { return {at, i}; }

 private:
  std::map<ValueRef, Bounded> values_;
  std::vector<std::pair<ValueRef, ValueRef>> choices_;  // condition, Where
  std::map<ValueRef, std::shared_ptr<const PlaceSet>>
      whole_;  // of plain values, by what they are as a vector of sizes
  std::map<std::pair<std::shared_ptr<const PlaceSet>, ValueRef>, std::shared_ptr<const PlaceSet>> filled_;
  std::map<std::pair<ValueRef, int>, std::shared_ptr<const PlaceSet>> parts_;  // by the numbers' padded value
};

/// A rule replaces what the node at `g.at` gives and returns true, or leaves everything and returns false.
using BoundedRule = bool (*)(BoundedGraph& g);

/// The number of chosen places as a float, which is no size any more: whether `g.at` casts `size` so.
bool count_as_float(BoundedGraph& g, const Bounded& size);

/// Of ops that are done element by element, and have no rule of their own.
bool bound_pointwise(BoundedGraph& g);

/// Rules by op: of Where, gathers, partitions, shapes and reductions (bounded_rules.cc), and of sparse
/// tensors and segments (bounded_sparse.cc); of crosses and of sparse tensors that are merged and spread
/// (bounded_cross.cc); of what is done to rows (bounded_rows.cc).
void add_bounded_rules(std::map<std::string, BoundedRule>& rules);
void add_row_rules(std::map<std::string, BoundedRule>& rules);
void add_cross_rules(std::map<std::string, BoundedRule>& rules);
void add_sparse_rules(std::map<std::string, BoundedRule>& rules);

}  // namespace braid::worker
