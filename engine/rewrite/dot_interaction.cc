// The interaction of DLRM on a device. As written it multiplies all n x n pairs of an example's n vectors,
// gathers some of the products, so that most of what is written and read is thrown away, and puts them beside
// other columns:
//   GatherV2(Reshape(BatchMatMulV2(x, x, adj_y)), pairs, axis 1)    -> braid.PairDots(x)
//   AddN(BatchMatMulV2(g, x), BatchMatMulV2(g, x, adj_x)) where g is ReshapeLike(GatherGrad(dy, pairs))
//                                                                   -> braid.PairDotsGrad(dy, x)
//   ConcatV2(a, PairDots(x), axis 1)                                -> braid.PairDots(x, a)
//   PairDotsGrad(SplitLike(axis, dy, a, products):1, x)             -> braid.PairDotsGrad(dy, x), offset
//   x = Pack(v..., axis 1), Unpack(PairDotsGrad(dy, x))             -> v... in the place of x
//   AddN(PairDotsGrad(dy, v...):j, SplitLike of dy:0) where a is v[j]  -> PairDotsGrad, columns_to
// Left apart: pairs that stand there twice, nodes with control edges or on different hand-set streams,
// products that somebody else uses, too, and what the kernels do not take (engine/ops/fused/pair_dots.h).
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/graph/passes.h"
#include "engine/ops/fused/pair_dots.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// An interaction, of which further stages know the nodes.
struct Made {
  ValueRef x;
  std::vector<std::int64_t> pairs;
  NodeId products = kNoNode, gradient = kNoNode;
};
using Interactions = std::map<NodeId, Made>;  // by the Reshape in front of the gather

const Pattern& split_like() {
  static const Pattern pattern{"braid.SplitLike"};
  return pattern;
}

bool adjoint(const Node& product, const char* which) { return product.attrs.get<bool>(which, false); }

bool is_last_axis(const Rewrite& r, ValueRef value) {
  const Tensor* axis = r.graph.known_value(value);
  return axis && (tensor_to_int64s(*axis)[0] == 1 || tensor_to_int64s(*axis)[0] == -1);
}

bool all_plain(const Rewrite& r, const Match& match) {
  return std::all_of(match.begin(), match.end(), [&](NodeId id) { return is_plain(r.plan, r.node(id)); });
}

/// A node in the place of `old`.
Node like(const Node& old, const char* op, std::vector<ValueRef> inputs, std::vector<std::int64_t> pairs) {
  Node node = old;
  node.op = &OpRegistry::global().require(op);
  node.inputs = std::move(inputs);
  node.attrs = {{"pairs", std::move(pairs)}};
  return node;
}

// ------------------------------------------------------------------------- products of pairs, and their
// gradient

const Pattern& gathered_products() {
  static const Pattern pattern =
      Pattern{"GatherV2"}.reading(0, Pattern{"Reshape"}.reading(0, {"BatchMatMulV2"}));
  return pattern;
}

std::optional<Made> find_products(const Rewrite& r, const Match& match) {
  const Node &gather = r.node(match[0]), &reshape = r.node(match[1]), &product = r.node(match[2]);
  if (!all_plain(r, match) || gather.attrs.get<std::int64_t>("batch_dims", 0) != 0 ||
      !together(product, gather))
    return std::nullopt;
  const ValueRef x = product.inputs[0];
  const OutputInfo& info = r.graph.info(x);
  if (x != product.inputs[1] || adjoint(product, "adj_x") || !adjoint(product, "adj_y") ||
      info.dtype != DType::Float32 || info.shape.rank() != 3 ||
      !pair_dots_on_device(info.shape[1], info.shape[2]))
    return std::nullopt;
  const std::int64_t n = info.shape[1];
  const Tensor* const pairs = r.graph.known_value(gather.inputs[1]);
  if (!pairs || pairs->shape().rank() != 1 || reshape.outputs[0].shape != Shape{info.shape[0], n * n} ||
      !is_last_axis(r, gather.inputs[2]))
    return std::nullopt;
  std::vector<std::int64_t> wanted = tensor_to_int64s(*pairs);
  // Gradients ask for no more than shapes.
  const bool used_otherwise = is_fetched(r.plan, product.id) || is_fetched(r.plan, reshape.id) ||
                              r.users.readers(product.id).size() != 1 ||
                              r.users.readers(reshape.id) != std::vector{gather.id};
  if (!pairs_differ(wanted, n) || used_otherwise) return std::nullopt;
  return Made{x, std::move(wanted)};
}

