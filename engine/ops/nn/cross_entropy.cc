// SoftmaxCrossEntropyWithLogits(logits, labels [batch, classes]) and
// SparseSoftmaxCrossEntropyWithLogits(logits, labels [batch] of class indices). Outputs: loss [batch] and
// backprop [batch, classes], the gradient of the loss by the logits, made in the same pass.
//   loss = sum_j labels_j (log sum exp(x - max) - (x_j - max))        backprop = softmax(x) - labels
// Gradient: dlogits = dloss backprop; dlabels = -dloss log softmax(x).
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/softmax_rows.h"

namespace braid {
namespace {

// x, labels, backprop: [rows, n]; loss: [rows]; rows <= kSoftmaxTileRows.
template <class T>
BRAID_VECTOR_CLONES void dense_rows(const T* x, const T* labels, T* loss, T* backprop, std::int64_t rows,
                                    std::int64_t n) {
  T max[kSoftmaxTileRows], sum[kSoftmaxTileRows];
  exp_rows(x, rows, n, backprop, max, sum);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T scale = T(1) / sum[r], log_sum = vec::log(sum[r]), m = max[r];
    const T *xr = x + r * n, *z = labels + r * n;
    T* b = backprop + r * n;
    T total = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      total += z[j] == T(0) ? T(0) : z[j] * (log_sum - (xr[j] - m));  // 0 * inf is no loss
      b[j] = b[j] * scale - z[j];
    }
    loss[r] = total;
  }
}

template <class T, class I>
BRAID_VECTOR_CLONES void sparse_rows(const T* x, const I* labels, T* loss, T* backprop, std::int64_t rows,
                                     std::int64_t n) {
  T max[kSoftmaxTileRows], sum[kSoftmaxTileRows];
  exp_rows(x, rows, n, backprop, max, sum);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T scale = T(1) / sum[r];
    T* b = backprop + r * n;
    for (std::int64_t j = 0; j < n; ++j) b[j] *= scale;
    const auto label = static_cast<std::int64_t>(labels[r]);
    b[label] -= T(1);
    loss[r] = vec::log(sum[r]) - (x[r * n + label] - max[r]);
  }
}

template <class T>
PreparedKernel dense_kernel(const PrepareContext& c, std::int64_t rows, std::int64_t n) {
  return parallel_kernel(c, rows, row_grain(n),
                         [n](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           for_row_tiles(begin, end, n, [&](std::int64_t first, std::int64_t count) {
                             const std::int64_t at = first * n;
                             dense_rows(args.in<T>(0) + at, args.in<T>(1) + at, args.out<T>(0) + first,
                                        args.out<T>(1) + at, count, n);
                           });
                         });
}

template <class T, class I>
PreparedKernel sparse_kernel(const PrepareContext& c, std::int64_t rows, std::int64_t n) {
  return parallel_kernel(
      c, rows, row_grain(n),
      [n, name = c.node.name](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
        const I* labels = args.in<I>(1);
        for (std::int64_t r = begin; r < end; ++r)
          if (labels[r] < 0 || labels[r] >= n)
            throw InvalidArgument(fmt::format(
                "[SparseSoftmaxCrossEntropyWithLogits] node '{}': label {} of row {} is outside [0, {})",
                name, labels[r], r, n));
        for_row_tiles(begin, end, n, [&](std::int64_t first, std::int64_t count) {
          const std::int64_t at = first * n;
          sparse_rows(args.in<T>(0) + at, labels + first, args.out<T>(0) + first, args.out<T>(1) + at, count,
                      n);
        });
      });
}

PreparedKernel prepare(const PrepareContext& c, bool sparse) {
  const std::int64_t rows = c.inputs[0].shape[0], n = c.inputs[0].shape[1];
  if (n == 0 && rows > 0) c.fail("there are no classes");
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    if (!sparse) return dense_kernel<T>(c, rows, n);
    return with_index(c.node.op->name, c.inputs[1].dtype,
                      [&]<class I>() { return sparse_kernel<T, I>(c, rows, n); });
  });
}

void infer_dense(InferContext& c) {
  require_floating(c, 0);
  c.require_same_dtype(0, 1);
  c.require_rank(0, 2);
  c.require_rank(1, 2);
  const Shape shape = merged_shape(c, 0, 1);
  c.output(c.dtype(0), Shape{shape.has_rank() ? shape[0] : Shape::kUnknown});
  c.output(c.dtype(0), shape);
}

void infer_sparse(InferContext& c) {
  require_floating(c, 0);
  require_index_dtype(c, 1);
  c.require_rank(0, 2);
  c.require_rank(1, 1);
  Shape logits = c.shape(0).has_rank() ? c.shape(0) : Shape{Shape::kUnknown, Shape::kUnknown};
  Shape batch;
  if (!merge_shapes(Shape{logits[0]}, c.shape(1), batch))
    c.fail(fmt::format("logits {} and labels {} have different batches", logits.to_string(),
                       c.shape(1).to_string()));
  logits.set_dim(0, batch[0]);
  c.output(c.dtype(0), batch);
  c.output(c.dtype(0), logits);
}

void gradient(GradContext& c, bool sparse) {
  if (c.grad(1).valid())
    throw InvalidArgument(
        fmt::format("[{}] node '{}': output 1 is a gradient already; second derivatives are not made",
                    c.node().op->name, c.node().name));
  const ValueRef dloss = c.op("ExpandDims", {c.grad(0), c.constant(Tensor::scalar<std::int32_t>(-1))});
  c.set_grad(0, grad::mul(c, dloss, c.output(1)));
  if (sparse) return;
  c.set_grad(1, grad::neg(c, grad::mul(c, dloss, c.op("LogSoftmax", {c.input(0)}))));
}

}  // namespace

void register_cross_entropy(OpRegistry& registry) {
  for (bool sparse : {false, true}) {
    OpDef def;
    def.name = sparse ? "SparseSoftmaxCrossEntropyWithLogits" : "SoftmaxCrossEntropyWithLogits";
    def.traits = computes().names({"loss", "backprop"});
    def.min_inputs = def.max_inputs = 2;
    def.infer = sparse ? infer_sparse : infer_dense;
    def.gradient = [sparse](GradContext& c) { gradient(c, sparse); };
    def.cost = cost_per_input(30);
    def.cpu = [sparse](const PrepareContext& c) { return prepare(c, sparse); };
    registry.add(std::move(def));
  }
}

}  // namespace braid
