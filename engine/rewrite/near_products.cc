// Transpositions come next to the products that they belong to, so that these can take them in:
//
//   Reshape(Transpose(x)), Transpose(x) s, read by products  -> Transpose(Reshape(x)), Transpose(x s)
//   Transpose(Reshape(x)), Transpose(x s), x of a product    -> Reshape(Transpose(x)), Transpose(x) s
//
// A transposition swaps the last two axes, which a reshape leaves as they are; s is a single number,
// multiplied or divided by. PyTorch writes attention so: keys are three axes while they are transposed, and
// are scaled behind that; gradients are the same from the other end.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ir/op.h"
#include "engine/rewrite/swapped_axes.h"

namespace braid {
namespace {

const Pattern& products() {
  static const Pattern pattern{"MatMul", "BatchMatMul", "BatchMatMulV2"};
  return pattern;
}

const Shape& shape_of(const Rewrite& r, ValueRef value) { return r.graph.info(value).shape; }

const Pattern& scales() {
  static const Pattern pattern{"Mul", "RealDiv"};
  return pattern;
}

/// The same transposition of something else.
ValueRef transposed(Rewrite& r, const Node& like, ValueRef x) {
  Node turn = like;
  turn.inputs[0] = x;
  return {add_node(r.graph, std::move(turn), like.name + "/moved"), 0};
}

bool are_all(const Rewrite& r, NodeId of, const std::vector<const Pattern*>& patterns) {
  const std::vector<NodeId>& users = r.users.of(of);
  return !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId user) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const Pattern* pattern) { return pattern->names(r.node(user)); });
  });
}

// ---------------------------------------------------------------------------------------------- reshapes

/// Whether the reshape of a value that lies so only joins or parts axes in front of the last two.
bool keeps_matrices(const Shape& from, const Shape& to) {
  const int a = from.rank(), b = to.rank();
  return from.is_static() && to.is_static() && a >= 2 && b >= 2 && from.elements() > 0 &&
         from[a - 1] == to[b - 1] && from[a - 2] == to[b - 2];
}

std::vector<std::int64_t> swapped(const Shape& shape) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  std::swap(dims.end()[-1], dims.end()[-2]);
  return dims;
}

template <class T>
ValueRef constant(Rewrite& r, const Node& like, const std::vector<T>& values) {
  Tensor tensor = Tensor::from<T>(Shape{static_cast<std::int64_t>(values.size())}, values);
  Node node;
  node.op = &OpRegistry::global().require("Const");
  node.attrs = {{"dtype", tensor.dtype()}, {"value", std::move(tensor)}};
  node.device = like.device;
  return {add_node(r.graph, std::move(node), like.name + "/sizes"), 0};
}

Node reshape_of(Rewrite& r, const Node& like, ValueRef x, const std::vector<std::int64_t>& dims) {
  Node node = like;
  node.op = &OpRegistry::global().require("Reshape");
  node.attrs = {};
  node.inputs = {x, constant(r, like, dims)};
  return node;
}

ValueRef reshaped(Rewrite& r, const Node& like, ValueRef x, const std::vector<std::int64_t>& dims) {
  return {add_node(r.graph, reshape_of(r, like, x, dims), like.name + "/moved"), 0};
}

/// The transposition of the last two axes of a value of another rank.
Node turn_of(Rewrite& r, const Node& like, ValueRef x, int rank) {
  std::vector<std::int32_t> axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes.end()[-1], axes.end()[-2]);
  Node turn = like;
  turn.inputs = {x, constant(r, like, axes)};
  if (turn.attrs.has("Tperm")) turn.attrs.set("Tperm", DType::Int32);
  return turn;
}

bool is_reshaped_factor(const Rewrite& r, const Match& match) {
  const Node &parted = r.node(match[0]), &turn = r.node(match[1]);
  return swaps_last_axes(r, turn) && is_inner(r.plan, parted.id) && together(parted, turn) &&
         keeps_matrices(turn.outputs[0].shape, parted.outputs[0].shape) &&
         are_all(r, parted.id, {&products(), &scales()});
}

void reshape_before(Rewrite& r, const Match& match) {
  const Node parted = r.node(match[0]), turn = r.node(match[1]);
  const Shape& to = parted.outputs[0].shape;
  const ValueRef x = reshaped(r, parted, turn.inputs[0], swapped(to));
  replace(r.plan, match[0], turn_of(r, turn, x, to.rank()), "/moved");
}

