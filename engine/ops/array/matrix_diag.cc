// Diagonals of matrices. MatrixDiag: zeros (V2, V3: `padding_value`) with the given diagonals.
// MatrixDiagPart: the diagonals of the matrices. MatrixSetDiag: the matrices with other diagonals. V2 and V3
// take diagonals lower..upper from k, one number or a pair: [..., upper - lower + 1, longest], the uppermost
// first (one alone without its axis); shorter ones are padded, at the end or at the begin as `align` of V3
// says (V2: at the end). Diag and DiagPart: the tensor of twice the rank that has x where both halves of the
// index are equal. A gradient is the diagonals of dy, or dy's diagonals among zeros; a padding value gets
// what the others do not.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// Which diagonals, of which matrices. Element (r, c) lies on diagonal c - r, where it is number min(r, c).
struct Diagonals {
  std::int64_t lower = 0, upper = 0;
  bool right_above = false, right_below = false;  // where the diagonals on either side end
  std::int64_t rows = Shape::kUnknown, cols = Shape::kUnknown;

  std::int64_t count() const { return upper - lower + 1; }
  bool known() const { return rows != Shape::kUnknown && cols != Shape::kUnknown; }
  std::int64_t length(std::int64_t d) const {
    return std::min(rows + std::min<std::int64_t>(d, 0), cols - std::max<std::int64_t>(d, 0));
  }
  std::int64_t longest() const {
    return std::min(rows + std::min<std::int64_t>(upper, 0), cols - std::max<std::int64_t>(lower, 0));
  }
  std::int64_t begin(std::int64_t d) const {
    const bool left = (d >= 0 && !right_above) || (d <= 0 && !right_below);
    return left ? 0 : longest() - length(d);
  }
  /// Where element (r, c) is in the diagonals of one matrix.
  std::int64_t place(std::int64_t r, std::int64_t c) const {
    return (upper - (c - r)) * longest() + begin(c - r) + std::min(r, c);
  }
};

/// From attribute `align` and the value of k; the first version has the main diagonal only. `C` is a context.
template <class C>
Diagonals read_diagonals(const C& c, const std::string& op, const Tensor* k) {
  Diagonals d;
  const std::string align = c.attr("align", std::string(op.ends_with("V3") ? "RIGHT_LEFT" : "LEFT_LEFT"));
  if (align != "LEFT_LEFT" && align != "LEFT_RIGHT" && align != "RIGHT_LEFT" && align != "RIGHT_RIGHT")
    c.fail("attribute align is '" + align + "'");
  d.right_above = align.starts_with("RIGHT");
  d.right_below = align.ends_with("RIGHT");
  if (!k) return d;
  const std::vector<std::int64_t> bounds = tensor_to_int64s(*k);
  if (bounds.empty() || bounds.size() > 2)
    c.fail("k must be one number or a pair, got shape " + k->shape().to_string());
  d.lower = bounds.front();
  d.upper = bounds.back();
  if (d.lower > d.upper)
    c.fail(fmt::format("k is [{}, {}], the lower diagonal comes first", d.lower, d.upper));
  return d;
}

/// Fails unless the matrices have both the lowest and the uppermost diagonal; dimensions may be unknown.
template <class C>
void require_inside(const C& c, const Diagonals& d) {
  for (const std::int64_t k : {d.lower, d.upper})
    if ((k < 0 && d.rows != Shape::kUnknown && k <= -d.rows) ||
        (k > 0 && d.cols != Shape::kUnknown && k >= d.cols))
      c.fail(fmt::format("diagonal {} lies outside of the matrix", k));
}

bool has_bounds(const std::string& op) { return op.ends_with("V2") || op.ends_with("V3"); }

/// Whether k is known, or not there.
bool knows_bounds(const InferContext& c, int k) {
  if (!has_bounds(c.node().op->name)) return true;
  require_dtype(c, k, {DType::Int32});
  if (c.shape(k).has_rank() && c.shape(k).rank() > 1)
    c.fail("k must be one number or a pair, got shape " + c.shape(k).to_string());
  return c.value(k) != nullptr;
}

