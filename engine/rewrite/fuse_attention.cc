// Attention that is written as products, scales, masks and softmax (attention_pattern.h) becomes one node,
// braid.Attention, and its gradient another, which keep no matrix of scores. Left as they are: attention
// whose scores or weights, or gradients of these, somebody else reads, as dropout does, and that which is
// faster so (is_faster()). Learned masks, such as biases by distance, get their gradient from the node: what
// sums that of the scores to their shape sums this one.
//
// A mask that is known, and hides from each query what comes behind its place, is causality: what no query of
// a tile sees is not computed. Masks that are added are added up first.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/graph/passes.h"
#include "engine/ir/constant_folder.h"
#include "engine/ir/op.h"
#include "engine/ops/nn/attention_node.h"
#include "engine/rewrite/attention_pattern.h"
#include "engine/rewrite/passes.h"

namespace braid {
namespace {

using Mask = AttentionPattern::Mask;

constexpr double kLowEnough = -1e9;  // added to a score, or in its place: no key of another score shows it
constexpr std::int64_t kMostKnown = std::int64_t{1} << 24;  // elements of a mask that is looked at

bool is_choice(const Mask& mask) { return mask.kind == Mask::Kind::Seen || mask.kind == Mask::Kind::Hidden; }

/// What follows from constants, whatever its size; shape inference leaves large values out.
class Known {
 public:
  explicit Known(const Rewrite& r) : r_(r), folder_(std::size_t{1} << 28) {}

  const Tensor* value(ValueRef value) {
    if (const Tensor* const known = r_.graph.known_value(value)) return known;
    const auto at = made_.find(value.node);
    if (at != made_.end()) return find(at->second, value.output);
    made_[value.node] = {};
    const Node& node = r_.node(value.node);
    if (!is_plain(r_.plan, node) || node.inputs.empty() || node.inputs.size() > 4 || !is_small(node))
      return nullptr;
    std::vector<OutputInfo> infos;
    std::vector<const Tensor*> inputs;
    for (const ValueRef input : node.inputs) {
      infos.push_back(r_.graph.info(input));
      inputs.push_back(this->value(input));
      if (!inputs.back()) return nullptr;
    }
    made_[value.node] = folder_.fold(node, infos, inputs);
    return find(made_[value.node], value.output);
  }

 private:
  static const Tensor* find(const std::vector<Tensor>& outputs, int output) {
    return output < static_cast<int>(outputs.size()) ? &outputs[static_cast<std::size_t>(output)] : nullptr;
  }
  bool is_small(const Node& node) const {
    return std::all_of(node.outputs.begin(), node.outputs.end(), [](const OutputInfo& info) {
      return info.shape.is_static() && info.shape.elements() <= kMostKnown &&
             (info.dtype == DType::Bool || info.dtype == DType::Float32 || info.dtype == DType::Float64 ||
              info.dtype == DType::Int32 || info.dtype == DType::Int64);
    });
  }

  const Rewrite& r_;
  ConstantFolder folder_;
  std::map<NodeId, std::vector<Tensor>> made_;
};

/// Which pairs a known mask lets see each other, [n, m]; nothing where it says more than that.
std::vector<bool> pairs_seen(const Tensor& mask, Mask::Kind kind) {
  std::vector<bool> seen;
  const auto of = [&]<class T>() {
    for (const T x : mask.data<T>()) {
      const double added = kind == Mask::Kind::Subtracted ? -static_cast<double>(x) : static_cast<double>(x);
      if (added != 0 && !(added <= kLowEnough)) return seen.clear();
      seen.push_back(added == 0);
    }
  };
  if (mask.dtype() == DType::Float32) of.operator()<float>();
  if (mask.dtype() == DType::Float64) of.operator()<double>();
  if (mask.dtype() == DType::Bool)
    for (const bool x : mask.data<bool>()) seen.push_back(x == (kind == Mask::Kind::Seen));
  return seen;
}

/// Of a known mask of scores [..., n, m]: query i sees keys up to i + this, and each query sees one. n + m:
/// each sees all.
std::optional<std::int64_t> causal_offset(Known& known, const Mask& mask, const Shape& info,
                                          const Shape& scores) {
  const std::int64_t n = scores[scores.rank() - 2], m = scores[scores.rank() - 1];
  if (!info.is_static() || info.rank() < 2 || info.elements() != n * m || info[info.rank() - 1] != m ||
      info[info.rank() - 2] != n || n * m > kMostKnown || n * m == 0 ||
      (is_choice(mask) && mask.low > kLowEnough))
    return std::nullopt;
  const Tensor* const value = known.value(mask.value);
  if (!value) return std::nullopt;
  const std::vector<bool> seen = pairs_seen(*value, mask.kind);
  if (std::ssize(seen) != n * m) return std::nullopt;
  if (std::find(seen.begin(), seen.end(), false) == seen.end()) return n + m;
  const std::int64_t offset = std::find(seen.begin(), seen.begin() + m, false) - seen.begin() - 1;
  if (offset < 0) return std::nullopt;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j)
      if (seen[static_cast<std::size_t>(i * m + j)] != (j <= i + offset)) return std::nullopt;
  return offset;
}

struct Found {
  AttentionPattern pattern;
  std::optional<std::int64_t> offset;  // causality, in the place of the mask

