// Operators that make, look at and rearrange tensors without looking at their elements. Shapes, axes, starts
// and pads may be inputs that are not known yet: what needs them is computed by nodes then, which fold where
// they are constants.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/tensors.h"

namespace braid::onnx {
namespace {

/// Negative axes counted from the end, int64.
Val positive(Val axes, int rank) {
  const Val wide = cast(axes, DType::Int64);
  if (const auto known = known_ints(axes)) {
    Ints result;
    for (const std::int64_t axis : *known) result.push_back(positive_axis(axis, rank));
    return ints(axes, result);
  }
  return where(tf("Less", {wide, like(0, wide)}), wide + static_cast<double>(rank), wide);
}

/// A vector [rank] of `fallback` with `values` at `axes`.
Val at_axes(Val values, Val axes, int rank, std::int64_t fallback) {
  const Val base = ints(axes, Ints(static_cast<std::size_t>(rank), fallback));
  const Val wide = cast(values, DType::Int64);
  return tf("TensorScatterUpdate", {base, reshape(positive(axes, rank), Ints{-1, 1}), wide});
}

/// The axes of a node: input `i`, else the attribute; nothing when it has neither.
Val axes_of(OnnxNode& n, int i) {
  if (n.has(i)) return n.in(i);
  return n.has_attr("axes") ? n.b.ints(n.is("axes")) : Val();
}

// ------------------------------------------------------------------------------------------------ one to one

/// x in a shape that is given but for its zeros, which stand for x's sizes there, and -1.
Val reshape_copying(Val x, const Ints& wanted) {
  std::int64_t given = 1, rest = 1;  // the elements of sizes that are given, and of x's that are not copied
  for (const std::int64_t size : wanted)
    if (size > 0) given = checked_times(given, size);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool copied = axis < static_cast<int>(wanted.size()) && wanted[static_cast<std::size_t>(axis)] == 0;
    if (!copied) rest = rest < 0 || x.dim(axis) < 0 ? Shape::kUnknown : checked_times(rest, x.dim(axis));
  }
  std::vector<Val> sizes;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto axis = static_cast<int>(i);
    if (wanted[i] == 0 && axis >= x.rank())
      throw InvalidArgument(fmt::format("0 at {} stands for a size, but its input has {}", i, x.rank()));
    const bool is_rest = wanted[i] < 0 && rest >= 0 && rest % given == 0;
    sizes.push_back(
        wanted[i] == 0
            ? size_of(x, axis)
            : x.builder->number(static_cast<double>(is_rest ? rest / given : wanted[i]), DType::Int64));
  }
  return reshape(x, sizes);
}

/// What is known of the sizes that x has in a shape of which some elements are known.
Ints reshaped_sizes(Val x, const PartialInts::value_type& wanted, bool copies_zeros) {
  Ints sizes;
  const int rank = x.shape().has_rank() ? x.rank() : 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto axis = static_cast<int>(i);
    const std::int64_t size = wanted[i].value_or(Shape::kUnknown);
    const bool is_copied = size == 0 && copies_zeros;
    sizes.push_back(!is_copied ? size : axis < rank ? x.dim(axis) : Shape::kUnknown);
  }
  return sizes;
}

void reshape_op(OnnxNode& n) {
  const Val x = n.in(0);
  Val shape = n.opset >= 5 ? cast(n.in(1), DType::Int64) : n.b.ints(n.is("shape"));
  const auto known = known_ints(shape);
  const bool has_zero = !known || std::find(known->begin(), known->end(), 0) != known->end();
  if (known && !has_zero) return n.out(0, reshape(x, shape));
  if (n.i("allowzero", 0) != 0) {
    const PartialInts given = partial_ints(shape);
    const Val y = reshape(x, shape);
    return n.out(0, given ? refined(y, reshaped_sizes(x, *given, false)) : y);
  }
  if (known && x.shape().has_rank()) return n.out(0, reshape_copying(x, *known));
  // 0 stands for the input's size there.
  const int length = shape.list_length();
  Val sizes = shape_of(x);
  const int more = length - x.rank();
  if (more > 0) sizes = concat({sizes, n.b.ints(Ints(static_cast<std::size_t>(more), 0))}, 0);
  if (more < 0) sizes = slice(sizes, 0, 0, length);
  const Val y = reshape(x, where(tf("Equal", {shape, like(0, shape)}), sizes, shape));
  const PartialInts given = partial_ints(shape);
  n.out(0, given ? refined(y, reshaped_sizes(x, *given, true)) : y);
}

