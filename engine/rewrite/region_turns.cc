#include "engine/rewrite/region_turns.h"

#include <algorithm>
#include <utility>

#include "engine/ir/op.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

using fusion::Axes;

/// What a block of a kernel reads, in another order, so that each line of the cache is used while it is
/// there: slabs of the value, whose rows behind the transposition are not longer than so many elements.
constexpr std::int64_t kSlabBytes = 32768, kLongestRow = 128;
/// Elements beside each other that are read together, in any order of those.
constexpr std::int64_t kRunBytes = 64;

/// The elements of the smallest axes that hold all that the order moves.
std::int64_t slab_of(const Shape& from, const std::vector<std::int64_t>& order) {
  int first = 0;
  while (first < from.rank() && order[static_cast<std::size_t>(first)] == first) ++first;
  std::int64_t elements = 1;
  for (int axis = first; axis < from.rank(); ++axis) elements *= from[axis];
  return elements;
}

bool is_near(const Shape& from, const std::vector<std::int64_t>& order, std::int64_t element_bytes) {
  const int last = from.rank() - 1;
  const bool keeps_last = order.back() == last;
  if (keeps_last && from[last] * element_bytes >= kRunBytes) return true;
  return slab_of(from, order) * element_bytes <= kSlabBytes &&
         from[static_cast<int>(order.back())] <= kLongestRow;
}

/// One axis of `size` elements, `stride` apart behind the transposition, as axes before it, outermost first;
/// `reach`: by axis behind, the elements that all axes so far reach.
bool split(const TurnOf& turn, std::int64_t size, std::int64_t stride, std::vector<std::int64_t>& reach,
           Axes& made) {
  std::int64_t own = 1;  // the stride of the axis behind
  std::size_t axis = turn.sizes.size();
  while (axis > 0 && own * turn.sizes[axis - 1] <= stride) own *= turn.sizes[--axis];
  if (axis == 0 || stride % own != 0) return false;
  --axis;
  const std::int64_t step = stride / own, there = turn.sizes[axis];
  const std::int64_t within = std::min(size, (there + step - 1) / step);
  if (within < size) {
    if (there % step != 0 || size % within != 0) return false;
    if (!split(turn, size / within, own * there, reach, made)) return false;
  }
  made.push_back({within, step * turn.strides[axis]});
  reach[axis] += (within - 1) * step;
  return reach[axis] < there;
}

}  // namespace

std::optional<TurnOf> turn_of(const Plan& plan, NodeId id) {
  static const Pattern transpose{"Transpose"};
  const Graph& graph = plan.program.graph;
  const Node& node = graph.node(id);
  if (!transpose.names(node) || !is_plain(plan, node) || plan.feed_of({id, 0}) >= 0) return std::nullopt;
  const Tensor* known = graph.known_value(node.inputs[1]);
  const OutputInfo& from = graph.info(node.inputs[0]);
  if (!known || !from.shape.is_static() || from.shape.elements() == 0 || from.shape.rank() < 2)
    return std::nullopt;
  std::vector<std::int64_t> order = tensor_to_int64s(*known);
  for (std::int64_t& axis : order) axis += axis < 0 ? from.shape.rank() : 0;
  if (!is_near(from.shape, order, static_cast<std::int64_t>(dtype_size(from.dtype)))) return std::nullopt;
  TurnOf turn{node.inputs[0], {}, {}};
  for (const std::int64_t axis : order) {
    std::int64_t stride = 1;
    for (int a = static_cast<int>(axis) + 1; a < from.shape.rank(); ++a) stride *= from.shape[a];
    turn.sizes.push_back(from.shape[static_cast<int>(axis)]);
    turn.strides.push_back(stride);
  }
  return turn;
}

std::optional<Through> axes_through(const TurnOf& turn, const Through& places) {
  Through made;
  std::vector<std::int64_t> reach(turn.sizes.size(), 0);
  std::int64_t left = places.offset;
  for (std::size_t axis = turn.sizes.size(); axis-- > 0; left /= turn.sizes[axis]) {
    reach[axis] = left % turn.sizes[axis];
    made.offset += reach[axis] * turn.strides[axis];
  }
  for (const auto& [size, stride] : places.axes) {
    if (stride == 0)
      made.axes.push_back({size, 0});
    else if (!split(turn, size, stride, reach, made.axes))
      return std::nullopt;
  }
  made.axes = fusion::joined(made.axes);
  return made;
}

