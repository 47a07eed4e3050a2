#include "engine/rewrite/attention_pattern.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "engine/rewrite/known_number.h"
#include "engine/rewrite/labelled_product.h"

namespace braid {
namespace {

using Mask = AttentionPattern::Mask;

constexpr double kHighestLow = -1e4;  // what hides a score

bool named(const Node& node, std::initializer_list<std::string_view> ops) { return Pattern(ops).names(node); }

ValueRef other_input(const Node& n, ValueRef one) {
  return n.inputs[0] == one ? n.inputs[1] : n.inputs[1] == one ? n.inputs[0] : ValueRef{};
}

class AttentionFinder {
 public:
  AttentionFinder(const Rewrite& r, const Node& softmax) : r_(r), softmax_(softmax) {}

  std::optional<AttentionPattern> find() {
    const OutputInfo& info = softmax_.outputs[0];
    if (!info.shape.is_static() || info.shape.rank() < 2 ||
        (info.dtype != DType::Float32 && info.dtype != DType::Float64))
      return std::nullopt;
    found_.scores = info.shape;
    for (int a = 0; a + 2 < info.shape.rank(); ++a) batch_.push_back(static_cast<char>('A' + a));
    take(softmax_.id);
    if (!up(softmax_.inputs[0]) || !find_output()) return std::nullopt;
    // Where softmax is over queries the gradient of the values looks like the output.
    if (follows_from(r_.graph, v_.value.node, softmax_.id)) return std::nullopt;
    if (!others_.empty() && !(find_softmax_gradient() && find_gradients())) return std::nullopt;
    while (take_scale(q_, queries_, dq_, dk_) || take_scale(k_, keys_, dk_, dq_)) {
    }
    if (!choose_layout() || !is_alone()) return std::nullopt;
    std::reverse(found_.masks.begin(), found_.masks.end());
    return found_;
  }

 private:
  const Node& node(ValueRef value) const { return r_.node(value.node); }
  void take(NodeId id) { inner_.insert(id); }
  bool is_scores(ValueRef value) const { return r_.graph.info(value).shape == found_.scores; }
  std::set<NodeId> readers(ValueRef value) const {
    const std::vector<NodeId> all = r_.users.readers(value.node);
    return {all.begin(), all.end()};
  }

  // ------------------------------------------------------------------------- from the softmax up to q and k

  /// A node between the product and the softmax, the last one first.
  struct Step {
    enum class Kind { Scale, Sum, Select, Turn };
    NodeId node;
    Kind kind;
    double factor;  // of Scale
  };

  bool up(ValueRef value) {
    const Node& n = node(value);
    if (n.removed || value.output != 0 || !is_scores(value)) return false;
    if (labelled_product(r_, n)) return up_product(n, letters_of_scores());
    if (const auto axes = transposed_axes(r_, n)) {
      const Node& before = node(n.inputs[0]);
      if (!labelled_product(r_, before)) return false;
      steps_.push_back({n.id, Step::Kind::Turn, 1});
      take(n.id);
      return up_product(before, labels_before(*axes, letters_of_scores()));
    }
    if (named(n, {"Mul", "RealDiv"})) return up_scale(n);
    if (named(n, {"AddV2", "Add", "Sub"})) return up_sum(n);
    return named(n, {"SelectV2", "Select"}) && up_select(n);
  }

  bool up_product(const Node& n, const std::string& letters) {
    take(n.id);
    product_ = n.id;
    return queries_and_keys(factors_of(r_, n, letters, 'd'), q_, k_);
  }

  bool up_scale(const Node& n) {
    const bool divides = named(n, {"RealDiv"});
    for (const std::size_t at : {1, 0}) {
      const std::optional<double> c = known_number(r_.graph, n.inputs[at]);
      if (!c || *c == 0 || (divides && at == 0)) continue;
      const double factor = divides ? 1 / *c : *c;
      found_.scale *= factor;
      has_scale_ = true;
      steps_.push_back({n.id, Step::Kind::Scale, factor});
      take(n.id);
      return up(n.inputs[1 - at]);
    }
    return false;
  }