/// x[:, indices], which files write as slices of the first axis between two transpositions, is a gather along
/// the axis that they bring there. `permutation`: of the second one, of `x`. Empty for what is not so.
Val gathered_in_place(OnnxNode& n, Val x, const Ints& permutation) {
  const std::vector<Val> gathered = n.b.inputs_of(x, "GatherV2");
  if (gathered.size() != 3 || gathered[1].rank() != 1 || known_ints(gathered[2]) != Ints{0}) return {};
  const std::vector<Val> turned = n.b.inputs_of(gathered[0], "Transpose");
  if (turned.empty()) return {};
  const auto first = known_ints(turned[1]);
  if (!first || first->size() != permutation.size()) return {};
  Ints order;
  for (const std::int64_t axis : permutation) order.push_back(first->at(static_cast<std::size_t>(axis)));
  return transpose(gather(turned[0], gathered[1], static_cast<int>(first->at(0))), order);
}

void transpose_op(OnnxNode& n) {
  Ints permutation = n.is("perm");
  if (!n.has_attr("perm")) {
    permutation = all_axes(n.in(0).rank());
    std::reverse(permutation.begin(), permutation.end());
  }
  for (std::int64_t& axis : permutation) axis = positive_axis(axis, n.in(0).rank());
  if (const Val gathered = gathered_in_place(n, n.in(0), permutation)) return n.out(0, gathered);
  n.out(0, transpose(n.in(0), permutation));
}

void flatten(OnnxNode& n) {
  const Val x = n.in(0);
  const int rank = x.rank();
  const std::int64_t at = n.i("axis", 1);
  if (at < -rank || at > rank) throw InvalidArgument(fmt::format("axis {} is not one of {} axes", at, rank));
  const int axis = static_cast<int>(at < 0 ? at + rank : at);
  const Val shape = shape_of(x);
  const Val outer = reduce("Prod", slice(shape, 0, 0, axis), {0}, true);
  const Val inner = reduce("Prod", slice(shape, 0, axis, kToEnd), {0}, true);
  n.out(0, reshape(x, concat({outer, inner}, 0)));
}

void squeeze_op(OnnxNode& n) {
  const Val x = n.in(0);
  const Val axes = axes_of(n, 1);
  if (!axes) return n.out(0, tf("Squeeze", {x}));
  if (const auto known = known_ints(axes)) return n.out(0, squeeze(x, *known));
  const Val ones = n.b.ints(Ints(static_cast<std::size_t>(axes.list_length()), 1));
  const Val keep = tf("Equal", {at_axes(ones, axes, x.rank(), 0), n.b.number(0, DType::Int64)});
  const Val left = reshape(tf("Where", {keep}), Ints{-1});
  n.out(0, reshape(x, gather(shape_of(x), left, 0)));
}

