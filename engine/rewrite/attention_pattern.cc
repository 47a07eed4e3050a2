#include "engine/rewrite/attention_pattern.h"

#include <algorithm>

#include "engine/rewrite/attention_finder.h"
#include "engine/rewrite/known_number.h"

namespace braid {
namespace {

using Mask = AttentionPattern::Mask;

constexpr double kHighestLow = -1e4;  // what hides a score

}  // namespace

std::optional<AttentionPattern> AttentionFinder::find() {
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
  if (!(found_.scale > 0)) return std::nullopt;  // what kernels leave out is -inf before it is scaled
  if (!choose_layout() || !is_alone()) return std::nullopt;
  std::reverse(found_.masks.begin(), found_.masks.end());
  return found_;
}

bool AttentionFinder::up(ValueRef value) {
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
  if (is_named(n, {"Mul", "RealDiv"})) return up_scale(n);
  if (is_named(n, {"AddV2", "Add", "Sub"})) return up_sum(n);
  return is_named(n, {"SelectV2", "Select"}) && up_select(n);
}

bool AttentionFinder::up_product(const Node& n, const std::string& letters) {
  take(n.id);
  product_ = n.id;
  return queries_and_keys(factors_of(r_, n, letters, 'd'), q_, k_);
}

bool AttentionFinder::up_scale(const Node& n) {
  const bool divides = is_named(n, {"RealDiv"});
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

bool AttentionFinder::up_sum(const Node& n) {
  if (has_scale_ || has_select()) return false;  // the mask would be scaled, too, or hidden
  const bool subtracts = is_named(n, {"Sub"});
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

bool AttentionFinder::up_select(const Node& n) {
  if (has_scale_ || !found_.masks.empty()) return false;
  for (const std::size_t at : {2, 1}) {
    const std::optional<double> low = known_number(r_.graph, n.inputs[at]);
    if (!low || !(*low <= kHighestLow)) continue;
    if (is_named(n, {"Select"}) && r_.graph.info(n.inputs[0]).shape != found_.scores) return false;
    found_.masks.push_back({at == 2 ? Mask::Kind::Seen : Mask::Kind::Hidden, n.inputs[0], n.id, *low});
    steps_.push_back({n.id, Step::Kind::Select, 1});
    take(n.id);
    return up(n.inputs[3 - at]);
  }
  return false;
}

void AttentionFinder::restore(const AttentionFinder& before) {
  inner_ = before.inner_;
  steps_ = before.steps_;
  found_.masks = before.found_.masks;
  found_.scale = before.found_.scale;
  has_scale_ = before.has_scale_;
}

bool AttentionFinder::queries_and_keys(const std::optional<std::pair<Lettered, Lettered>>& factors,
                                       Lettered& queries, Lettered& keys) {
  if (!factors) return false;
  queries = has(factors->first.letters, 't') ? factors->first : factors->second;
  keys = has(factors->first.letters, 't') ? factors->second : factors->first;
  return !has(queries.letters, 's') && has(keys.letters, 's') && !has(keys.letters, 't');
}

bool AttentionFinder::find_output() {
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

std::string AttentionFinder::layout(char rows, char width, bool inside) const {
  std::string letters = batch_ + rows + width;
  if (inside) std::swap(letters[letters.size() - 3], letters[letters.size() - 2]);
  return letters;
}

bool AttentionFinder::choose_layout() {
  if (!batch_.empty() && lies(true)) return true;
  return lies(false);
}

bool AttentionFinder::lies(bool inside) {
  AttentionPattern p = found_;
  p.products = {product_, output_.value.node};
  p.mask_gradients = {sums_.begin(), sums_.end()};
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

bool AttentionFinder::is_alone() const {
  std::set<NodeId> made;
  for (const ValueRef value : {found_.output, found_.dq, found_.dk, found_.dv})
    if (value.valid()) made.insert(value.node);
  made.insert(sums_.begin(), sums_.end());
  for (const NodeId id : inner_) {
    if (!is_inner(r_.plan, r_.node(id).id) || r_.users.is_awaited(id)) return false;
    for (const NodeId reader : r_.users.readers(id))
      if (!inner_.contains(reader) && !made.contains(reader)) return false;
  }
  for (const NodeId id : made)
    if (!is_plain(r_.plan, r_.node(id))) return false;
  return run_together(made);
}

bool AttentionFinder::run_together(std::set<NodeId> all) const {
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

std::optional<AttentionPattern> find_attention(const Rewrite& r, const Node& softmax) {
  return AttentionFinder(r, softmax).find();
}

}  // namespace braid
