// What fusion makes of the backward pass of a layer with bias and ReLU, whose output is y [m, n]:
//   braid.ReluBiasGrad(dy, y) -> dz, db        dz = dy where y > 0, else 0; db [n] = the sum of dz's rows
//   braid.ReluHeadGrad(g, w, y) -> dz, db, dw  the same for dy = g w^T, where a head w [n, 1] follows and
//                                              g [m, 1] is the gradient of its output; dw [n, 1] = y^T g
// Or of lanes of them: dy, y and dz [lanes, m, n], db [lanes, n], g [lanes, m, 1], w and dw [lanes, n, 1].
// braid.JoinedReluBiasGrad is ReluBiasGrad of dy and y [m, lanes, n], and with the attribute `joined`
// ReluHeadGrad is of y [m, lanes, n], g [m, 1], w and dw [lanes n, 1]: lanes whose outputs are side by side.
// dz is [lanes, m, n] in all of them.
//
// Where products sum over dz's rows, dz^T [n, m] or [lanes, n, m] serves them better (gemm_layout.cc):
// with the attribute `columns` "also" it is one more output, the last one; with "only" it is in the place of
// dz. ReluBiasGrad has the name braid.ReluBiasGradColumns then, as it cannot work in place.
#include "engine/ops/fused/relu_bias_grad.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnGrain = 64;  // a cache line of partial sums for each of four vectors
constexpr const char* kColumnsName = "braid.ReluBiasGradColumns";

bool is_head(const Node& node) { return node.op->name == "braid.ReluHeadGrad"; }

int outputs_of(const Node& node) {
  return (is_head(node) ? 3 : 2) + (grad_layout(node) == GradLayout::Both ? 1 : 0);
}

void require_lanes(InferContext& c, const Shape& shape, bool joined) {
  if (shape.rank() == 3 || (shape.rank() == 2 && !joined)) return;
  c.fail(joined ? "expected joined lanes [m, lanes, n], got " + shape.to_string()
                : "expected a matrix, or lanes of them, got " + shape.to_string());
}

Shape swapped(const Shape& shape) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return Shape(dims);
}

/// dz and db of y, then what comes after them, then dz^T where it is another output.
void infer_layer(InferContext& c, DType dtype, const Shape& y, bool joined,
                 const std::optional<Shape>& dw = {}) {
  Shape dz = y, db;
  if (y.rank() == 2) {
    db = {y[1]};
  } else {
    const std::int64_t lanes = y[joined ? 1 : 0], m = y[joined ? 0 : 1], n = y[2];
    dz = {lanes, m, n};
    db = {lanes, n};
  }
  const GradLayout layout = grad_layout(c.node());
  c.output(dtype, layout == GradLayout::Columns ? swapped(dz) : dz);
  c.output(dtype, db);
  if (dw) c.output(dtype, *dw);
  if (layout == GradLayout::Both) c.output(dtype, swapped(dz));
}

void infer(InferContext& c, bool joined) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  c.require_same_dtype(0, 1);
  const Shape shape = merged_shape(c, 0, 1);
  if (!shape.has_rank()) {
    for (int output = 0; output < outputs_of(c.node()); ++output) c.output(c.dtype(0), shape);
    return;
  }
  require_lanes(c, shape, joined);
  infer_layer(c, c.dtype(0), shape, joined);
}

void infer_head(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  c.require_same_dtype(0, 1);
  c.require_same_dtype(0, 2);
  const Shape &g = c.shape(0), &w = c.shape(1), &y = c.shape(2);
  if (!y.has_rank() || !w.has_rank()) {
    for (int output = 0; output < outputs_of(c.node()); ++output)
      c.output(c.dtype(0), output == 2 ? w : Shape::unknown_rank());
    return;
  }
  const bool joined = c.attr<bool>("joined", false);
  require_lanes(c, y, joined);
  Shape expected_g = y, expected_w = y;
  if (joined) {
    expected_g = {y[0], 1};
    expected_w = {y[1] >= 0 && y[2] >= 0 ? y[1] * y[2] : Shape::kUnknown, 1};
  } else if (y.rank() == 2) {
    expected_g = {y[0], 1};
    expected_w = {y[1], 1};
  } else {
    expected_g = {y[0], y[1], 1};
    expected_w = {y[0], y[2], 1};
  }
  Shape merged;
  if (!merge_shapes(expected_g, g, merged))
    c.fail("expected a gradient " + expected_g.to_string() + ", got " + g.to_string());
  if (!merge_shapes(expected_w, w, merged))
    c.fail("expected a head " + expected_w.to_string() + ", got " + w.to_string());
  infer_layer(c, c.dtype(0), y, joined, merged);
}

template <class T>
BRAID_VECTOR_CLONES void layer_row(const T* dy, const T* y, T* dz, T* db, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dz[i] = y[i] > T(0) ? dy[i] : T(0);
    db[i] += dz[i];
  }
}

