// Reductions along axes, extremes, softmax and its kin, running sums.
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

/// The axes, as a value, from the input (from `input_since` on) or the attribute. Nothing: the node does
/// nothing.
Val reduced_axes(OnnxNode& n, int input_since) {
  const Val x = n.in(0);
  const bool noop = n.i("noop_with_empty_axes", 0) != 0;
  if (n.opset >= input_since && n.has(1) && n.in(1).dim(0) != 0) return n.in(1);
  const Ints axes = n.opset < input_since ? n.is("axes") : Ints();
  if (!axes.empty()) return ints(x, axes);
  return noop ? Val() : ints(x, all_axes(x.rank()));
}

using Step = Val (*)(Val);
Val same(Val x) { return x; }
Val absolute(Val x) { return tf("Abs", {x}); }
Val square(Val x) { return tf("Square", {x}); }
Val root(Val x) {
  return is_floating(x.dtype()) ? tf("Sqrt", {x}) : cast(tf("Sqrt", {cast(x, DType::Float64)}), x.dtype());
}
Val logarithm(Val x) {
  return is_floating(x.dtype()) ? tf("Log", {x}) : cast(tf("Log", {cast(x, DType::Float64)}), x.dtype());
}

/// after(op(before(x))).
void reduce_node(OnnxNode& n, const char* op, Step before, Step after, int input_since = 18) {
  const Val x = before(n.in(0));
  const Val axes = reduced_axes(n, input_since);
  if (!axes) return n.out(0, after(x));
  n.out(0, after(tf(op, {x, axes}, {{"keep_dims", n.i("keepdims", 1) != 0}})));
}

void reduce_sum(OnnxNode& n) { reduce_node(n, "Sum", same, same, 13); }
void reduce_mean(OnnxNode& n) { reduce_node(n, "Mean", same, same); }
void reduce_prod(OnnxNode& n) { reduce_node(n, "Prod", same, same); }
void reduce_max(OnnxNode& n) { reduce_node(n, n.in(0).dtype() == DType::Bool ? "Any" : "Max", same, same); }
void reduce_min(OnnxNode& n) { reduce_node(n, n.in(0).dtype() == DType::Bool ? "All" : "Min", same, same); }
void reduce_l1(OnnxNode& n) { reduce_node(n, "Sum", absolute, same); }
void reduce_l2(OnnxNode& n) { reduce_node(n, "Sum", square, root); }
void reduce_sum_square(OnnxNode& n) { reduce_node(n, "Sum", square, same); }
void reduce_log_sum(OnnxNode& n) { reduce_node(n, "Sum", same, logarithm); }

/// m + log(sum(exp(x - m))) with the largest element m; where that is not finite, m does not help. The
/// value does not depend on m, so no gradient passes it.
void reduce_log_sum_exp(OnnxNode& n) {
  const Val x = n.in(0);
  const Val axes = reduced_axes(n, 18);
  if (!axes) return n.out(0, x);
  const bool keep = n.i("keepdims", 1) != 0;
  const Val largest = tf("StopGradient", {tf("Max", {x, axes}, {{"keep_dims", true}})});
  const Val offset = where(tf("IsFinite", {largest}), largest, like(0, x));
  const Val sum = tf("Sum", {tf("Exp", {x - offset}), axes}, {{"keep_dims", keep}});
  n.out(0, tf("Log", {sum}) + (keep ? offset : tf("Sum", {offset, axes}, {{"keep_dims", false}})));
}

void arg_extreme(OnnxNode& n, const char* op) {
  const Val x = n.in(0);
  const int axis = positive_axis(n.i("axis", 0), x.rank());
  const bool last = n.i("select_last_index", 0) != 0;
  const Val seen = last ? tf("ReverseV2", {x, ints(x, {axis})}) : x;
  Val index = tf(op, {seen, n.b.number(axis, DType::Int64)}, {{"output_type", DType::Int64}});
  if (last) index = size_of(x, axis) - 1.0 - index;
  n.out(0, n.i("keepdims", 1) != 0 ? expand_dims(index, axis) : index);
}

void arg_max(OnnxNode& n) { arg_extreme(n, "ArgMax"); }
void arg_min(OnnxNode& n) { arg_extreme(n, "ArgMin"); }