void build_products(Rewrite& r, const Match& match, Made made, Interactions& interactions) {
  made.products =
      replace(r.plan, match[0], like(r.node(match[0]), "braid.PairDots", {made.x}, made.pairs), "/fused");
  interactions[match[1]] = std::move(made);
}

/// AddN(a, b), or with `first` 1 AddN(b, a): {sum, a = g x, g, what g is of, b = g^T x}.
Pattern gradient_pattern(int first) {
  Pattern scattered = Pattern{"braid.ReshapeLike"}.reading(0, {"braid.GatherGrad"});
  return Pattern{"AddN"}
      .reading(first, Pattern{"BatchMatMulV2"}.reading(0, std::move(scattered)))
      .reading(1 - first, {"BatchMatMulV2"});
}

/// The Reshape by which the interaction is known.
std::optional<NodeId> find_pair_gradient(const Rewrite& r, const Match& match,
                                         const Interactions& interactions) {
  const Node &sum = r.node(match[0]), &a = r.node(match[1]), &scatter = r.node(match[3]),
             &b = r.node(match[4]);
  if (!all_plain(r, match) || sum.inputs.size() != 2) return std::nullopt;
  if (adjoint(a, "adj_x") || adjoint(a, "adj_y") || !adjoint(b, "adj_x") || adjoint(b, "adj_y") ||
      a.inputs != b.inputs || !together(a, b) || !together(a, sum))
    return std::nullopt;
  if (r.users.of(scatter.id).size() != 1 || r.users.of(match[2]).size() != 2 ||
      r.users.of(a.id).size() != 1 || r.users.of(b.id).size() != 1)
    return std::nullopt;
  const auto forward = interactions.find(scatter.inputs[2].node);
  if (forward == interactions.end() || forward->second.x != a.inputs[1]) return std::nullopt;
  return forward->first;
}

void build_pair_gradient(Rewrite& r, const Match& match, Made& made) {
  Node fused = like(r.node(match[0]), "braid.PairDotsGrad", {r.node(match[3]).inputs[0], made.x}, made.pairs);
  fused.forward_of = made.products;
  made.gradient = replace(r.plan, match[0], std::move(fused), "/fused");
}

Interactions fuse_pairs(Plan& plan) {
  Interactions interactions;
  const auto find = [&](const Rewrite& r, const Match& match) {
    return find_pair_gradient(r, match, interactions);
  };
  const auto build = [&](Rewrite& r, const Match& match, NodeId reshape) {
    build_pair_gradient(r, match, interactions.at(reshape));
  };
  run_rules(plan, {.rules = {{"products", gathered_products(), find_products,
                              [&](Rewrite& r, const Match& match, Made& made) {
                                build_products(r, match, std::move(made), interactions);
                              }},
                             {"gradient", gradient_pattern(0), find, build},
                             {"gradient, turned round", gradient_pattern(1), find, build}}});
  return interactions;
}

// -------------------------------------------------- written, and the gradient read, beside the columns
// before them

/// The node that takes the gradient of [before, products] apart for nobody but made.gradient and one more.
NodeId find_split(const Rewrite& r, const std::vector<NodeId>& users, const Made& made) {
  if (made.gradient == kNoNode) return kNoNode;
  const Node& gradient = r.node(made.gradient);
  const Node& split = r.node(gradient.inputs[0].node);
  const bool fits = split_like().names(split) && is_plain(r.plan, split) && split.inputs.size() == 4 &&
                    split.inputs[3] == ValueRef{made.products, 0} &&
                    gradient.inputs[0] == ValueRef{split.id, 1} && is_last_axis(r, split.inputs[0]) &&
                    !is_fetched(r.plan, split.id) && is_plain(r.plan, gradient) && together(split, gradient);
  if (!fits || std::count(users.begin(), users.end(), split.id) != 1) return kNoNode;
  for (const NodeId user : r.users.of(split.id))
    for (const ValueRef input : r.node(user).inputs)
      if (input == ValueRef{split.id, 1} && user != made.gradient) return kNoNode;
  return split.id;
}