Diagonals diagonals_of(const InferContext& c, int k, const Shape& matrices) {
  const std::string& op = c.node().op->name;
  Diagonals d = read_diagonals(c, op, has_bounds(op) ? c.value(k) : nullptr);
  d.rows = matrices[matrices.rank() - 2];
  d.cols = matrices[matrices.rank() - 1];
  require_inside(c, d);
  return d;
}

/// The shape of the diagonals of matrices.
Shape part_shape(const Diagonals& d, const Shape& matrices) {
  std::vector<std::int64_t> dims(matrices.dims().begin(), matrices.dims().end() - 2);
  if (d.count() > 1) dims.push_back(d.count());
  dims.push_back(d.known() ? d.longest() : Shape::kUnknown);
  return Shape(std::move(dims));
}

void infer_part(InferContext& c) {
  require_min_rank(c, 0, 2);
  if (c.inputs() > 2) {
    c.require_same_dtype(0, 2);
    c.require_rank(2, 0);
  }
  if (!knows_bounds(c, 1) || !c.shape(0).has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  c.output(c.dtype(0), part_shape(diagonals_of(c, 1, c.shape(0)), c.shape(0)));
}

void infer_set(InferContext& c) {
  require_min_rank(c, 0, 2);
  c.require_same_dtype(0, 1);
  if (knows_bounds(c, 2) && c.shape(0).has_rank()) {
    const Shape expected = part_shape(diagonals_of(c, 2, c.shape(0)), c.shape(0));
    Shape merged;
    if (!merge_shapes(expected, c.shape(1), merged))
      c.fail(fmt::format("the diagonals must have shape {}, got {}", expected.to_string(),
                         c.shape(1).to_string()));
  }
  infer_same_as_first(c);
}

/// Rows and columns of matrices with diagonals of `longest` elements: as asked for (-1: not), else as few as
/// hold them, square if neither is asked for.
void choose_sizes(const InferContext& c, Diagonals& d, std::int64_t longest, std::int64_t rows,
                  std::int64_t cols) {
  const std::int64_t least_rows = longest - std::min<std::int64_t>(d.upper, 0);
  const std::int64_t least_cols = longest + std::max<std::int64_t>(d.lower, 0);
  const bool square = rows == -1 && cols == -1;
  d.rows = square ? std::max(least_rows, least_cols) : rows == -1 ? least_rows : rows;
  d.cols = square ? d.rows : cols == -1 ? least_cols : cols;
  if (d.rows < least_rows || d.cols < least_cols || (d.rows != least_rows && d.cols != least_cols))
    c.fail(fmt::format("matrices of {} by {} have no diagonals {} to {} of {} elements", d.rows, d.cols,
                       d.lower, d.upper, longest));
}

void infer_diag(InferContext& c) {
  require_min_rank(c, 0, 1);
  for (int i = 2; i < c.inputs(); ++i) c.require_rank(i, 0);
  if (c.inputs() > 2) c.require_same_dtype(0, 4);
  const Shape& in = c.shape(0);
  if (!knows_bounds(c, 1) || !in.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  const std::string& op = c.node().op->name;
  Diagonals d = read_diagonals(c, op, has_bounds(op) ? c.value(1) : nullptr);
  const int own_axes = d.count() > 1 ? 2 : 1;
  require_min_rank(c, 0, own_axes);
  if (own_axes == 2 && in[in.rank() - 2] != Shape::kUnknown && in[in.rank() - 2] != d.count())
    c.fail(fmt::format("k is [{}, {}], got diagonals of shape {}", d.lower, d.upper, in.to_string()));
  const std::int64_t longest = in[in.rank() - 1];
  const bool sizes_known = c.inputs() == 1 || (c.value(2) && c.value(3));
  if (longest != Shape::kUnknown && sizes_known) {
    const auto asked = [&](int i) { return c.inputs() == 1 ? -1 : tensor_to_int64s(*c.value(i))[0]; };
    choose_sizes(c, d, longest, asked(2), asked(3));
    require_inside(c, d);
  }
  std::vector<std::int64_t> dims(in.dims().begin(), in.dims().end() - own_axes);
  dims.push_back(d.rows);
  dims.push_back(d.cols);
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void infer_tensor_diag(InferContext& c) {
  require_min_rank(c, 0, 1);
  if (!c.shape(0).has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims(c.shape(0).dims().begin(), c.shape(0).dims().end());
  dims.insert(dims.end(), c.shape(0).dims().begin(), c.shape(0).dims().end());
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void infer_tensor_part(InferContext& c) {
  require_min_rank(c, 0, 2);
  const Shape& in = c.shape(0);
  if (!in.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  const auto half = in.dims().begin() + in.rank() / 2;
  const Shape first(std::vector<std::int64_t>(in.dims().begin(), half));
  Shape merged;
  if (in.rank() % 2 != 0 ||
      !merge_shapes(first, Shape(std::vector<std::int64_t>(half, in.dims().end())), merged))
    c.fail("the halves of the shape must be equal, got " + in.to_string());
  c.output(c.dtype(0), merged);
}

/// The matrices of a kernel: those of the last two axes, or the whole tensor of Diag and DiagPart as one.
struct Matrices {
  Diagonals d;
  std::int64_t batch = 1;
};

Matrices prepared_matrices(const PrepareContext& c, const Shape& shape, std::size_t k) {
  const std::string& op = c.node.op->name;
  Matrices m;
  if (op == "Diag" || op == "DiagPart") {
    m.d.rows = 1;
    for (int i = 0; i < shape.rank() / 2; ++i) m.d.rows *= shape[i];
    m.d.cols = m.d.rows;
    return m;
  }
  m.d = read_diagonals(c, op, has_bounds(op) ? c.values[k] : nullptr);
  m.d.rows = shape[shape.rank() - 2];
  m.d.cols = shape[shape.rank() - 1];
  for (int i = 0; i < shape.rank() - 2; ++i) m.batch *= shape[i];
  return m;
}

PreparedKernel prepare_part(const PrepareContext& c) {
  const Matrices m = prepared_matrices(c, c.inputs[0].shape, 1);
  const bool padded = c.inputs.size() > 2;
  return with_number_or_bool("MatrixDiagPart", c.inputs[0].dtype, [&]<class T>() {
    const std::int64_t longest = m.d.longest();
    return parallel_kernel(
        c, m.batch * m.d.count(), row_grain(longest),
        [d = m.d, padded, longest](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          const T padding = padded ? *a.in<T>(2) : T{};
          for (std::int64_t r = begin; r < end; ++r) {
            const std::int64_t diagonal = d.upper - r % d.count();
            const T* from =
                a.in<T>(0) + r / d.count() * d.rows * d.cols + (diagonal < 0 ? -diagonal * d.cols : diagonal);
            T* to = a.out<T>(0) + r * longest;
            std::fill(to, to + longest, padding);
            to += d.begin(diagonal);
            for (std::int64_t i = 0; i < d.length(diagonal); ++i) to[i] = from[i * (d.cols + 1)];
          }
        });
  });
}

/// Rows of matrices that get elements from the diagonals; `fill_row(args, row number, row)` writes the
/// others.
template <class T, class FillRow>
PreparedKernel spread_kernel(const PrepareContext& c, const Matrices& m, int diagonals, FillRow fill_row) {
  return parallel_kernel(
      c, m.batch * m.d.rows, row_grain(m.d.cols),
      [d = m.d, diagonals, fill_row](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          T* row = a.out<T>(0) + r * d.cols;
          fill_row(a, r, row);
          const T* from = a.in<T>(diagonals) + r / d.rows * d.count() * d.longest();
          const std::int64_t i = r % d.rows;
          const std::int64_t last = std::min(i + d.upper, d.cols - 1);
          for (std::int64_t j = std::max<std::int64_t>(i + d.lower, 0); j <= last; ++j)
            row[j] = from[d.place(i, j)];
        }
      });
}

PreparedKernel prepare_diag(const PrepareContext& c) {
  const Matrices m = prepared_matrices(c, c.outputs[0].shape, 1);
  return with_number_or_bool("MatrixDiag", c.inputs[0].dtype, [&]<class T>() {
    return spread_kernel<T>(
        c, m, 0, [cols = m.d.cols, padded = c.inputs.size() > 2](const KernelArgs& a, std::int64_t, T* row) {
          std::fill(row, row + cols, padded ? *a.in<T>(4) : T{});
        });
  });
}

PreparedKernel prepare_set(const PrepareContext& c) {
  const Matrices m = prepared_matrices(c, c.inputs[0].shape, 2);
  return with_number_or_bool("MatrixSetDiag", c.inputs[0].dtype, [&]<class T>() {
    return spread_kernel<T>(c, m, 1, [cols = m.d.cols](const KernelArgs& a, std::int64_t r, T* row) {
      const T* from = a.in<T>(0) + r * cols;
      if (from != row) std::copy(from, from + cols, row);
    });
  });
}

/// `dy`'s diagonals, zeros beside them. `version` is the end of the op's name.
ValueRef part_of(GradContext& c, const std::string& version, ValueRef dy, int k) {
  if (version.empty()) return c.op("MatrixDiagPart", {dy});
  return c.op("MatrixDiagPart" + version, {dy, c.input(k), grad::scalar(c, 0)}, c.node().attrs);
}

ValueRef with_diagonals(GradContext& c, const std::string& version, ValueRef matrices, ValueRef diagonals,
                        int k) {
  if (version.empty()) return c.op("MatrixSetDiag", {matrices, diagonals});
  return c.op("MatrixSetDiag" + version, {matrices, diagonals, c.input(k)}, c.node().attrs);
}

/// Gives the padding value, input i, all of dy that is not in `others`.
void set_padding_grad(GradContext& c, int i, ValueRef others) {
  const auto total = [&](ValueRef value) { return c.op("braid.ReduceToShapeOf", {value, c.input(i)}); };
  c.set_grad(i, grad::sub(c, total(c.grad()), total(others)));
}

void register_version(OpRegistry& registry, const std::string& version) {
  const bool first = version.empty();
  registry.add({.name = "MatrixDiag" + version,
                .traits = moves(),
                .min_inputs = first ? 1 : 5,
                .max_inputs = first ? 1 : 5,
                .infer = infer_diag,
                .gradient =
                    [version](GradContext& c) {
                      const ValueRef part = part_of(c, version, c.grad(), 1);
                      c.set_grad(0, part);
                      if (!version.empty()) set_padding_grad(c, 4, part);
                    },
                .cpu = prepare_diag,
                .shape_values = first ? std::vector<int>{} : std::vector<int>{1, 2, 3}});
  registry.add({.name = "MatrixDiagPart" + version,
                .traits = moves(),
                .min_inputs = first ? 1 : 3,
                .max_inputs = first ? 1 : 3,
                .infer = infer_part,
                .gradient =
                    [version](GradContext& c) {
                      const ValueRef placed =
                          with_diagonals(c, version, c.op("ZerosLike", {c.input(0)}), c.grad(), 1);
                      c.set_grad(0, placed);
                      if (!version.empty()) set_padding_grad(c, 2, placed);
                    },
                .cpu = prepare_part,
                .shape_values = first ? std::vector<int>{} : std::vector<int>{1}});
  registry.add({.name = "MatrixSetDiag" + version,
                .traits = moves(),
                .min_inputs = first ? 2 : 3,
                .max_inputs = first ? 2 : 3,
                .infer = infer_set,
                .gradient =
                    [version](GradContext& c) {
                      c.set_grad(0, with_diagonals(c, version, c.grad(), c.op("ZerosLike", {c.input(1)}), 2));
                      c.set_grad(1, part_of(c, version, c.grad(), 2));
                    },
                .cpu = prepare_set,
                .in_place = {{0, 0}},
                .shape_values = first ? std::vector<int>{} : std::vector<int>{2}});
}

}  // namespace

void register_matrix_diag(OpRegistry& registry) {
  for (const char* version : {"", "V2", "V3"}) register_version(registry, version);
  registry.add({.name = "Diag",
                .traits = moves(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_tensor_diag,
                .gradient = [](GradContext& c) { c.set_grad(0, c.op("DiagPart", {c.grad()})); },
                .cpu = prepare_diag});
  registry.add({.name = "DiagPart",
                .traits = moves(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_tensor_part,
                .gradient = [](GradContext& c) { c.set_grad(0, c.op("Diag", {c.grad()})); },
                .cpu = prepare_part});
}

}  // namespace braid