  std::int64_t queries() const { return pattern.scores[pattern.scores.rank() - 2]; }
  std::int64_t keys() const { return pattern.scores[pattern.scores.rank() - 1]; }
  bool is_causal() const { return offset && *offset < keys() - 1; }
};

/// Of masks that are added up, or of one.
std::optional<Shape> shape_of_masks(const Rewrite& r, const AttentionPattern& p) {
  Shape all;
  for (const Mask& mask : p.masks) {
    const Shape& shape = r.graph.info(mask.value).shape;
    if (!shape.is_static() || !broadcast_shapes(Shape(all), shape, all)) return std::nullopt;
  }
  return all;
}

/// Whether the scores' gradient, added up to `mask`, is all that the sum `id` of it needs. The mask has each
/// query and key.
bool sums_what_masks_share(const Rewrite& r, const AttentionPattern& p, const Shape& mask, NodeId id) {
  static const Pattern to_shape{"braid.ReduceToShapeOf"};
  const Node& sum = r.node(id);
  const int rank = p.scores.rank(), behind = rank - mask.rank();
  std::vector<bool> is_summed(static_cast<std::size_t>(rank), false);
  if (to_shape.names(sum)) {
    const Shape& to = sum.outputs[0].shape;
    if (!to.is_static() || to.rank() > rank) return false;
    for (int a = 0; a < rank; ++a) {
      const int at = a - (rank - to.rank());
      is_summed[static_cast<std::size_t>(a)] = at < 0 || to[at] == 1;
    }
  } else {
    const Tensor* const axes = r.graph.known_value(sum.inputs[1]);
    if (!axes) return false;
    for (const std::int64_t axis : tensor_to_int64s(*axes))
      is_summed[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  for (int a = 0; a < rank; ++a) {
    const bool is_shared = p.scores[a] > 1 && (a < behind || mask[a - behind] == 1);
    if (is_shared && !is_summed[static_cast<std::size_t>(a)]) return false;
  }
  return true;
}

/// Whether the masks' gradients are sums that the node can give.
bool can_sum_masks(const Rewrite& r, const AttentionPattern& p) {
  if (p.mask_gradients.empty()) return true;
  const auto mask = shape_of_masks(r, p);
  if (!mask || mask->rank() < 2) return false;
  const auto at = [](const Shape& shape, int behind) { return shape[shape.rank() - behind]; };
  if (at(*mask, 1) != at(p.scores, 1) || at(*mask, 2) != at(p.scores, 2)) return false;
  return std::all_of(p.mask_gradients.begin(), p.mask_gradients.end(),
                     [&](NodeId id) { return sums_what_masks_share(r, p, *mask, id); });
}

/// Whether one node is faster than those that it replaces. On the host these are products of oneDNN, which
/// are as fast until their results, of all heads, leave its caches; with causality half of the work remains.
/// On a device one kernel is faster where it has tensor cores. Its blocks have 64 queries or more: where
/// there are fewer, that pays as long as the device has room for all of them. float32 products of large heads
/// are faster by cuBLAS. Few queries and keys have kernels of their own. `fusion_bench --attention` measures
/// it.
bool is_faster(const Rewrite& r, const Found& found) {
  constexpr std::int64_t kHostRows = 32, kHostScores = 256 * 256, kHostCausalScores = 128 * 128;
  constexpr std::int64_t kHostAll = std::int64_t{1} << 22;  // scores of all heads
  constexpr std::int64_t kDeviceRows = 8, kFullRows = 32, kFewBlocks = 512, kWidest = 128;
  constexpr std::int64_t kDeviceScores = 256 * 256;  // of float32, without causality
  const std::int64_t n = found.queries(), m = found.keys();
  const bool sums_masks = !found.pattern.mask_gradients.empty();
  if (r.plan.options.domain == Domain::Host) {
    if (n < kHostRows || sums_masks) return false;
    if (found.is_causal()) return n * m >= kHostCausalScores;
    return n * m >= kHostScores && found.pattern.scores.elements() >= kHostAll;
  }
  const bool is_float = r.plan.options.precision.half == DType::Float32;
  const OutputInfo &q = r.graph.info(found.pattern.q), &v = r.graph.info(found.pattern.v);
  const std::int64_t qk_width = q.shape[q.shape.rank() - 1], v_width = v.shape[v.shape.rank() - 1];
  const bool is_short = attention::is_short(n, m, std::max(qk_width, v_width), is_float ? 4 : 2, sums_masks);
  if (sums_masks && !is_short) return false;
  if (!is_short && n < kFullRows && found.pattern.scores.elements() > kFewBlocks * n * m) return false;
  if (is_float && !found.is_causal() && n * m > kDeviceScores) return false;
  const std::int64_t pack = is_float ? 4 : 8;  // numbers of 16 bytes
  return q.dtype == DType::Float32 && std::min(n, m) >= kDeviceRows &&
         std::max(qk_width, v_width) <= kWidest && qk_width % pack == 0 && v_width % pack == 0;
}

class Fusion {
 public:
  explicit Fusion(Rewrite& r) : r_(r), known_(r) {}

  std::optional<Found> find(const Match& match) {
    auto pattern = find_attention(r_, r_.node(match[0]));
    if (!pattern || keeps_products(*pattern)) return std::nullopt;
    for (Mask& mask : pattern->masks) mask.value = narrowed(mask.value);
    if (!masks_lie_evenly(*pattern) || !can_sum_masks(r_, *pattern)) return std::nullopt;
    Found found{std::move(*pattern), std::nullopt};
    if (found.pattern.masks.size() == 1 && found.pattern.mask_gradients.empty()) {
      const Mask& mask = found.pattern.masks[0];
      found.offset = causal_offset(known_, mask, r_.graph.info(mask.value).shape, found.pattern.scores);
    }
    const bool always = r_.plan.options.attention == AttentionNodes::Always;
    if (!always && !is_faster(r_, found)) return std::nullopt;
    return found;
  }

  void build(const Found& found) {
    const AttentionPattern& p = found.pattern;
    AttrMap attrs{{"scale", p.scale}, {"heads_inside", p.heads_inside}};
    std::vector<ValueRef> mask;
    if (found.is_causal()) {
      attrs.set("causal", true);
      attrs.set("causal_offset", *found.offset);
    } else if (!found.offset && !p.masks.empty()) {
      mask.push_back(joined_mask(p));
      if (is_choice(p.masks[0])) attrs.set("hidden", p.masks[0].low);
    }
    std::vector<ValueRef> inputs{p.q, p.k, p.v};
    inputs.insert(inputs.end(), mask.begin(), mask.end());
    const NodeId forward = make(p.output.node, "braid.Attention", inputs, attrs, "/attention", kNoNode);
    if (p.d_output.valid()) {
      inputs = {p.q, p.k, p.v, p.d_output, {forward, 0}, {forward, 1}};
      inputs.insert(inputs.end(), mask.begin(), mask.end());
      if (!p.mask_gradients.empty()) attrs.set(attention::kMaskGradient, true);
      const ValueRef first = p.dq.valid() ? p.dq : p.dk.valid() ? p.dk : p.dv;
      const NodeId backward = make(first.node, "braid.AttentionGrad", inputs, attrs, "/attention", forward);
      put(p.dq, {backward, 0});
      put(p.dk, {backward, 1});
      put(p.dv, {backward, 2});
      for (const NodeId id : p.mask_gradients) put_mask_gradient(p, id, {backward, 3});
    }
    put(p.output, {forward, 0});
  }

 private:
  /// Whether the user wants products like these in float32, whose neighbours are not.
  bool keeps_products(const AttentionPattern& p) const {
    const PrecisionOptions& precision = r_.plan.options.precision;
    return precision.half != DType::Float32 &&
           std::any_of(p.products.begin(), p.products.end(), [&](NodeId id) {
             return std::count(precision.keep_ops.begin(), precision.keep_ops.end(), r_.node(id).op->name) >
                    0;
           });
  }
  bool masks_lie_evenly(const AttentionPattern& p) const {
    const auto all = shape_of_masks(r_, p);
    return p.masks.empty() || (all && attention::mask_steps(*all, p.scores));
  }

  NodeId make(NodeId like, const char* op, std::vector<ValueRef> inputs, AttrMap attrs, const char* suffix,
              NodeId forward) {
    Node node = r_.node(like);
    node.id = kNoNode;
    node.op = &OpRegistry::global().require(op);
    node.name = r_.graph.unique_name(node.name + suffix);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.outputs.clear();
    node.known_values.clear();
    node.colocate_with = kNoNode;
    if (forward != kNoNode) node.forward_of = forward;
    return r_.graph.add(std::move(node));
  }
  void put(ValueRef old, ValueRef made) {
    if (old.valid()) replace_with(r_.plan, old.node, made);
  }

  /// The sum `id` of the scores' gradient becomes one of what the node has summed of it.
  void put_mask_gradient(const AttentionPattern& p, NodeId id, ValueRef summed) {
    const Node sum = r_.node(id);
    const Shape mask = *shape_of_masks(r_, p);
    if (sum.outputs[0].shape == mask) return put({id, 0}, summed);
    std::vector<std::int64_t> dims(static_cast<std::size_t>(p.scores.rank() - mask.rank()), 1);
    dims.insert(dims.end(), mask.dims().begin(), mask.dims().end());
    std::vector<ValueRef> inputs = sum.inputs;
    const ValueRef shape = constant(id, Tensor::from<std::int64_t>({static_cast<std::int64_t>(dims.size())},
                                                                   std::span<const std::int64_t>(dims)));
    inputs[0] = {make(id, "Reshape", {summed, shape}, {}, "/mask", kNoNode), 0};
    put({id, 0}, {make(id, sum.op->name.c_str(), inputs, sum.attrs, "/mask", kNoNode), 0});
  }
  ValueRef constant(NodeId like, Tensor value) {
    return {
        make(like, "Const", {}, {{"dtype", value.dtype()}, {"value", std::move(value)}}, "/shape", kNoNode),
        0};
  }

  ValueRef one_input(const Mask& mask, const char* op) {
    return {make(mask.at, op, {mask.value}, {}, "/mask", kNoNode), 0};
  }
  /// The mask without what only spreads it over scores.
  ValueRef narrowed(ValueRef mask) {
    static const Pattern both{"LogicalAnd"}, spread{"BroadcastTo"};
    const Node& node = r_.node(mask.node);
    if (!is_plain(r_.plan, node)) return mask;
    if (spread.names(node)) return node.inputs[0];
    if (!both.names(node)) return mask;
    for (const std::size_t at : {0, 1}) {
      const Tensor* const known = known_.value(node.inputs[at]);
      if (!known || known->dtype() != DType::Bool) continue;
      const std::span<const bool> all = known->data<bool>();
      if (std::find(all.begin(), all.end(), false) == all.end()) return node.inputs[1 - at];
    }
    return mask;
  }
  ValueRef joined_mask(const AttentionPattern& p) {
    ValueRef all;
    for (const Mask& mask : p.masks) {
      ValueRef value = mask.value;
      if (mask.kind == Mask::Kind::Hidden) value = one_input(mask, "LogicalNot");
      if (mask.kind == Mask::Kind::Subtracted) value = one_input(mask, "Neg");
      all = all.valid() ? ValueRef{make(mask.at, "AddV2", {all, value}, {}, "/masks", kNoNode), 0} : value;
    }
    return all;
  }

  Rewrite& r_;
  Known known_;
};

/// Several nodes of attention that share a sum of masks give it a sum of their scores' gradients, which is
/// added up to the shape of one mask. Each is added up by itself instead, as its node can do.
void sum_shared_masks(Plan& plan) {
  static const Pattern of_softmax{"braid.SoftmaxGrad"};
  Rewrite rewrite(plan);
  const Rule rule(
      "mask", Pattern{"braid.ReduceToShapeOf"}.reading(0, Pattern{"AddN", "AddV2"}),
      [](const Rewrite& r, const Match& match) {
        const Node &sum = r.node(match[0]), &all = r.node(match[1]);
        return is_plain(r.plan, sum) && is_plain(r.plan, all) && r.is_for_one(all.id) && together(sum, all) &&
               std::all_of(all.inputs.begin(), all.inputs.end(), [&](ValueRef x) {
                 return of_softmax.names(r.node(x.node)) && r.graph.info(x).shape == all.outputs[0].shape;
               });
      },
      [](Rewrite& r, const Match& match) {
        Node all = r.node(match[1]);
        for (ValueRef& x : all.inputs) {
          Node sum = r.node(match[0]);
          sum.inputs[0] = x;
          x = {add_node(r.graph, std::move(sum), r.node(match[0]).name + "/part"), 0};
        }
        replace(r.plan, match[0], std::move(all), "/parts");
      });
  if (apply_rules(rewrite, {rule}, plan.program.graph.topological_order())[0] > 0) prune(plan, true);
}

}  // namespace

void fuse_attention(Plan& plan) {
  if (plan.options.attention == AttentionNodes::Never) return;
  sum_shared_masks(plan);
  Rewrite rewrite(plan);
  Fusion fusion(rewrite);
  const Rule rule(
      "attention", Pattern{"Softmax"}, [&](const Rewrite&, const Match& match) { return fusion.find(match); },
      [&](Rewrite&, const Match&, const Found& found) { fusion.build(found); });
  const int applied = apply_rules(rewrite, {rule}, plan.program.graph.topological_order())[0];
  if (applied == 0) return;
  prune(plan, true);
  plan.note(
      fmt::format("attention without matrices of scores, {} {}", applied, applied == 1 ? "node" : "nodes"));
}

}  // namespace braid