template <class T>
BRAID_VECTOR_CLONES void head_row(T g, const T* w, const T* y, T* dz, T* db, T* dw, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dz[i] = y[i] > T(0) ? g * w[i] : T(0);
    db[i] += dz[i];
    dw[i] += g * y[i];
  }
}

/// Rows are added from first to last, whatever the pool's width: blocks are of columns.
template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const ReluBiasGradForm form(c);
  return parallel_kernel(
      c, form.n, kColumnGrain, [form](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        const std::int64_t n = form.n, m = form.m;
        T* const rows = form.rows_output < 0 ? nullptr : a.out<T>(form.rows_output);
        T* const columns = form.columns_output < 0 ? nullptr : a.out<T>(form.columns_output);
        std::vector<T> row(rows ? 0 : static_cast<std::size_t>(end - begin));
        for (std::int64_t lane = 0; lane < form.lanes; ++lane) {
          T* const db = a.out<T>(1) + lane * n;
          std::fill(db + begin, db + end, T(0));
          T* const dw = form.head ? a.out<T>(2) + lane * n : nullptr;
          if (dw) std::fill(dw + begin, dw + end, T(0));
          for (std::int64_t r = 0; r < m; ++r) {
            const std::int64_t from = lane * form.lane_stride + r * form.row_stride + begin;
            T* const dz = rows ? rows + (lane * m + r) * n + begin : row.data();
            if (dw)
              head_row(a.in<T>(0)[lane * form.g_stride + r], a.in<T>(1) + lane * n + begin, a.in<T>(2) + from,
                       dz, db + begin, dw + begin, end - begin);
            else
              layer_row(a.in<T>(0) + from, a.in<T>(1) + from, dz, db + begin, end - begin);
            for (std::int64_t i = begin; columns && i < end; ++i)
              columns[(lane * n + i) * m + r] = dz[i - begin];
          }
        }
      });
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}

OpDef definition(const char* name, int inputs) {
  OpDef def;
  def.name = name;
  def.traits = computes().output_list();
  def.min_inputs = def.max_inputs = inputs;
  def.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
  def.cpu = prepare;
  return def;
}

}  // namespace

GradLayout grad_layout(const Node& node) {
  if (node.op->name == kColumnsName) return GradLayout::Columns;
  const auto columns = node.attrs.get<std::string>("columns", "");
  if (columns == "only") return GradLayout::Columns;
  return columns == "also" ? GradLayout::Both : GradLayout::Rows;
}

void set_grad_layout(Node& node, GradLayout layout) {
  const OutputInfo columns{node.outputs[0].dtype, swapped(node.outputs[0].shape)};
  if (layout == GradLayout::Both) {
    node.attrs.set("columns", std::string("also"));
    node.outputs.push_back(columns);
  } else if (layout == GradLayout::Columns) {
    if (node.op->name == "braid.ReluBiasGrad")
      node.op = &OpRegistry::global().require(kColumnsName);
    else
      node.attrs.set("columns", std::string("only"));
    node.outputs[0] = columns;
  }
}

bool reads_joined_lanes(const Node& node) {
  return node.op->name == "braid.JoinedReluBiasGrad" || node.attrs.get<bool>("joined", false);
}

ReluBiasGradForm::ReluBiasGradForm(const PrepareContext& c) {
  head = is_head(c.node);
  const GradLayout layout = grad_layout(c.node);
  if (layout == GradLayout::Columns) std::swap(rows_output, columns_output);
  if (layout == GradLayout::Both) columns_output = head ? 3 : 2;
  const Shape& y = c.inputs[head ? 2 : 1].shape;
  n = y[y.rank() - 1];
  if (reads_joined_lanes(c.node)) {
    m = y[0];
    lanes = y[1];
    lane_stride = n;
    row_stride = lanes * n;
  } else {
    m = y[y.rank() - 2];
    lanes = y.rank() == 3 ? y[0] : 1;
    lane_stride = m * n;
    row_stride = n;
    g_stride = m;
  }
}

void register_relu_bias_grad(OpRegistry& registry) {
  OpDef layer = definition("braid.ReluBiasGrad", 2);
  layer.infer = [](InferContext& c) { infer(c, false); };
  layer.cost = cost_per_output(2);
  layer.in_place = {{0, 0}};
  const HalfForm form{.kind = HalfKind::Follower, .inputs = {0, 1}, .outputs = {0}};
  registry.add(takes_halves(std::move(layer), form));

  OpDef columns = definition(kColumnsName, 2);
  columns.infer = [](InferContext& c) { infer(c, false); };
  columns.cost = cost_per_output(2);
  registry.add(std::move(columns));

  OpDef joined = definition("braid.JoinedReluBiasGrad", 2);
  joined.infer = [](InferContext& c) { infer(c, true); };
  joined.cost = cost_per_output(2);
  registry.add(takes_halves(std::move(joined), form));

  OpDef head = definition("braid.ReluHeadGrad", 3);
  head.infer = infer_head;
  head.cost = cost_per_output(5);
  registry.add(takes_halves(std::move(head), {.kind = HalfKind::Follower, .inputs = {2}, .outputs = {0}}));
}

}  // namespace braid
