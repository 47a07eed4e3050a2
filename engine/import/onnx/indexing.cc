// Operators that read and write elements by index, and those whose result has as many elements as the values
// decide.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

/// Indices from the end become positive; `size` is a scalar or a vector for the last axis.
Val from_start(Val indices, Val size) {
  const Val at = cast(indices, DType::Int64);
  if (const auto known = known_ints(at)) {
    bool any = false;
    for (const std::int64_t index : *known) any = any || index < 0;
    if (!any) return at;
  }
  return where(tf("Less", {at, like(0, at)}), at + size, at);
}

/// The coordinate along `axis` of each element of a tensor of that shape.
Val coordinate(Val shape, int rank, int axis) {
  Ints line(static_cast<std::size_t>(rank), 1);
  line[static_cast<std::size_t>(axis)] = -1;
  const Val count = reshape(slice(shape, 0, axis, axis + 1), Ints{});
  return broadcast_to(reshape(range(count), line), shape);
}

/// [indices..., rank]: the places of which the indices give one coordinate, and their own place the others.
Val element_places(Val x, Val indices, int axis) {
  const int rank = x.rank();
  const Val shape = shape_of(indices);
  std::vector<Val> parts;
  for (int a = 0; a < rank; ++a)
    parts.push_back(a == axis ? from_start(indices, size_of(x, axis)) : coordinate(shape, rank, a));
  return pack(parts, rank);
}

void gather_op(OnnxNode& n) {
  const Val x = n.in(0);
  const int axis = positive_axis(n.i("axis", 0), x.rank());
  n.out(0, gather(x, from_start(n.in(1), size_of(x, axis)), axis));
}

/// Indices [axes in front, k] of slices, where those of elements along `axis` say the same for all elements
/// of one; empty where they do not, or the axes in front have other sizes.
Val slice_indices(OnnxNode& n, Val x, Val indices, int axis) {
  const int rank = x.rank();
  if (indices.rank() != rank) return {};
  const auto is_whole = [&](int a) { return x.dim(a) >= 0 && x.dim(a) == indices.dim(a); };
  // Of an axis in front that is not known: it is the batch, which both have.
  for (int a = 0; a < axis; ++a)
    if (!is_whole(a) && !(a == 0 && x.dim(0) < 0 && indices.dim(0) < 0)) return {};
  if (axis == rank - 1) return indices;
  const Val source = n.b.broadcast_source(indices);
  if (!source || source.rank() != rank) return {};
  Ints behind;
  for (int a = axis + 1; a < rank; ++a) {
    if (!is_whole(a) || source.dim(a) != 1) return {};
    behind.push_back(a);
  }
  for (int a = 0; a <= axis; ++a)
    if (source.dim(a) == 1 && indices.dim(a) != 1) return {};
  return squeeze(source, behind);
}

void gather_elements(OnnxNode& n) {
  const int axis = positive_axis(n.i("axis", 0), n.in(0).rank());
  if (const Val slices = n.b.may_own() ? slice_indices(n, n.in(0), n.in(1), axis) : Val()) {
    const Val at = from_start(slices, size_of(n.in(0), axis));
    return n.out(0, tf("braid.BatchGather", {n.in(0), at, n.b.number(axis, DType::Int32)},
                       {{"batch_dims", std::int64_t{axis}}}));
  }
  n.out(0, tf("GatherNd", {n.in(0), element_places(n.in(0), n.in(1), axis)}));
}

/// Vectors of indices [..., k] into the axes from `first` on, counted from the start.
Val from_start_nd(Val x, Val indices, int first) {
  const std::int64_t k = indices.static_dim(-1);
  if (x.shape().has_rank() && k > x.rank() - first)
    throw InvalidArgument(fmt::format("{} indices for {} axes", k, x.rank() - first));
  return from_start(indices, slice(shape_of(x), 0, first, first + k));
}

void gather_nd(OnnxNode& n) {
  const Val x = n.in(0);
  const int batch = n.i32("batch_dims", 0);
  if (batch < 0 || (x.shape().has_rank() && batch >= x.rank()))
    throw InvalidArgument(fmt::format("attribute batch_dims is {}", batch));
  Val places = from_start_nd(x, n.in(1), batch);
  // Vectors of one index: slices of the first axis.
  if (batch == 0 && places.static_dim(-1) == 1 && places.shape().is_static())
    return n.out(0, gather(x, squeeze(places, {places.rank() - 1}), 0));
  if (batch > 0) {
    const int rank = places.rank();
    const Val shape = slice(shape_of(places), 0, 0, rank - 1);
    std::vector<Val> parts;
    for (int a = 0; a < batch; ++a) parts.push_back(expand_dims(coordinate(shape, rank - 1, a), rank - 1));
    parts.push_back(places);
    places = concat(parts, rank - 1);
  }
  n.out(0, tf("GatherNd", {x, places}));
}