struct Beside {
  NodeId join, split;  // split: none where no gradient is made
};

std::optional<Beside> find_beside(const Rewrite& r, const Made& made) {
  static const Pattern concat{"ConcatV2"};
  const Node& products = r.node(made.products);
  const std::vector<NodeId> readers = r.users.readers(made.products);
  if (readers.size() != 1 || is_fetched(r.plan, made.products)) return std::nullopt;
  const Node& join = r.node(readers[0]);
  if (!concat.names(join) || join.inputs.size() != 3 || join.inputs[1].node != made.products ||
      !is_plain(r.plan, join) || !together(join, products) || join.outputs[0].shape.rank() != 2 ||
      !is_last_axis(r, join.inputs[2]))
    return std::nullopt;
  const std::vector<NodeId>& users = r.users.of(made.products);
  const NodeId split = find_split(r, users, made);
  if (users.size() != (split == kNoNode ? 1U : 2U)) return std::nullopt;
  return Beside{join.id, split};
}

void put_beside(Rewrite& r, const Beside& found, Made& made) {
  const Node join = r.node(found.join);
  const ValueRef before = join.inputs[0];
  const NodeId beside =
      replace(r.plan, join.id, like(join, "braid.PairDots", {made.x, before}, made.pairs), "/fused");
  take_place(r.plan, std::exchange(made.products, beside), beside);
  if (found.split == kNoNode) return;
  const Node whole = r.node(found.split);
  Node first = whole;  // what remains of the split
  first.inputs.pop_back();
  replace(r.plan, found.split, std::move(first), "/first");
  Node& gradient = r.graph.mutable_node(made.gradient);
  gradient.inputs[0] = whole.inputs[1];
  gradient.attrs.set("offset", r.graph.info(before).shape[1]);
}

// ------------------------------------- vectors read, and their gradients written, where they lie before the
// Pack

struct Apart {
  std::vector<ValueRef> vectors;
  NodeId unpack;  // of the gradients; none where no gradient is made
};

/// `match`: the products and the Pack.
std::optional<Apart> find_apart(const Rewrite& r, const Match& match, const Made& made) {
  static const Pattern unpack{"Unpack"};
  const Node& pack = r.node(match[1]);
  if (!is_plain(r.plan, pack) || pack.attrs.get<std::int64_t>("axis", 0) != 1 ||
      r.graph.info(pack.inputs[0]).shape.rank() != 2)
    return std::nullopt;
  if (made.gradient == kNoNode) return Apart{pack.inputs, kNoNode};
  const std::vector<NodeId>& users = r.users.of(made.gradient);
  if (users.size() != 1 || is_fetched(r.plan, made.gradient)) return std::nullopt;
  const Node &node = r.node(users[0]), &gradients = r.node(made.gradient);
  if (!unpack.names(node) || !is_plain(r.plan, node) || !is_plain(r.plan, gradients) ||
      !together(node, gradients) || node.attrs.get<std::int64_t>("axis", 0) != 1)
    return std::nullopt;
  return Apart{pack.inputs, node.id};
}

void build_apart(Rewrite& r, const Apart& found, Made& made) {
  const std::vector<ValueRef>& vectors = found.vectors;
  Node products = r.node(made.products);
  products.attrs.set("vectors", static_cast<std::int64_t>(vectors.size()));
  products.inputs.erase(products.inputs.begin());
  products.inputs.insert(products.inputs.begin(), vectors.begin(), vectors.end());
  Node gradients;
  if (found.unpack != kNoNode) gradients = r.node(made.gradient);
  made.products = replace(r.plan, made.products, std::move(products), "/apart");
  if (found.unpack == kNoNode) return;
  gradients.inputs.resize(1);
  gradients.inputs.insert(gradients.inputs.end(), vectors.begin(), vectors.end());
  const NodeId apart = replace(r.plan, found.unpack, std::move(gradients), "/fused");
  take_place(r.plan, std::exchange(made.gradient, apart), apart);
}

// -------------------------------- where the columns beside the products are a vector, its gradient is the
// sum of both

