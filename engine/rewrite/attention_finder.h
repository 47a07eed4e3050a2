// What looks for attention (attention_pattern.h) from its softmax: attention_pattern.cc what goes forward,
// and who else reads it, attention_gradient.cc what goes back. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rewrite/attention_pattern.h"
#include "engine/rewrite/labelled_product.h"

namespace braid {

inline bool is_named(const Node& node, std::initializer_list<std::string_view> ops) {
  return Pattern(ops).names(node);
}

class AttentionFinder {
 public:
  AttentionFinder(const Rewrite& r, const Node& softmax) : r_(r), softmax_(softmax) {}
  std::optional<AttentionPattern> find();

 private:
  const Node& node(ValueRef value) const { return r_.node(value.node); }
  void take(NodeId id) { inner_.insert(id); }
  bool is_scores(ValueRef value) const { return r_.graph.info(value).shape == found_.scores; }
  std::set<NodeId> readers(ValueRef value) const {
    const std::vector<NodeId> all = r_.users.readers(value.node);
    return {all.begin(), all.end()};
  }
  /// A node between the product and the softmax, the last one first.
  struct Step {
    enum class Kind { Scale, Sum, Select, Turn };
    NodeId node;
    Kind kind;
    double factor;  // of Scale
  };
  bool up(ValueRef value);
  bool up_product(const Node& n, const std::string& letters);
  bool up_scale(const Node& n);
  bool up_sum(const Node& n);
  bool up_select(const Node& n);
  bool has_select() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Step& step) { return step.kind == Step::Kind::Select; });
  }
  void restore(const AttentionFinder& before);
  std::string letters_of_scores() const { return batch_ + "ts"; }
  /// Which factor of scores, or their gradient, is of queries and which of keys.
  static bool queries_and_keys(const std::optional<std::pair<Lettered, Lettered>>& factors, Lettered& queries,
                               Lettered& keys);
  static bool has(const std::string& letters, char letter) {
    return letters.find(letter) != std::string::npos;
  }
  /// The output, and who else reads the weights.
  Lettered weights() const { return {{softmax_.id, 0}, letters_of_scores()}; }
  bool find_output();
  /// Among `others_`: dv, and the gradient of softmax, which gives d_scores_.
  bool find_softmax_gradient();
  /// P (dP - sum(P dP)).
  bool written_out(const std::vector<NodeId>& products, ValueRef& d_weights);
  bool is_over_keys(const Node& sum) const;
  /// Back through masks and scales, to dq and dk.
  bool find_gradients();
  /// Who adds up `x`, the gradient of a sum with a mask, to that of the mask.
  void take_mask_gradients(ValueRef x);
  std::set<NodeId> other_readers(ValueRef x) const;
  bool undoes_scale(const Node& n, ValueRef x, const Step& step) const;
  bool undoes_select(const Node& n, ValueRef x, const Node& select) const;
  bool is_zero(ValueRef value) const;
  /// What the node multiplies by a number, and the number.
  struct Scaled {
    ValueRef value;
    double factor;
  };
  std::optional<Scaled> scaled(ValueRef value) const;
  /// Queries (or keys) `x` that are multiplied by a number before their product, as PyTorch exports its
  /// attention: the number is a part of the scale, here and behind their gradient `dx`. `again`: x as the
  /// gradient of the others, `d_other`, reads it.
  bool take_scale(Lettered& x, std::vector<Lettered>& again, Lettered& dx, const Lettered& d_other);
  /// From a product, which may be transposed, to what it is when it is multiplied by the number, where nobody
  /// else reads it. `passed`: the nodes before that.
  bool go_behind_scale(Lettered& x, double factor, std::vector<NodeId>& passed) const;
  std::string layout(char rows, char width, bool inside) const;
  bool choose_layout();
  bool lies(bool inside);
  bool is_alone() const;
  /// What goes forward is on one stream and device, and so is what goes back.
  bool run_together(std::set<NodeId> all) const;

  const Rewrite& r_;
  const Node& softmax_;
  std::string batch_;
  AttentionPattern found_;
  std::set<NodeId> inner_;  // nodes that go away
  std::vector<Step> steps_;
  std::set<NodeId> sums_;  // of the scores' gradient, which give those of masks
  bool has_scale_ = false;
  NodeId product_ = kNoNode;
  std::vector<NodeId> scales_;  // of queries and keys, that go away
  Lettered q_, k_, v_, output_, dq_, dk_, dv_;
  std::vector<Lettered> queries_, keys_, values_, d_outputs_;  // as the gradient reads them
  std::set<NodeId> others_;
  ValueRef d_scores_;
};

}  // namespace braid