  bool up_sum(const Node& n) {
    if (has_scale_ || has_select()) return false;  // the mask would be scaled, too, or hidden
    const bool subtracts = named(n, {"Sub"});
    for (const std::size_t at : {1, 0}) {
      if (subtracts && at == 0) continue;
      const AttentionFinder before = *this;
      found_.masks.push_back({subtracts ? Mask::Kind::Subtracted : Mask::Kind::Added, n.inputs[at], n.id, 0});
      steps_.push_back({n.id, Step::Kind::Sum, 1});
      take(n.id);
      if (up(n.inputs[1 - at])) return true;
      restore(before);
    }
    return false;
  }

  bool up_select(const Node& n) {
    if (has_scale_ || !found_.masks.empty()) return false;
    for (const std::size_t at : {2, 1}) {
      const std::optional<double> low = known_number(r_.graph, n.inputs[at]);
      if (!low || !(*low <= kHighestLow)) continue;
      if (named(n, {"Select"}) && r_.graph.info(n.inputs[0]).shape != found_.scores) return false;
      found_.masks.push_back({at == 2 ? Mask::Kind::Seen : Mask::Kind::Hidden, n.inputs[0], n.id, *low});
      steps_.push_back({n.id, Step::Kind::Select, 1});
      take(n.id);
      return up(n.inputs[3 - at]);
    }
    return false;
  }

