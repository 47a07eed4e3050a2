#include "engine/rewrite/region_parts.h"

#include <algorithm>

#include "engine/ir/op.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

using fusion::Axes;
using fusion::Axis;
using fusion::Extent;
using fusion::Region;

constexpr std::size_t kMostInputs = 40;  // of a kernel's arguments, with room to spare

std::int64_t product_from(const Shape& shape, int axis) {
  std::int64_t product = 1;
  for (int a = axis; a < shape.rank(); ++a) product *= shape[a];
  return product;
}

/// The axis that input `input` says, where it is known.
std::optional<int> axis_of(const Graph& graph, const Node& node, std::size_t input, int rank) {
  const Tensor* known = graph.known_value(node.inputs[input]);
  if (!known || known->elements() != 1) return std::nullopt;
  const std::int64_t axis = tensor_to_int64s(*known)[0];
  if (axis < -rank || axis >= rank) return std::nullopt;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// The axis along which a slice is narrower than what it is of, and where it begins.
std::optional<std::pair<int, std::int64_t>> slice_begin(const Graph& graph, const Node& node) {
  const Tensor* begins = graph.known_value(node.inputs[1]);
  const Shape &whole = graph.info(node.inputs[0]).shape, &part = node.outputs[0].shape;
  if (!begins || begins->elements() != whole.rank()) return std::nullopt;
  const std::vector<std::int64_t> begin = tensor_to_int64s(*begins);
  std::optional<std::pair<int, std::int64_t>> found;
  for (int a = 0; a < whole.rank(); ++a) {
    if (part[a] == whole[a]) continue;
    if (found) return std::nullopt;
    found = {a, begin[static_cast<std::size_t>(a)]};
  }
  return found;
}

/// The axis of a Pack's output or an Unpack's input, of that rank.
int stacked_axis(const Node& node, int rank) {
  const auto axis = node.attrs.get<std::int64_t>("axis", 0);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

struct Taken {
  ValueRef whole;
  int axis = 0;
  std::int64_t begin = 0;
};

std::optional<Taken> taken_of(const Graph& graph, const Node& node, int output) {
  static const Pattern slice{"Slice"}, sized{"SplitV"}, split{"Split", "braid.SplitLike"}, unpack{"Unpack"};
  if (unpack.names(node)) {
    const Shape& whole = graph.info(node.inputs[0]).shape;
    return Taken{node.inputs[0], stacked_axis(node, whole.rank()), output};
  }
  if (slice.names(node)) {
    const auto at = slice_begin(graph, node);
    if (!at) return std::nullopt;
    return Taken{node.inputs[0], at->first, at->second};
  }
  const bool is_sized = sized.names(node);
  if (!split.names(node) && !is_sized) return std::nullopt;
  const ValueRef whole = node.inputs[is_sized ? 0 : 1];
  const auto axis = axis_of(graph, node, is_sized ? 2 : 0, graph.info(whole).shape.rank());
  if (!axis) return std::nullopt;
  std::int64_t begin = 0;
  for (int o = 0; o < output; ++o) begin += node.outputs[static_cast<std::size_t>(o)].shape[*axis];
  return Taken{whole, *axis, begin};
}

}  // namespace

std::optional<PartOf> part_of(const Plan& plan, ValueRef value) {
  const Graph& graph = plan.program.graph;
  const Node& node = graph.node(value.node);
  if (!is_plain(plan, node) || plan.feed_of(value) >= 0) return std::nullopt;
  const auto is_static = [](const OutputInfo& info) { return info.shape.is_static(); };
  if (!std::all_of(node.outputs.begin(), node.outputs.end(), is_static)) return std::nullopt;
  for (const ValueRef input : node.inputs)
    if (!is_static(graph.info(input))) return std::nullopt;
  const auto taken = taken_of(graph, node, value.output);
  if (!taken) return std::nullopt;
  const Shape &whole = graph.info(taken->whole).shape, &part = graph.info(value).shape;
  if (part.elements() == 0) return std::nullopt;
  return PartOf{taken->whole, product_from(part, taken->axis), product_from(whole, taken->axis),
                taken->begin * product_from(whole, taken->axis + 1)};
}

std::optional<Through> axes_through(const PartOf& part, const Through& places) {
  Axes made;
  std::int64_t last = places.offset % part.columns;  // that the axes within a row of the part reach
  for (const auto& [size, stride] : places.axes) {
    if (stride == 0 || (size - 1) * stride < part.columns) {
      made.push_back({size, stride});
      last += (size - 1) * stride;
    } else if (stride % part.columns == 0) {
      made.push_back({size, stride / part.columns * part.width});
    } else if (part.columns % stride == 0 && size % (part.columns / stride) == 0) {
      const std::int64_t within = part.columns / stride;
      made.push_back({size / within, part.width});
      made.push_back({within, stride});
      last += (within - 1) * stride;
    } else {
      return std::nullopt;
    }
  }
  if (last >= part.columns) return std::nullopt;
  const std::int64_t row = places.offset / part.columns, column = places.offset % part.columns;
  return Through{fusion::joined(made), part.offset + row * part.width + column};
}

std::optional<Join> join_of(const Plan& plan, const NodeStepsCache& steps, const Node& node) {
  static const Pattern concat{"ConcatV2"}, pack{"Pack"};
  const Graph& graph = plan.program.graph;
  const bool stacks = pack.names(node);
  if (node.removed || (!stacks && !concat.names(node)) || !is_inner(plan, node.id) ||
      !node.outputs[0].shape.is_static())
    return std::nullopt;
  const Shape& whole = node.outputs[0].shape;
  const std::optional<int> axis =
      stacks ? stacked_axis(node, whole.rank()) : axis_of(graph, node, node.inputs.size() - 1, whole.rank());
  if (!axis || whole.elements() == 0) return std::nullopt;
  const std::size_t parts = node.inputs.size() - (stacks ? 0 : 1);
  Join join;
  join.node = node.id;
  join.width = product_from(whole, *axis);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::int64_t columns = product_from(graph.info(node.inputs[i]).shape, *axis);
    if (i > 0 && columns != join.columns) return std::nullopt;
    join.columns = columns;
    join.parts.push_back(steps.source(plan, node.inputs[i]));
    join.offsets.push_back(offset);
    offset += columns;
  }
  return join;
}