struct Columns {
  NodeId sum;
  ValueRef part;  // of the gradient
};

/// The only node that uses the value, or none.
NodeId only_reader(const Rewrite& r, ValueRef value) {
  NodeId only = kNoNode;
  for (const NodeId user : r.users.of(value.node)) {
    const std::vector<ValueRef>& inputs = r.node(user).inputs;
    if (std::find(inputs.begin(), inputs.end(), value) == inputs.end() || user == only) continue;
    if (only != kNoNode) return kNoNode;
    only = user;
  }
  return only;
}

std::optional<Columns> find_columns(const Rewrite& r, const Made& made) {
  static const Pattern add_n{"AddN"};
  if (made.gradient == kNoNode) return std::nullopt;
  const Node &gradient = r.node(made.gradient), &products = r.node(made.products);
  const auto vectors = static_cast<int>(gradient.outputs.size());
  if (static_cast<int>(products.inputs.size()) != vectors + 1 || !is_plain(r.plan, gradient))
    return std::nullopt;
  const auto at = std::find(products.inputs.begin(), products.inputs.end() - 1, products.inputs.back());
  const ValueRef part{made.gradient, static_cast<int>(at - products.inputs.begin())};
  const auto& fetches = r.plan.fetches;
  if (part.output == vectors || std::find(fetches.begin(), fetches.end(), part) != fetches.end())
    return std::nullopt;
  const NodeId only_user = only_reader(r, part);
  if (only_user == kNoNode) return std::nullopt;
  const Node& sum = r.node(only_user);
  if (!add_n.names(sum) || sum.inputs.size() != 2 || !is_plain(r.plan, sum) || !together(sum, gradient))
    return std::nullopt;
  const ValueRef columns = sum.inputs[sum.inputs[0] == part ? 1 : 0];
  const Node& split = r.node(columns.node);
  if (!split_like().names(split) || !is_plain(r.plan, split) || columns.output != 0 ||
      split.inputs[1] != gradient.inputs[0] || r.users.of(split.id).size() != 1 ||
      is_fetched(r.plan, split.id) || !is_last_axis(r, split.inputs[0]) ||
      r.graph.info(columns).shape != gradient.outputs[static_cast<std::size_t>(part.output)].shape ||
      gradient.attrs.get<std::int64_t>("offset", 0) != r.graph.info(columns).shape[1])
    return std::nullopt;
  return Columns{sum.id, part};
}

void add_columns(Rewrite& r, const Columns& found, const Made& made) {
  r.graph.mutable_node(made.gradient).attrs.set("columns_to", static_cast<std::int64_t>(found.part.output));
  replace_value(r.plan, {found.sum, 0}, found.part);
  take_place(r.plan, found.sum, made.gradient);
}

/// A stage: the rule at the products of each interaction. `find(rewrite, match, made)` is its guard,
/// `build(rewrite, found, made)` its build.
template <class Find, class Build>
void run_stage(Plan& plan, Interactions& interactions, std::string_view name, const Pattern& pattern,
               Find find, Build build) {
  Rewrite rewrite(plan);
  for (auto& [reshape, made] : interactions) {
    const Rule rule(
        name, pattern, [&](const Rewrite& r, const Match& match) { return find(r, match, made); },
        [&](Rewrite& r, const Match&, const auto& found) { build(r, found, made); });
    apply_rules(rewrite, {rule}, {made.products});
  }
  prune(plan, true);
}

}  // namespace

void fuse_dot_interaction(Plan& plan) {
  Interactions interactions = fuse_pairs(plan);
  if (interactions.empty()) return;
  const Pattern products{"braid.PairDots"};
  run_stage(
      plan, interactions, "beside columns", products,
      [](const Rewrite& r, const Match&, const Made& made) { return find_beside(r, made); }, put_beside);
  run_stage(plan, interactions, "apart", Pattern(products).reading(0, {"Pack"}), find_apart, build_apart);
  run_stage(
      plan, interactions, "columns of a vector", products,
      [](const Rewrite& r, const Match&, const Made& made) { return find_columns(r, made); }, add_columns);
  plan.note("products of pairs of vectors, " + std::to_string(interactions.size()));
}

}  // namespace braid