/// `of` works on the last axis. Up to operator set 12 the axes from `axis` on are one, later `axis` stands
/// alone.
template <class F>
void along_axis(OnnxNode& n, F of) {
  const Val x = n.in(0);
  const int rank = x.rank();
  if (rank == 0) return n.out(0, reshape(of(reshape(x, Ints{1})), Ints{}));
  const bool flattens = n.opset < 13;
  const int axis = positive_axis(n.i("axis", flattens ? 1 : -1), rank);
  if (axis == rank - 1) return n.out(0, of(x));
  if (!flattens) {
    const Ints to_last = moving(rank, axis, rank - 1);
    return n.out(0, transpose(of(transpose(x, to_last)), inverse(to_last)));
  }
  const Val shape = shape_of(x);
  const Val outer = reduce("Prod", slice(shape, 0, 0, axis), {0}, true);
  n.out(0, reshape(of(reshape(x, concat({outer, ints(x, {-1})}, 0))), shape));
}

void softmax(OnnxNode& n) {
  along_axis(n, [](Val x) { return tf("Softmax", {x}); });
}
void log_softmax(OnnxNode& n) {
  along_axis(n, [](Val x) { return tf("LogSoftmax", {x}); });
}
void hardmax(OnnxNode& n) {
  along_axis(n, [](Val x) {
    const Val best = tf("ArgMax", {x, x.made_by().number(-1, DType::Int64)}, {{"output_type", DType::Int64}});
    return tf("OneHot", {best, cast(size_of(x, -1), DType::Int32), like(1, x), like(0, x)});
  });
}

void running(OnnxNode& n, const char* op) {
  const AttrMap attrs{{"exclusive", n.i("exclusive", 0) != 0}, {"reverse", n.i("reverse", 0) != 0}};
  n.out(0, tf(op, {n.in(0), reshape(n.in(1), Ints{})}, attrs));
}
void cum_sum(OnnxNode& n) { running(n, "Cumsum"); }
void cum_prod(OnnxNode& n) { running(n, "Cumprod"); }

void lp_normalization(OnnxNode& n) {
  const Val x = n.in(0);
  const Ints axis{n.i("axis", -1)};
  const bool absolutes = n.i("p", 2) == 1;
  const Val sum = reduce("Sum", absolutes ? absolute(x) : square(x), axis, true);
  n.out(0, tf("DivNoNan", {x, absolutes ? sum : root(sum)}));
}

void top_k(OnnxNode& n) {
  const Val x = n.in(0);
  const int axis = positive_axis(n.i("axis", -1), x.rank());
  const Ints to_last = moving(x.rank(), axis, x.rank() - 1);
  const Val k = n.opset >= 10 ? cast(reshape(n.in(1), Ints{}), DType::Int32)
                              : n.b.number(static_cast<double>(n.i("k", 0)), DType::Int32);
  const bool largest = n.i("largest", 1) != 0;
  // ~x turns the order of integers around without overflow.
  const auto turned = [&](Val v) { return is_floating(v.dtype()) ? -v : tf("Invert", {v}); };
  Val rows = transpose(x, to_last);
  if (x.dtype() == DType::UInt64) throw InvalidArgument("uint64 is not supported");
  const bool widens = !largest && !is_floating(x.dtype()) && x.dtype() != DType::Int64;
  if (widens) rows = cast(rows, DType::Int64);
  const Val found = tf("TopKV2", {largest ? rows : turned(rows), k}, {{"sorted", true}});
  const Val values = largest ? found : turned(found);
  n.out(0, transpose(cast(values, x.dtype()), inverse(to_last)));
  if (n.wants(1)) n.out(1, transpose(cast(found.at(1), DType::Int64), inverse(to_last)));
}

}  // namespace

void add_reductions(Translations& t) {
  t.add("ReduceSum", reduce_sum);
  t.add("ReduceMean", reduce_mean);
  t.add("ReduceProd", reduce_prod);
  t.add("ReduceMax", reduce_max);
  t.add("ReduceMin", reduce_min);
  t.add("ReduceL1", reduce_l1);
  t.add("ReduceL2", reduce_l2);
  t.add("ReduceSumSquare", reduce_sum_square);
  t.add("ReduceLogSum", reduce_log_sum);
  t.add("ReduceLogSumExp", reduce_log_sum_exp);
  t.add("ArgMax", arg_max);
  t.add("ArgMin", arg_min);
  t.add("Softmax", softmax);
  t.add("LogSoftmax", log_softmax);
  t.add("Hardmax", hardmax);
  t.add("CumSum", cum_sum);
  t.add("CumProd", cum_prod);
  t.add("LpNormalization", lp_normalization);
  t.add("TopK", top_k);
}

}  // namespace braid::onnx