namespace {

class Absorber {
 public:
  Absorber(const Plan& plan, const Users& users, NodeStepsCache& steps, std::vector<FusedRegion>& regions)
      : plan_(plan), graph_(plan.program.graph), users_(users), steps_(steps), regions_(regions) {
    for (const FusedRegion& region : regions) members_.insert(region.nodes.begin(), region.nodes.end());
  }

  void absorb(const Join& join) {
    for (FusedRegion& region : regions_) {
      if (std::find(region.nodes.begin(), region.nodes.end(), join.writer) == region.nodes.end()) continue;
      if (fits(region.program, join, region)) write_parts(region, join);
      return;
    }
  }

 private:
  static std::optional<std::size_t> output_of(const FusedRegion& region, ValueRef value) {
    for (std::size_t o = 0; o < region.outputs.size(); ++o)
      if (std::find(region.outputs[o].begin(), region.outputs[o].end(), value) != region.outputs[o].end())
        return o;
    return std::nullopt;
  }

  /// Makes the grid's rows those of the parts, where it has none.
  bool fits(Region& program, const Join& join, const FusedRegion& region) const {
    const std::int64_t elements = program.elements(Extent::Full);
    if (elements % join.columns != 0 ||
        graph_.node(join.node).outputs[0].shape.elements() != elements / join.columns * join.width)
      return false;
    std::size_t copied = 0;
    for (const ValueRef part : join.parts) {
      const auto at = output_of(region, part);
      copied += !at;
      if (!at && graph_.info(part).dtype != graph_.node(join.node).outputs[0].dtype) return false;
      if (!at) continue;
      const Region::Output& output = program.outputs[*at];
      if (output.is_part || program.extent_of(output.value) != Extent::Full ||
          program.dtype_of(output.value) != graph_.node(join.node).outputs[0].dtype)
        return false;
    }
    if (copied == join.parts.size() || program.inputs.size() + copied > kMostInputs) return false;
    if (program.columns == join.columns) return true;
    for (int v = 0; v < program.values(); ++v)
      if (program.extent_of(v) == Extent::Row || program.extent_of(v) == Extent::Column) return false;
    for (const Region::Output& output : program.outputs)
      if (output.is_part) return false;
    if (program.rows != 1) return false;
    program.rows = elements / join.columns;
    program.columns = join.columns;
    return true;
  }