void unsqueeze(OnnxNode& n) {
  const Val x = n.in(0);
  const Val axes = axes_of(n, 1);
  if (!axes) throw InvalidArgument("axes are missing");
  const bool is_scalar = axes.rank() == 0;
  const int count = is_scalar ? 1 : axes.list_length();
  const int rank = x.rank() + count;
  if (auto known = known_ints(axes)) {
    for (std::int64_t& axis : *known) axis = positive_axis(axis, rank);
    std::sort(known->begin(), known->end());
    Val result = x;
    for (const std::int64_t axis : *known) result = expand_dims(result, static_cast<int>(axis));
    return n.out(0, result);
  }
  // The new shape: 1 at the axes, elsewhere the old sizes in their order.
  const Val list = reshape(axes, Ints{-1});
  const Val is_new = at_axes(n.b.ints(Ints(static_cast<std::size_t>(count), 1)), list, rank, 0);
  const Val place = tf("Cumsum", {1.0 - is_new, n.b.number(0, DType::Int32)}, {{"exclusive", true}});
  const Val sizes = gather(concat({shape_of(x), n.b.ints({1})}, 0), place, 0);
  n.out(0, reshape(x, where(tf("Equal", {is_new, like(1, is_new)}), n.b.number(1, DType::Int64), sizes)));
}

void expand(OnnxNode& n) {
  const Val x = n.in(0);
  Val wanted = cast(n.in(1), DType::Int64), own = shape_of(x);
  const int length = wanted.list_length();
  const int more = length - x.rank();
  const Ints ones(static_cast<std::size_t>(std::abs(more)), 1);
  if (more > 0) own = concat({n.b.ints(ones), own}, 0);
  if (more < 0) wanted = concat({n.b.ints(ones), wanted}, 0);
  const Val y = broadcast_to(x, where(tf("Equal", {wanted, like(1, wanted)}), own, wanted));
  const PartialInts from = partial_ints(own), to = partial_ints(wanted);
  Ints sizes;
  for (std::size_t i = 0; from && to && i < std::min(from->size(), to->size()); ++i) {
    const std::int64_t own_size = (*from)[i].value_or(Shape::kUnknown);
    const std::int64_t size = (*to)[i].value_or(Shape::kUnknown);
    sizes.push_back(own_size > 1 || size == 1 ? own_size : size);
  }
  n.out(0, from && to ? refined(y, sizes) : y);
}

void tile(OnnxNode& n) {
  if (n.opset >= 6) return n.out(0, tf("Tile", {n.in(0), n.in(1)}));
  const Val repeats = reshape(cast(n.in(1), DType::Int64), Ints{1}),
            axis = reshape(cast(n.in(2), DType::Int64), Ints{1});
  n.out(0, tf("Tile", {n.in(0), at_axes(repeats, axis, n.in(0).rank(), 1)}));
}

void cast_op(OnnxNode& n) {
  const DType to = dtype_of_onnx(n.i32("to", 0));
  if (to == DType::String || n.in(0).dtype() == DType::String) {
    if (to == n.in(0).dtype()) return n.out(0, n.in(0));
    if (to == DType::String) throw InvalidArgument("numbers as text are not supported");
    return n.out(0, tf("StringToNumber", {n.in(0)}, {{"out_type", to}}));
  }
  n.out(0, cast(n.in(0), to));
}

void cast_like(OnnxNode& n) { n.out(0, cast(n.in(0), n.in(1).dtype())); }

void bit_cast(OnnxNode& n) {
  const DType to = dtype_of_onnx(n.i32("to", 0));
  n.out(0, tf("Bitcast", {n.in(0)}, {{"type", to}}));
}

// ------------------------------------------------------------------------------------------- parts and
// joints

/// x[begin : end] along one axis.
struct Cut {
  Val x;
  std::int64_t begin, end;
};