  bool has_select() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Step& step) { return step.kind == Step::Kind::Select; });
  }

  void restore(const AttentionFinder& before) {
    inner_ = before.inner_;
    steps_ = before.steps_;
    found_.masks = before.found_.masks;
    found_.scale = before.found_.scale;
    has_scale_ = before.has_scale_;
  }

  // ------------------------------------------------------------------------------------------- products

  std::string letters_of_scores() const { return batch_ + "ts"; }

  /// Which factor of scores, or their gradient, is of queries and which of keys.
  static bool queries_and_keys(const std::optional<std::pair<Lettered, Lettered>>& factors, Lettered& queries,
                               Lettered& keys) {
    if (!factors) return false;
    queries = has(factors->first.letters, 't') ? factors->first : factors->second;
    keys = has(factors->first.letters, 't') ? factors->second : factors->first;
    return !has(queries.letters, 's') && has(keys.letters, 's') && !has(keys.letters, 't');
  }

  static bool has(const std::string& letters, char letter) {
    return letters.find(letter) != std::string::npos;
  }

  /// The output, and who else reads the weights.
  Lettered weights() const { return {{softmax_.id, 0}, letters_of_scores()}; }

  bool find_output() {
    for (const NodeId id : readers({softmax_.id, 0})) {
      const auto product = product_with(r_, r_.node(id), weights(), 'e');
      if (product && !has(product->result.letters, 's')) {
        if (output_.value.valid()) return false;
        v_ = product->other;
        output_ = product->result;
      } else {
        others_.insert(id);
      }
    }
    return output_.value.valid();
  }

  // ------------------------------------------------------------------------------------------- gradients

  /// Among `others_`: dv, and the gradient of softmax, which gives d_scores_.
  bool find_softmax_gradient() {
    const ValueRef weights{softmax_.id, 0};
    std::vector<NodeId> products;  // elementwise
    ValueRef d_weights;
    for (const NodeId id : others_) {
      const Node& n = r_.node(id);
      if (named(n, {"braid.SoftmaxGrad"}) && n.inputs[0] == weights && n.inputs[1] != weights) {
        if (d_scores_.valid()) return false;
        d_weights = n.inputs[1];
        d_scores_ = {id, 0};
        take(id);
      } else if (named(n, {"Mul"})) {
        products.push_back(id);
      } else {
        const auto product = product_with(r_, n, this->weights(), 'e');
        if (!product || has(product->result.letters, 't') || dv_.value.valid()) return false;
        dv_ = product->result;
        d_outputs_.push_back(product->other);
      }
    }
    if (!products.empty() && (d_scores_.valid() || !written_out(products, d_weights))) return false;
    if (!d_scores_.valid()) return true;
    d_outputs_.emplace_back();
    values_.emplace_back();
    take(d_weights.node);
    return d_weights.output == 0 &&
           queries_and_keys(factors_of(r_, node(d_weights), letters_of_scores(), 'e'), d_outputs_.back(),
                            values_.back());
  }

  /// P (dP - sum(P dP)).
  bool written_out(const std::vector<NodeId>& products, ValueRef& d_weights) {
    if (products.size() != 2) return false;
    const ValueRef weights{softmax_.id, 0};
    for (const int last : {0, 1}) {
      const Node &outer = r_.node(products[static_cast<std::size_t>(last)]),
                 &inner = r_.node(products[static_cast<std::size_t>(1 - last)]);
      const ValueRef difference = other_input(outer, weights), dp = other_input(inner, weights);
      if (!difference.valid() || !dp.valid() || !named(node(difference), {"Sub"})) continue;
      const Node& sub = node(difference);
      const Node& sum = node(sub.inputs[1]);
      if (sub.inputs[0] != dp || !named(sum, {"Sum"}) || sum.inputs[0] != ValueRef{inner.id, 0} ||
          !is_over_keys(sum))
        continue;
      d_weights = dp;
      d_scores_ = {outer.id, 0};
      for (const NodeId id : {outer.id, inner.id, sub.id, sum.id}) take(id);
      return true;
    }
    return false;
  }
  bool is_over_keys(const Node& sum) const {
    const Tensor* const axes = r_.graph.known_value(sum.inputs[1]);
    if (!axes || axes->elements() != 1 || !sum.attrs.get("keep_dims", false)) return false;
    const std::int64_t axis = tensor_to_int64s(*axes)[0];
    return axis == -1 || axis == found_.scores.rank() - 1;
  }

  /// Back through masks and scales, to dq and dk.
  bool find_gradients() {
    if (!d_scores_.valid()) return true;  // of v alone
    ValueRef x = d_scores_;
    std::string letters = letters_of_scores();
    for (const Step& step : steps_) {
      if (step.kind == Step::Kind::Sum) continue;
      const std::set<NodeId> all = readers(x);
      if (all.size() != 1) return false;
      const Node& n = r_.node(*all.begin());
      if (step.kind == Step::Kind::Turn) {
        const auto axes = transposed_axes(r_, n);
        if (!axes) return false;
        letters = labels_behind(*axes, letters);
      } else if (!(step.kind == Step::Kind::Scale ? undoes_scale(n, x, step)
                                                  : undoes_select(n, x, r_.node(step.node)))) {
        return false;
      }
      take(n.id);
      x = {n.id, 0};
    }
    for (const NodeId id : readers(x)) {
      const auto product = product_with(r_, r_.node(id), {x, letters}, 'd');
      if (!product) return false;
      const bool of_queries = has(product->result.letters, 't') && !has(product->result.letters, 's');
      const bool of_keys = has(product->result.letters, 's') && !has(product->result.letters, 't');
      if (of_queries == of_keys || (of_queries ? dq_ : dk_).value.valid()) return false;
      (of_queries ? dq_ : dk_) = product->result;
      (of_queries ? keys_ : queries_).push_back(product->other);
    }
    return dq_.value.valid() || dk_.value.valid();
  }
  bool undoes_scale(const Node& n, ValueRef x, const Step& step) const {
    if (!named(n, {"Mul", "RealDiv"}) || !is_scores({n.id, 0})) return false;
    const bool divides = named(n, {"RealDiv"});
    const ValueRef other = divides ? (n.inputs[0] == x ? n.inputs[1] : ValueRef{}) : other_input(n, x);
    if (!other.valid()) return false;
    const std::optional<double> c = known_number(r_.graph, other);
    return c && (divides ? 1 / *c : *c) == step.factor;
  }
  bool undoes_select(const Node& n, ValueRef x, const Node& select) const {
    if (!named(n, {"SelectV2", "Select"}) || n.inputs[0] != select.inputs[0] || !is_scores({n.id, 0}))
      return false;
    const std::size_t kept = found_.masks[0].kind == Mask::Kind::Seen ? 1 : 2;
    return n.inputs[kept] == x && is_zero(n.inputs[3 - kept]);
  }
  bool is_zero(ValueRef value) const {
    return named(node(value), {"ZerosLike"}) || known_number(r_.graph, value) == std::optional<double>(0);
  }

  // ---------------------------------------------------------------------- scales of queries, or of keys

  /// What the node multiplies by a number, and the number.
  struct Scaled {
    ValueRef value;
    double factor;
  };
  std::optional<Scaled> scaled(ValueRef value) const {
    const Node& n = node(value);
    if (n.removed || value.output != 0 || !named(n, {"Mul", "RealDiv"})) return std::nullopt;
    const bool divides = named(n, {"RealDiv"});
    for (const std::size_t at : {1, 0}) {
      const std::optional<double> c = known_number(r_.graph, n.inputs[at]);
      if (!c || *c == 0 || (divides && at == 0)) continue;
      if (r_.graph.info(n.inputs[1 - at]).shape != r_.graph.info(value).shape) return std::nullopt;
      return Scaled{n.inputs[1 - at], divides ? 1 / *c : *c};
    }
    return std::nullopt;
  }

  /// Queries (or keys) `x` that are multiplied by a number before their product, as PyTorch exports its
  /// attention: the number is a part of the scale, here and behind their gradient `dx`. `again`: x as the
  /// gradient of the others, `d_other`, reads it.
  bool take_scale(Lettered& x, std::vector<Lettered>& again, Lettered& dx, const Lettered& d_other) {
    const std::optional<Scaled> before = scaled(x.value);
    if (!before) return false;
    for (const NodeId reader : readers(x.value))
      if (!inner_.contains(reader) && !(d_other.value.valid() && reader == d_other.value.node)) return false;
    Lettered behind = dx;
    std::vector<NodeId> passed;
    if (dx.value.valid() && !go_behind_scale(behind, before->factor, passed)) return false;
    if (!std::all_of(again.begin(), again.end(), [&](const Lettered& y) { return y.value == x.value; }))
      return false;
    take(x.value.node);
    scales_.push_back(x.value.node);
    found_.scale *= before->factor;
    x.value = before->value;
    for (Lettered& y : again) y.value = before->value;
    for (const NodeId id : passed) take(id);
    dx = behind;
    return true;
  }
  /// From a product, which may be transposed, to what it is when it is multiplied by the number, where nobody
  /// else reads it. `passed`: the nodes before that.
  bool go_behind_scale(Lettered& x, double factor, std::vector<NodeId>& passed) const {
    constexpr std::size_t kMost = 2;
    while (passed.size() < kMost) {
      const std::set<NodeId> all = readers(x.value);
      if (all.size() != 1 || x.value.output != 0) return false;
      passed.push_back(x.value.node);
      const ValueRef next{*all.begin(), 0};
      if (const auto axes = transposed_axes(r_, node(next))) {
        x = {next, labels_behind(*axes, x.letters)};
        continue;
      }
      const std::optional<Scaled> back = scaled(next);
      if (!back || back->value != x.value || back->factor != factor) return false;
      x.value = next;
      return true;
    }
    return false;
  }

  // --------------------------------------------------------------------------------------------- layouts

  std::string layout(char rows, char width, bool inside) const {
    std::string letters = batch_ + rows + width;
    if (inside) std::swap(letters[letters.size() - 3], letters[letters.size() - 2]);
    return letters;
  }
  bool choose_layout() {
    if (!batch_.empty() && lies(true)) return true;
    return lies(false);
  }

  bool lies(bool inside) {
    AttentionPattern p = found_;
    p.products = {product_, output_.value.node};
    std::vector<NodeId> passed;
    p.heads_inside = inside;
    const std::string of_q = layout('t', 'd', inside), of_k = layout('s', 'd', inside);
    const std::string of_v = layout('s', 'e', inside), of_out = layout('t', 'e', inside);
    const auto all_are = [&](const std::vector<Lettered>& again, const std::string& wanted, ValueRef value) {
      return std::all_of(again.begin(), again.end(),
                         [&](const Lettered& x) { return lying_as(r_, x, wanted) == value; });
    };
    p.q = lying_as(r_, q_, of_q);
    p.k = lying_as(r_, k_, of_k);
    p.v = lying_as(r_, v_, of_v);
    p.output = taken_as(r_, output_, of_out, passed);
    if (!p.q.valid() || !p.k.valid() || !p.v.valid() || !p.output.valid()) return false;
    if (!all_are(queries_, of_q, p.q) || !all_are(keys_, of_k, p.k) || !all_are(values_, of_v, p.v))
      return false;
    if (!d_outputs_.empty()) {
      p.d_output = lying_as(r_, d_outputs_[0], of_out);
      if (!p.d_output.valid() || !all_are(d_outputs_, of_out, p.d_output)) return false;
    }
    const auto take_gradient = [&](const Lettered& x, const std::string& wanted, ValueRef& to) {
      if (!x.value.valid()) return true;
      to = taken_as(r_, x, wanted, passed);
      return to.valid();
    };
    if (!take_gradient(dq_, of_q, p.dq) || !take_gradient(dk_, of_k, p.dk) || !take_gradient(dv_, of_v, p.dv))
      return false;
    found_ = std::move(p);
    for (const NodeId id : passed) take(id);
    return true;
  }

  // ---------------------------------------------------------------------------------------- who else reads

  bool is_alone() const {
    std::set<NodeId> made;
    for (const ValueRef value : {found_.output, found_.dq, found_.dk, found_.dv})
      if (value.valid()) made.insert(value.node);
    for (const NodeId id : inner_) {
      if (!is_inner(r_.plan, r_.node(id).id) || r_.users.is_awaited(id)) return false;
      for (const NodeId reader : r_.users.readers(id))
        if (!inner_.contains(reader) && !made.contains(reader)) return false;
    }
    for (const NodeId id : made)
      if (!is_plain(r_.plan, r_.node(id))) return false;
    return run_together(made);
  }
  /// What goes forward is on one stream and device, and so is what goes back.
  bool run_together(std::set<NodeId> all) const {
    all.insert(inner_.begin(), inner_.end());
    const Node* back = nullptr;
    std::set<NodeId> forward{softmax_.id, product_, found_.output.node, output_.value.node};
    for (const Step& step : steps_) forward.insert(step.node);
    forward.insert(scales_.begin(), scales_.end());
    for (const NodeId id : all) {
      const Node& n = r_.node(id);
      const bool is_forward = forward.contains(id);
      if (!is_forward && !back) back = &n;
      const Node& with = is_forward ? softmax_ : *back;
      if (n.stream != with.stream || n.device != with.device) return false;
    }
    return true;
  }

  const Rewrite& r_;
  const Node& softmax_;
  std::string batch_;
  AttentionPattern found_;
  std::set<NodeId> inner_;  // nodes that go away
  std::vector<Step> steps_;
  bool has_scale_ = false;
  NodeId product_ = kNoNode;
  std::vector<NodeId> scales_;  // of queries and keys, that go away
  Lettered q_, k_, v_, output_, dq_, dk_, dv_;
  std::vector<Lettered> queries_, keys_, values_, d_outputs_;  // as the gradient reads them
  std::set<NodeId> others_;
  ValueRef d_scores_;
};

}  // namespace

std::optional<AttentionPattern> find_attention(const Rewrite& r, const Node& softmax) {
  return AttentionFinder(r, softmax).find();
}

}  // namespace braid