  void write_parts(FusedRegion& region, const Join& join) {
    region.joins.push_back(join.node);
    Region& program = region.program;
    std::vector<Region::Output> parts;
    // All inputs first, as they change the numbers of steps.
    for (const ValueRef part : join.parts)
      if (!output_of(region, part)) copied(region, part);
    for (std::size_t p = 0; p < join.parts.size(); ++p) {
      const auto made = output_of(region, join.parts[p]);
      int value = made ? program.outputs[*made].value : copied(region, join.parts[p]);
      const bool again = std::find(join.parts.begin() + static_cast<std::ptrdiff_t>(p) + 1, join.parts.end(),
                                   join.parts[p]) != join.parts.end();
      if (!made || again || is_read(join.parts[p], region)) {
        program.steps.push_back({.kind = Region::Kind::Cast,
                                 .dtype = program.dtype_of(value),
                                 .extent = Extent::Full,
                                 .operands = {value}});
        value = program.values() - 1;
      } else {
        program.outputs.erase(program.outputs.begin() + static_cast<std::ptrdiff_t>(*made));
        region.outputs.erase(region.outputs.begin() + static_cast<std::ptrdiff_t>(*made));
      }
      parts.push_back({.value = value,
                       .shape = graph_.node(join.node).outputs[0].shape,
                       .is_part = true,
                       .offset = join.offsets[p],
                       .width = join.width,
                       .is_of_previous = p > 0});
    }
    program.outputs.insert(program.outputs.end(), parts.begin(), parts.end());
    region.outputs.push_back({ValueRef{join.node, 0}});
  }

  /// The input that is copied, from where it lies.
  int copied(FusedRegion& region, ValueRef part) const {
    Region::Input input{graph_.info(part).dtype, Extent::Full,
                        fusion::contiguous_axes(region.program.elements(Extent::Full))};
    look_through(plan_, steps_, region.nodes, part, input);
    return add_input(region, part, std::move(input));
  }

  /// Whether somebody besides joins of the region reads what an output stands for.
  bool is_read(ValueRef part, const FusedRegion& region) const {
    const auto& same = region.outputs[*output_of(region, part)];
    std::unordered_set<NodeId> passed(region.joins.begin(), region.joins.end());
    return std::any_of(same.begin(), same.end(), [&](ValueRef value) { return is_read(value, passed); });
  }

  /// `passed`: nodes that do not count, or were looked at.
  bool is_read(ValueRef value, std::unordered_set<NodeId>& passed) const {
    if (std::find(plan_.fetches.begin(), plan_.fetches.end(), value) != plan_.fetches.end()) return true;
    for (const FusedRegion& region : regions_)
      if (std::find(region.inputs.begin(), region.inputs.end(), value) != region.inputs.end()) return true;
    for (const NodeId id : users_.of(value.node)) {
      const Node& user = graph_.node(id);
      for (std::size_t i = 0; i < user.inputs.size(); ++i) {
        if (user.inputs[i] != value || uses_shape_only(user, i) || members_.contains(id) ||
            !passed.insert(id).second)
          continue;
        // A node that regions look through or repeat is there only for those who read it.
        const bool is_view = steps_.source(plan_, {id, 0}) != ValueRef{id, 0};
        if ((!is_view && !steps_.of(id)) || !is_inner(plan_, id) || users_.is_awaited(id)) return true;
        for (int o = 0; o < static_cast<int>(user.outputs.size()); ++o)
          if (is_read({id, o}, passed)) return true;
      }
    }
    return false;
  }

  const Plan& plan_;
  const Graph& graph_;
  const Users& users_;
  NodeStepsCache& steps_;
  std::vector<FusedRegion>& regions_;
  std::unordered_set<NodeId> members_;
};

}  // namespace

void absorb_joins(const Plan& plan, const Users& users, NodeStepsCache& steps, const std::vector<Join>& joins,
                  std::vector<FusedRegion>& regions) {
  Absorber absorber(plan, users, steps, regions);
  for (const Join& join : joins) absorber.absorb(join);
}

}  // namespace braid