/// What a slice with step 1 takes, whole along all other axes and known.
std::optional<Cut> cut_of(Val slice, int axis) {
  if (const std::vector<Val> sized = slice.builder->inputs_of(slice, "EnsureShape"); !sized.empty())
    slice = sized[0];
  const std::vector<Val> inputs = slice.builder->inputs_of(slice, "StridedSlice");
  if (inputs.size() != 4) return std::nullopt;
  const auto begin = known_ints(inputs[1]), end = known_ints(inputs[2]), steps = known_ints(inputs[3]);
  const Val x = inputs[0];
  if (!begin || !end || !steps || !std::all_of(steps->begin(), steps->end(), [](auto s) { return s == 1; }))
    return std::nullopt;
  const auto at = [](const Ints& of, int i) { return of[static_cast<std::size_t>(i)]; };
  const auto is_end = [&](int i) {
    return at(*end, i) == kToEnd || (x.dim(i) >= 0 && at(*end, i) >= x.dim(i));
  };
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis && (at(*begin, i) != 0 || !is_end(i))) return std::nullopt;
  return Cut{x, at(*begin, axis), is_end(axis) ? kToEnd : at(*end, axis)};
}

/// x[k:] in front of x[:k], as PyTorch exports `roll`, is x rolled back by k. Rolls along several axes are
/// one.
std::optional<Val> rolled(const std::vector<Val>& parts, int axis) {
  const auto front = cut_of(parts[0], axis), back = cut_of(parts[1], axis);
  if (!front || !back || front->x.node != back->x.node || front->x.output != back->x.output)
    return std::nullopt;
  Val x = front->x;
  const std::int64_t k = front->begin, size = x.dim(axis);
  if (front->end != kToEnd || back->begin != 0 || back->end != k || size < 0 || k < -size || k > size)
    return std::nullopt;
  Ints shifts{-k}, axes{axis};
  if (const std::vector<Val> before = x.builder->inputs_of(x, "Roll"); before.size() == 3)
    if (const auto its = known_ints(before[1]), along = known_ints(before[2]); its && along) {
      shifts.insert(shifts.begin(), its->begin(), its->end());
      axes.insert(axes.begin(), along->begin(), along->end());
      x = before[0];
    }
  return tf("Roll", {x, ints(x, shifts), ints(x, axes)});
}

void concat_op(OnnxNode& n) {
  std::vector<Val> parts;
  for (int i = 0; i < n.inputs(); ++i) parts.push_back(n.in(i));
  const int axis = n.i32("axis", 1);
  if (parts.size() == 2 && parts[0].shape().has_rank())
    if (const auto y = rolled(parts, positive_axis(axis, parts[0].rank()))) return n.out(0, *y);
  n.out(0, concat(parts, axis));
}

void split_op(OnnxNode& n) {
  const Val x = n.in(0);
  const int axis = positive_axis(n.i("axis", 0), x.rank());
  const auto parts = static_cast<std::int64_t>(n.outputs());
  if (parts == 0) throw InvalidArgument("it has no outputs");
  Val sizes;
  if (n.has(1)) {
    sizes = n.in(1);
  } else if (n.has_attr("split")) {
    sizes = n.b.ints(n.is("split"));
  } else {
    if (x.dim(axis) == Shape::kUnknown && parts > 1) {
      const Val all = tf("Split", {n.b.number(axis, DType::Int32), x}, {{"num_split", parts}});
      for (int i = 0; i < n.outputs(); ++i) n.out(i, all.at(i));
      return;
    }
    const std::int64_t whole = x.static_dim(axis), each = (whole + parts - 1) / parts;
    Ints equal(static_cast<std::size_t>(parts), each);
    equal.back() = whole - each * (parts - 1);
    sizes = n.b.ints(equal);
  }
  if (parts == 1) return n.out(0, x);
  const Val all = tf("SplitV", {x, sizes, n.b.number(axis, DType::Int32)}, {{"num_split", parts}});
  for (int i = 0; i < n.outputs(); ++i) n.out(i, all.at(i));
}