/// Updates of slices at `places` [..., k], with what duplicates do.
Val scatter(Val x, Val places, Val updates, const std::string& reduction) {
  if (x.dtype() == DType::Bool)
    return cast(scatter(cast(x, DType::Int32), places, cast(updates, DType::Int32), reduction), DType::Bool);
  if (reduction == "none") return tf("TensorScatterUpdate", {x, places, updates});
  if (reduction == "add") return tf("TensorScatterAdd", {x, places, updates});
  const bool product = reduction == "mul", largest = reduction == "max";
  if (!product && !largest && reduction != "min")
    throw InvalidArgument("reduction '" + reduction + "' is not supported");
  // As rows [slices, elements]: each slice's updates are reduced by themselves, then put on it.
  const auto k = places.static_dim(-1);
  const Val shape = shape_of(x), outer = slice(shape, 0, 0, k);
  const Val strides =
      tf("Cumprod", {outer, x.made_by().number(0, DType::Int32)}, {{"exclusive", true}, {"reverse", true}});
  const Val rows = reduce("Prod", outer, {0});
  const Val row_size = reduce("Prod", slice(shape, 0, k, kToEnd), {0});
  const Val as_rows = pack({rows, row_size}, 0);
  const Val at = reshape(reduce("Sum", places * strides, {-1}), Ints{-1});
  const Val flat = reshape(updates, pack({tf("Size", {at}, {{"out_type", DType::Int64}}), row_size}, 0));
  const char* op = product ? "UnsortedSegmentProd" : largest ? "UnsortedSegmentMax" : "UnsortedSegmentMin";
  const Val reduced = tf(op, {flat, at, cast(rows, DType::Int32)});
  const Val old = reshape(x, as_rows);
  const Val result = product ? old * reduced : largest ? maximum(old, reduced) : minimum(old, reduced);
  return reshape(result, shape);
}

void scatter_elements(OnnxNode& n) {
  const Val x = n.in(0);
  const int axis = positive_axis(n.i("axis", 0), x.rank());
  if (n.b.may_own() && n.s("reduction", "none") == "add" && n.in(2).rank() == x.rank())
    if (const Val slices = slice_indices(n, x, n.in(1), axis))
      return n.out(0,
                   x + tf("braid.BatchGatherGrad",
                          {n.in(2), from_start(slices, size_of(x, axis)), n.b.number(axis, DType::Int32), x},
                          {{"batch_dims", std::int64_t{axis}}}));
  n.out(0, scatter(x, element_places(x, n.in(1), axis), n.in(2), n.s("reduction", "none")));
}

void scatter_nd(OnnxNode& n) {
  n.out(0, scatter(n.in(0), from_start_nd(n.in(0), n.in(1), 0), n.in(2), n.s("reduction", "none")));
}

void one_hot(OnnxNode& n) {
  const Val depth = cast(reshape(n.in(1), Ints{}), DType::Int64);
  const Val off = reshape(slice(n.in(2), 0, 0, 1), Ints{}), on = reshape(slice(n.in(2), 0, 1, 2), Ints{});
  const Val indices = from_start(cast(n.in(0), DType::Int64), depth);
  const std::int64_t axis = positive_axis(n.i("axis", -1), indices.rank() + 1);
  n.out(0, tf("OneHot", {indices, cast(depth, DType::Int32), on, off}, {{"axis", axis}}));
}

void non_zero(OnnxNode& n) {
  const Val x = n.in(0);
  const Val is_set = x.dtype() == DType::Bool ? x : tf("NotEqual", {x, like(0, x)});
  n.out(0, transpose(tf("Where", {is_set}), {1, 0}));
}

void compress(OnnxNode& n) {
  const Val chosen = reshape(tf("Where", {n.in(1)}), Ints{-1});
  if (!n.has_attr("axis")) return n.out(0, gather(reshape(n.in(0), Ints{-1}), chosen, 0));
  n.out(0, gather(n.in(0), chosen, positive_axis(n.i("axis", 0), n.in(0).rank())));
}

struct Distinct {
  Val first;    // where each distinct row occurs first
  Val inverse;  // which distinct row each row is
  Val counts;
};