namespace {

class TurnReaders {
 public:
  TurnReaders(const Plan& plan, const Users& users, const NodeStepsCache& steps,
              const std::function<bool(const Node&)>& may_join)
      : plan_(plan), graph_(plan.program.graph), users_(users), steps_(steps), may_join_(may_join) {}

  bool are_regions(ValueRef value) const {
    if (has(plan_.fetches, value) || users_.is_awaited(value.node)) return false;
    for (const NodeId user : users_.of(value.node)) {
      const Node& node = graph_.node(user);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != value || uses_shape_only(node, i)) continue;
        if (!may_join_(node) && !is_written_by_region(node) && !passes_on(node)) return false;
      }
    }
    return true;
  }

  /// Whether a region that has the transposition could save something: a copy before it, or one behind.
  bool is_worth_joining(NodeId id, const TurnOf& turn) const {
    if (!is_floating(graph_.info(turn.whole).dtype)) return false;
    return part_of(plan_, steps_.source(plan_, turn.whole)) || meets_region({id, 0});
  }

 private:
  /// Whether a region or a join reads the value, behind views, too.
  bool meets_region(ValueRef value) const {
    const std::vector<NodeId>& users = users_.of(value.node);
    return std::any_of(users.begin(), users.end(), [&](NodeId user) {
      const ValueRef seen{user, 0};
      return may_join_(graph_.node(user)) || join_of(plan_, steps_, graph_.node(user)) ||
             (steps_.source(plan_, seen) != seen && meets_region(seen));
    });
  }

  template <class All, class One>
  static bool has(const All& all, const One& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }

  bool is_written_by_region(const Node& node) const {
    const auto join = join_of(plan_, steps_, node);
    return join && std::any_of(join->parts.begin(), join->parts.end(),
                               [&](ValueRef part) { return may_join_(graph_.node(part.node)); });
  }

  bool passes_on(const Node& node) const {
    const ValueRef seen{node.id, 0};
    const bool passes = steps_.source(plan_, seen) != seen || part_of(plan_, seen) || turn_of(plan_, node.id);
    if (!passes || users_.is_awaited(node.id) || has(plan_.targets, node.id)) return false;
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
      if (!are_regions({node.id, o})) return false;
    return true;
  }

  const Plan& plan_;
  const Graph& graph_;
  const Users& users_;
  const NodeStepsCache& steps_;
  const std::function<bool(const Node&)>& may_join_;
};

/// What a transposition does: an element for each of those that it reads in its order.
fusion::NodeSteps copy_of(const TurnOf& turn, const OutputInfo& from) {
  fusion::NodeSteps steps;
  steps.elements = from.shape.elements();
  Axes axes;
  for (std::size_t a = 0; a < turn.sizes.size(); ++a) axes.push_back({turn.sizes[a], turn.strides[a]});
  steps.inputs = {{.input = 0, .dtype = from.dtype, .axes = fusion::joined(axes)}};
  steps.steps = {{.kind = fusion::Region::Kind::Cast,
                  .dtype = from.dtype,
                  .extent = fusion::Extent::Full,
                  .operands = {~0}}};
  steps.outputs = {0};
  return steps;
}

}  // namespace

void find_turns(const Plan& plan, const Users& users, NodeStepsCache& steps,
                const std::function<bool(const Node&)>& may_join) {
  const TurnReaders readers(plan, users, steps, may_join);
  std::vector<std::pair<NodeId, TurnOf>> others;
  for (const NodeId id : plan.program.graph.topological_order()) {
    auto turn = turn_of(plan, id);
    if (!turn) continue;
    if (readers.are_regions({id, 0}))
      steps.read_through(id);
    else if (readers.is_worth_joining(id, *turn))
      others.emplace_back(id, std::move(*turn));
  }
  for (const auto& [id, turn] : others) steps.set(id, copy_of(turn, plan.program.graph.info(turn.whole)));
}

}  // namespace braid