void slice_op(OnnxNode& n) {
  const Val x = n.in(0);
  const bool by_attr = n.opset < 10;
  const Val starts = by_attr ? n.b.ints(n.is("starts")) : n.in(1);
  const Val ends = by_attr ? n.b.ints(n.is("ends")) : n.in(2);
  Val axes = axes_of(n, by_attr ? n.inputs() : 3);
  if (!axes) axes = n.b.ints(all_axes(starts.list_length()));
  const int rank = x.rank();
  const Val begin = at_axes(starts, axes, rank, 0), end = at_axes(ends, axes, rank, kToEnd);
  const Val steps = !by_attr && n.has(4) ? at_axes(n.in(4), axes, rank, 1)
                                         : n.b.ints(Ints(static_cast<std::size_t>(rank), 1));
  const Val y = tf("StridedSlice", {x, begin, end, steps});
  Ints sizes;
  const auto cut = known_ints(axes);
  for (int axis = 0; cut && axis < rank; ++axis) {
    const bool whole = std::none_of(cut->begin(), cut->end(),
                                    [&](std::int64_t one) { return positive_axis(one, rank) == axis; });
    sizes.push_back(whole ? x.dim(axis) : Shape::kUnknown);
  }
  n.out(0, cut ? refined(y, sizes) : y);
}

/// One axis of x as `index` picks it from positions -before ... size + after - 1.
template <class Index>
Val padded_axis(Val x, int axis, Val before, Val after, Index index) {
  const Val size = size_of(x, axis);
  return gather(x, index(range(size + before + after) - before, size), axis);
}

void pad_op(OnnxNode& n) {
  Val x = n.in(0);
  const bool by_attr = n.opset < 11;
  const std::string mode = n.s("mode", "constant");
  const int rank = x.rank();
  Val pads = by_attr ? n.b.ints(n.is(n.has_attr("pads") ? "pads" : "paddings")) : cast(n.in(1), DType::Int64);
  if (n.has(3)) {
    const std::int64_t count = pads.static_dim(0) / 2;
    pads = concat({at_axes(slice(pads, 0, 0, count), n.in(3), rank, 0),
                   at_axes(slice(pads, 0, count, kToEnd), n.in(3), rank, 0)},
                  0);
  }
  if (const auto known = known_ints(pads);
      known && std::any_of(known->begin(), known->end(), [](auto p) { return p < 0; })) {
    // What is cut off, then what is added.
    Ints rest = *known, begin, end;
    constexpr std::int64_t kMost = std::int64_t{1} << 48;
    for (const std::int64_t p : rest)
      if (p < -kMost) throw InvalidArgument(fmt::format("a pad is {}", p));
    for (std::size_t i = 0; i < rest.size() / 2; ++i) {
      begin.push_back(std::max<std::int64_t>(-rest[i], 0));
      const std::int64_t cut = rest[i + rest.size() / 2];
      end.push_back(cut < 0 ? cut : kToEnd);
    }
    for (std::int64_t& p : rest) p = std::max<std::int64_t>(p, 0);
    x = tf("StridedSlice", {x, n.b.ints(begin), n.b.ints(end), n.b.ints(Ints(begin.size(), 1))});
    pads = n.b.ints(rest);
  }
  const Val paddings = transpose(reshape(pads, Ints{2, rank}), {1, 0});
  if (mode == "constant") {
    const Val value = by_attr ? like(n.f("value", 0), x) : n.has(2) ? reshape(n.in(2), Ints{}) : like(0, x);
    return n.out(0, tf("PadV2", {x, paddings, cast(value, x.dtype())}));
  }
  if (mode == "reflect") return n.out(0, tf("MirrorPad", {x, paddings}, {{"mode", "REFLECT"}}));
  for (int axis = 0; axis < rank; ++axis) {
    if (const auto known = known_ints(paddings); known && (*known)[static_cast<std::size_t>(2 * axis)] == 0 &&
                                                 (*known)[static_cast<std::size_t>(2 * axis + 1)] == 0)
      continue;
    const Val own = slice(paddings, 0, axis, axis + 1);
    const Val before = reshape(slice(own, 1, 0, 1), Ints{}), after = reshape(slice(own, 1, 1, 2), Ints{});
    x = padded_axis(x, axis, before, after, [&](Val at, Val size) {
      if (mode == "wrap") return tf("FloorMod", {at, size});
      if (mode != "edge") throw InvalidArgument("mode '" + mode + "' is not supported");
      return minimum(maximum(at, like(0, at)), size - 1.0);
    });
  }
  n.out(0, x);
}

