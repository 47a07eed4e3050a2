// What attention's gradient is made of (attention_finder.h): that of softmax, back through masks and scales,
// to the products that give dq, dk and dv.
#include <algorithm>

#include "engine/rewrite/attention_finder.h"
#include "engine/rewrite/known_number.h"

namespace braid {
namespace {

using Mask = AttentionPattern::Mask;

ValueRef other_input(const Node& n, ValueRef one) {
  return n.inputs[0] == one ? n.inputs[1] : n.inputs[1] == one ? n.inputs[0] : ValueRef{};
}

}  // namespace

bool AttentionFinder::find_softmax_gradient() {
  const ValueRef weights{softmax_.id, 0};
  std::vector<NodeId> products;  // elementwise
  ValueRef d_weights;
  for (const NodeId id : others_) {
    const Node& n = r_.node(id);
    if (is_named(n, {"braid.SoftmaxGrad"}) && n.inputs[0] == weights && n.inputs[1] != weights) {
      if (d_scores_.valid()) return false;
      d_weights = n.inputs[1];
      d_scores_ = {id, 0};
      take(id);
    } else if (is_named(n, {"Mul"})) {
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
  return d_weights.output == 0 && queries_and_keys(factors_of(r_, node(d_weights), letters_of_scores(), 'e'),
                                                   d_outputs_.back(), values_.back());
}

bool AttentionFinder::written_out(const std::vector<NodeId>& products, ValueRef& d_weights) {
  if (products.size() != 2) return false;
  const ValueRef weights{softmax_.id, 0};
  for (const int last : {0, 1}) {
    const Node &outer = r_.node(products[static_cast<std::size_t>(last)]),
               &inner = r_.node(products[static_cast<std::size_t>(1 - last)]);
    const ValueRef difference = other_input(outer, weights), dp = other_input(inner, weights);
    if (!difference.valid() || !dp.valid() || !is_named(node(difference), {"Sub"})) continue;
    const Node& sub = node(difference);
    const Node& sum = node(sub.inputs[1]);
    if (sub.inputs[0] != dp || !is_named(sum, {"Sum"}) || sum.inputs[0] != ValueRef{inner.id, 0} ||
        !is_over_keys(sum))
      continue;
    d_weights = dp;
    d_scores_ = {outer.id, 0};
    for (const NodeId id : {outer.id, inner.id, sub.id, sum.id}) take(id);
    return true;
  }
  return false;
}

bool AttentionFinder::is_over_keys(const Node& sum) const {
  const Tensor* const axes = r_.graph.known_value(sum.inputs[1]);
  if (!axes || axes->elements() != 1 || !sum.attrs.get("keep_dims", false)) return false;
  const std::int64_t axis = tensor_to_int64s(*axes)[0];
  return axis == -1 || axis == found_.scores.rank() - 1;
}

bool AttentionFinder::find_gradients() {
  if (!d_scores_.valid()) return true;  // of v alone
  ValueRef x = d_scores_;
  std::string letters = letters_of_scores();
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::Sum) {
      take_mask_gradients(x);
      continue;
    }
    const std::set<NodeId> all = other_readers(x);
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
  for (const NodeId id : other_readers(x)) {
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

void AttentionFinder::take_mask_gradients(ValueRef x) {
  for (const NodeId id : readers(x))
    if (is_named(r_.node(id), {"braid.ReduceToShapeOf", "Sum"}) && r_.node(id).inputs[0] == x)
      sums_.insert(id);
}
std::set<NodeId> AttentionFinder::other_readers(ValueRef x) const {
  std::set<NodeId> others = readers(x);
  for (const NodeId id : sums_) others.erase(id);
  return others;
}

bool AttentionFinder::undoes_scale(const Node& n, ValueRef x, const Step& step) const {
  if (!is_named(n, {"Mul", "RealDiv"}) || !is_scores({n.id, 0})) return false;
  const bool divides = is_named(n, {"RealDiv"});
  const ValueRef other = divides ? (n.inputs[0] == x ? n.inputs[1] : ValueRef{}) : other_input(n, x);
  if (!other.valid()) return false;
  const std::optional<double> c = known_number(r_.graph, other);
  return c && (divides ? 1 / *c : *c) == step.factor;
}

bool AttentionFinder::undoes_select(const Node& n, ValueRef x, const Node& select) const {
  if (!is_named(n, {"SelectV2", "Select"}) || n.inputs[0] != select.inputs[0] || !is_scores({n.id, 0}))
    return false;
  const std::size_t kept = found_.masks[0].kind == Mask::Kind::Seen ? 1 : 2;
  return n.inputs[kept] == x && is_zero(n.inputs[3 - kept]);
}

bool AttentionFinder::is_zero(ValueRef value) const {
  return is_named(node(value), {"ZerosLike"}) || known_number(r_.graph, value) == std::optional<double>(0);
}

std::optional<AttentionFinder::Scaled> AttentionFinder::scaled(ValueRef value) const {
  const Node& n = node(value);
  if (n.removed || value.output != 0 || !is_named(n, {"Mul", "RealDiv"})) return std::nullopt;
  const bool divides = is_named(n, {"RealDiv"});
  for (const std::size_t at : {1, 0}) {
    const std::optional<double> c = known_number(r_.graph, n.inputs[at]);
    if (!c || *c == 0 || (divides && at == 0)) continue;
    if (r_.graph.info(n.inputs[1 - at]).shape != r_.graph.info(value).shape) return std::nullopt;
    return Scaled{n.inputs[1 - at], divides ? 1 / *c : *c};
  }
  return std::nullopt;
}

bool AttentionFinder::take_scale(Lettered& x, std::vector<Lettered>& again, Lettered& dx,
                                 const Lettered& d_other) {
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

bool AttentionFinder::go_behind_scale(Lettered& x, double factor, std::vector<NodeId>& passed) const {
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

}  // namespace braid