/// Of rows [n, m], by comparing all with all: equal[i, j], and, for the order, less[i, j] of the first
/// difference.
Distinct distinct_rows(Val rows, bool sorted) {
  Builder& b = rows.made_by();
  const Val i = expand_dims(rows, 1), j = expand_dims(rows, 0);
  const Val equal_each = cast(tf("Equal", {i, j}), DType::Int32);
  const Val equal = reduce("Prod", equal_each, {2});
  const Val own = tf("ArgMax", {equal, b.number(1, DType::Int64)}, {{"output_type", DType::Int64}});
  const Val is_first = tf("Equal", {own, range(size_of(rows, 0))});
  const Val first = reshape(tf("Where", {is_first}), Ints{-1});
  Val before = cast(expand_dims(is_first, 0), DType::Int64);
  if (sorted) {
    const Val prefix = tf("Cumprod", {equal_each, b.number(2, DType::Int32)}, {{"exclusive", true}});
    const Val greater = reduce("Sum", prefix * cast(tf("Greater", {i, j}), DType::Int32), {2});
    before = before * cast(greater, DType::Int64);
  } else {
    before = before * cast(tf("Greater", {expand_dims(own, 1), expand_dims(range(size_of(rows, 0)), 0)}),
                           DType::Int64);
  }
  const Val place = reduce("Sum", before, {1});  // how many distinct rows come before
  const Val count = tf("Size", {first}, {{"out_type", DType::Int32}});
  const Val ones = tf("OnesLike", {place});
  const Val order = tf("InvertPermutation", {cast(gather(place, first, 0), DType::Int32)});
  return {gather(first, order, 0), place, tf("UnsortedSegmentSum", {ones, place, count})};
}

/// Of a vector.
Distinct distinct_elements(Val x, bool sorted) {
  const Val found = tf("UniqueWithCounts", {x}, {{"out_idx", DType::Int64}});
  const Val which = found.at(1), counts = found.at(2);
  const Val count = tf("Size", {found}, {{"out_type", DType::Int32}});
  const Val all = range(tf("Size", {x}, {{"out_type", DType::Int64}}));
  const Val first = tf("UnsortedSegmentMin", {all, which, count});
  if (!sorted) return {first, which, counts};
  const Val turned = is_floating(x.dtype()) ? -found : tf("Invert", {found});
  const Val order = tf("TopKV2", {turned, count}, {{"sorted", true}}).at(1);
  const Val place = cast(tf("InvertPermutation", {order}), DType::Int64);
  return {gather(first, order, 0), gather(place, which, 0), gather(counts, order, 0)};
}

void unique(OnnxNode& n) {
  const Val x = n.in(0);
  const bool sorted = n.i("sorted", 1) != 0;
  const bool flat = !n.has_attr("axis") || x.rank() == 1;
  const int axis = flat ? 0 : positive_axis(n.i("axis", 0), x.rank());
  const Val from = !n.has_attr("axis") ? reshape(x, Ints{-1}) : x;
  Distinct d;
  if (flat) {
    d = distinct_elements(from, sorted);
  } else {
    const Val rows = transpose(x, moving(x.rank(), axis, 0));
    d = distinct_rows(reshape(rows, pack({size_of(rows, 0), n.b.number(-1, DType::Int64)}, 0)), sorted);
  }
  n.out(0, gather(from, d.first, axis));
  if (n.wants(1)) n.out(1, tf("Identity", {d.first}));
  if (n.wants(2)) n.out(2, tf("Identity", {d.inverse}));
  if (n.wants(3)) n.out(3, tf("Identity", {d.counts}));
}

void reverse_sequence(OnnxNode& n) {
  const Val x = n.in(0);
  const int batch = n.i32("batch_axis", 1), time = n.i32("time_axis", 0);
  if (batch < 0 || batch > 1 || time != 1 - batch)
    throw InvalidArgument(
        fmt::format("batch_axis {} and time_axis {}: one must be 0, the other 1", batch, time));
  Ints order = all_axes(x.rank());
  order[0] = batch;
  order[1] = time;
  const Val rows = transpose(x, order);  // [batch, time, ...]
  const Val lengths = expand_dims(cast(n.in(1), DType::Int64), 1);
  const Val at = expand_dims(range(size_of(rows, 1)), 0);
  const Val from = where(tf("Less", {at, lengths}), lengths - 1.0 - at, at);
  const Val shape = shape_of(from);
  const Val places = pack({coordinate(shape, 2, 0), from}, 2);
  n.out(0, transpose(tf("GatherNd", {rows, places}), inverse(order)));
}

}  // namespace

void add_indexing(Translations& t) {
  t.add("Gather", gather_op);
  t.add("GatherElements", gather_elements);
  t.add("GatherND", gather_nd);
  t.add("Scatter", scatter_elements);
  t.add("ScatterElements", scatter_elements);
  t.add("ScatterND", scatter_nd);
  t.add("OneHot", one_hot);
  t.add("NonZero", non_zero);
  t.add("Compress", compress);
  t.add("Unique", unique);
  t.add("ReverseSequence", reverse_sequence);
}

}  // namespace braid::onnx