/// Cut or filled up with zeros around the middle.
void center_crop_pad(OnnxNode& n) {
  Val x = n.in(0);
  const int rank = x.rank();
  const Ints axes = n.is("axes", all_axes(rank));
  const Val wanted = cast(n.in(1), DType::Int64);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = positive_axis(axes[i], rank);
    const auto at = static_cast<std::int64_t>(i);
    const Val target = reshape(slice(wanted, 0, at, at + 1), Ints{}), size = size_of(x, axis);
    const Val zero = like(0, size);
    const Val more = maximum(target - size, zero), less = maximum(size - target, zero);
    const auto half = [](Val v) { return tf("FloorDiv", {v, like(2, v)}); };
    const Val index = range(target) + (half(less) - half(more));
    const Val inside = tf("LogicalAnd", {tf("GreaterEqual", {index, zero}), tf("Less", {index, size})});
    const Val taken = gather(x, minimum(maximum(index, zero), size - 1.0), axis);
    Ints mask_shape(static_cast<std::size_t>(rank), 1);
    mask_shape[static_cast<std::size_t>(axis)] = -1;
    x = where(reshape(inside, mask_shape), taken, like(0, x));
  }
  n.out(0, x);
}

void depth_to_space(OnnxNode& n) {
  const Val x = n.in(0);
  const std::int64_t s = n.positive("blocksize", 1);
  const bool dcr = n.s("mode", "DCR") == "DCR";
  const Val square = n.b.number(static_cast<double>(s * s), DType::Int64),
            side = n.b.number(static_cast<double>(s), DType::Int64);
  const Val batch = size_of(x, 0), depth = size_of(x, 1) / square, h = size_of(x, 2), w = size_of(x, 3);
  const Val apart =
      reshape(x, dcr ? pack({batch, side, side, depth, h, w}, 0) : pack({batch, depth, side, side, h, w}, 0));
  const Val together = transpose(apart, dcr ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3});
  n.out(0, reshape(together, pack({batch, depth, h * side, w * side}, 0)));
}

void space_to_depth(OnnxNode& n) {
  const Val x = n.in(0);
  const std::int64_t s = n.positive("blocksize", 1);
  const Val side = n.b.number(static_cast<double>(s), DType::Int64);
  const Val batch = size_of(x, 0), depth = size_of(x, 1), h = size_of(x, 2) / side, w = size_of(x, 3) / side;
  const Ints order = n.s("mode", "DCR") == "DCR" ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4};
  const Val apart = transpose(reshape(x, pack({batch, depth, h, side, w, side}, 0)), order);
  n.out(0, reshape(apart, pack({batch, depth * side * side, h, w}, 0)));
}

// -------------------------------------------------------------------------------------------- made of little

void constant(OnnxNode& n) {
  if (n.proto().attribute_size() == 0) throw InvalidArgument("it has no value");
  const AttributeProto& a = n.proto().attribute(0);
  const Shape vector{static_cast<std::int64_t>(std::max({a.ints_size(), a.floats_size(), a.strings_size()}))};
  Tensor value;
  if (a.name() == "value_int") {
    value = Tensor::scalar(static_cast<std::int64_t>(a.i()));
  } else if (a.name() == "value_float") {
    value = Tensor::scalar(a.f());
  } else if (a.name() == "value_ints") {
    const Ints ints(a.ints().begin(), a.ints().end());
    value = Tensor::from<std::int64_t>(vector, ints);
  } else if (a.name() == "value_floats") {
    const std::vector<float> floats(a.floats().begin(), a.floats().end());
    value = Tensor::from<float>(vector, floats);
  } else if (a.name() == "value_string") {
    value = Tensor::strings({}, std::vector<std::string>{a.s()});
  } else if (a.name() == "value_strings") {
    value = Tensor::strings(vector, std::vector<std::string>(a.strings().begin(), a.strings().end()));
  } else if (a.name() == "sparse_value") {
    value = read_sparse_tensor(a.sparse_tensor(), {});
  } else {
    value = n.tensor("value");
  }
  n.out(0, n.b.constant(value));
}