bool is_reshaped_product(const Rewrite& r, const Match& match) {
  const Node &turn = r.node(match[0]), &joined = r.node(match[1]), &made = r.node(match[2]);
  const bool is_made = products().names(made) ||
                       std::any_of(made.inputs.begin(), made.inputs.end(),
                                   [&](ValueRef input) { return products().names(r.node(input.node)); });
  return is_made && swaps_last_axes(r, turn) && r.is_for_one(joined.id) && is_plain(r.plan, joined) &&
         together(turn, joined) && keeps_matrices(shape_of(r, joined.inputs[0]), joined.outputs[0].shape);
}

void reshape_behind(Rewrite& r, const Match& match) {
  const Node turn = r.node(match[0]), joined = r.node(match[1]);
  const ValueRef x = joined.inputs[0];
  const ValueRef turned{add_node(r.graph, turn_of(r, turn, x, shape_of(r, x).rank()), turn.name + "/moved"),
                        0};
  const Shape to = turn.outputs[0].shape;
  Node after = reshape_of(r, joined, turned, std::vector<std::int64_t>(to.dims().begin(), to.dims().end()));
  replace(r.plan, match[0], std::move(after), "/moved");
}

// ---------------------------------------------------------------------------------------- single numbers

/// The input that is a single number, or none.
std::optional<std::size_t> number_beside(const Rewrite& r, const Node& scale, std::size_t other) {
  static const Pattern divides{"RealDiv"};
  if (divides.names(scale) && other != 0) return std::nullopt;
  const Shape& shape = shape_of(r, scale.inputs[1 - other]);
  if (!shape.is_static() || shape.elements() != 1 || shape.rank() > scale.outputs[0].shape.rank())
    return std::nullopt;
  return 1 - other;
}

template <std::size_t kOther>
bool is_scaled_factor(const Rewrite& r, const Match& match) {
  const Node &scale = r.node(match[0]), &turn = r.node(match[1]);
  if (!is_inner(r.plan, scale.id) || !swaps_last_axes(r, turn) || !together(scale, turn)) return false;
  if (!number_beside(r, scale, kOther)) return false;
  return are_all(r, scale.id, {&products()});
}

template <std::size_t kOther>
void scale_before(Rewrite& r, const Match& match) {
  const Node turn = r.node(match[1]);
  Node scale = r.node(match[0]);
  scale.inputs[kOther] = turn.inputs[0];
  const std::string name = scale.name + "/scaled";
  Node after = turn;
  after.inputs[0] = {add_node(r.graph, std::move(scale), name), 0};
  replace(r.plan, match[0], std::move(after), "/moved");
}

template <std::size_t kOther>
bool is_scaled_product(const Rewrite& r, const Match& match) {
  const Node &turn = r.node(match[0]), &scale = r.node(match[1]), &made = r.node(match[2]);
  return swaps_last_axes(r, turn) && number_beside(r, scale, kOther) && r.is_for_one(scale.id) &&
         r.is_for_one(made.id) && is_plain(r.plan, scale) && together(turn, scale) && together(turn, made);
}

template <std::size_t kOther>
void scale_behind(Rewrite& r, const Match& match) {
  Node scale = r.node(match[1]);
  scale.inputs[kOther] = transposed(r, r.node(match[0]), scale.inputs[kOther]);
  replace(r.plan, match[0], std::move(scale), "/scaled");
}

}  // namespace

void move_transpositions(Plan& plan) {
  const auto run = [&](std::vector<Rule> rules, const char* what) {
    run_rules(plan, {.rules = std::move(rules), .text = [what](const std::vector<int>& applied) {
                       return fmt::format("{} {} and transpositions changed places",
                                          std::accumulate(applied.begin(), applied.end(), 0), what);
                     }});
  };
  const auto scaled = [] { return Pattern{"Mul", "RealDiv"}; };
  const auto turns = [] { return Pattern{"Transpose"}; };
  Pattern made{"MatMul", "BatchMatMul", "BatchMatMulV2", "Mul", "RealDiv"};
  run({{"product", turns().reading(0, Pattern{"Reshape", "braid.ReshapeLike"}.reading(0, std::move(made))),
        is_reshaped_product, reshape_behind}},
      "reshapes of products");
  run({{"factor", Pattern{"Reshape", "braid.ReshapeLike"}.reading(0, turns()), is_reshaped_factor,
        reshape_before}},
      "reshapes of factors");
  run({{"factor", scaled().reading(0, turns()), is_scaled_factor<0>, scale_before<0>},
       {"factor", scaled().reading(1, turns()), is_scaled_factor<1>, scale_before<1>},
       {"product", turns().reading(0, scaled().reading(0, products())), is_scaled_product<0>,
        scale_behind<0>},
       {"product", turns().reading(0, scaled().reading(1, products())), is_scaled_product<1>,
        scale_behind<1>}},
      "scales");
}

}  // namespace braid