void constant_of_shape(OnnxNode& n) {
  const Val value =
      n.has_attr("value") ? reshape(n.b.constant(n.tensor("value")), Ints{}) : n.b.number(0, DType::Float32);
  n.out(0, broadcast_to(value, n.in(0)));
}

void shape_op(OnnxNode& n) {
  const Val x = n.in(0), shape = shape_of(x);
  if (n.i("start", 0) == 0 && !n.has_attr("end")) return n.out(0, shape);
  const Val part = slice(shape, 0, n.i("start", 0), n.i("end", kToEnd));
  // Sizes that are known are, even where those beside them are not.
  Ints sizes;
  if (const auto known = partial_ints(part))
    for (const std::optional<std::int64_t>& size : *known)
      if (size) sizes.push_back(*size);
  const bool all = part.shape().is_static() && part.shape().elements() == std::ssize(sizes);
  n.out(0, all ? n.b.ints(sizes) : part);
}

void size_op(OnnxNode& n) { n.out(0, tf("Size", {n.in(0)}, {{"out_type", DType::Int64}})); }

void range_op(OnnxNode& n) {
  n.out(0, tf("Range", {reshape(n.in(0), Ints{}), reshape(n.in(1), Ints{}), reshape(n.in(2), Ints{})}));
}

/// Column minus row, [rows, columns], of the last two axes.
Val diagonals(Val x) { return expand_dims(range(size_of(x, -1)), 0) - expand_dims(range(size_of(x, -2)), 1); }

void eye_like(OnnxNode& n) {
  const DType dtype = n.has_attr("dtype") ? dtype_of_onnx(n.i32("dtype", 0)) : n.in(0).dtype();
  const Val at = diagonals(n.in(0));
  n.out(0, cast(tf("Equal", {at, n.b.number(static_cast<double>(n.i("k", 0)), DType::Int64)}), dtype));
}

void trilu(OnnxNode& n) {
  const Val x = n.in(0), at = diagonals(x);
  const Val k = n.has(1) ? reshape(n.in(1), Ints{}) : n.b.number(0, DType::Int64);
  n.out(0, where(tf(n.i("upper", 1) != 0 ? "GreaterEqual" : "LessEqual", {at, k}), x, like(0, x)));
}

}  // namespace

void add_shapes(Translations& t) {
  t.add("Reshape", reshape_op);
  t.add("Transpose", transpose_op);
  t.add("Flatten", flatten);
  t.add("Squeeze", squeeze_op);
  t.add("Unsqueeze", unsqueeze);
  t.add("Expand", expand);
  t.add("Tile", tile);
  t.add("Cast", cast_op);
  t.add("CastLike", cast_like);
  t.add("BitCast", bit_cast);
  t.add("Concat", concat_op);
  t.add("Split", split_op);
  t.add("Slice", slice_op);
  t.add("Pad", pad_op);
  t.add("CenterCropPad", center_crop_pad);
  t.add("DepthToSpace", depth_to_space);
  t.add("SpaceToDepth", space_to_depth);
  t.add("Constant", constant);
  t.add("ConstantOfShape", constant_of_shape);
  t.add("Shape", shape_op);
  t.add("Size", size_op);
  t.add("Range", range_op);
  t.add("EyeLike", eye_like);
  t.add("Trilu", trilu);
}

}  // namespace braid::onnx
