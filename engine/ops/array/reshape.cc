// Ops that see the same elements under another shape: Reshape, Squeeze, ExpandDims, and braid.ReshapeLike
// (input 0 under the shape of input 1, of which nothing else is used: what gradients of reshapes need when
// batch sizes are unknown). braid.LeadingRows(x [n, ...]) -> [rows, ...] sees the first of them only. All are
// views of input 0.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// Fills the one -1 of `dims` from the elements of `from`, and where both shapes have none from its
/// dimensions but the zeros, as TensorFlow does. Fails when the counts cannot agree.
Shape resolve_reshape(const InferContext& c, const Shape& from, std::vector<std::int64_t> dims) {
  int free_axis = -1;
  std::int64_t known = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1) c.fail(fmt::format("dimension {} of the shape is {}", i, dims[i]));
    if (dims[i] == -1) {
      if (free_axis >= 0) c.fail("the shape has more than one -1: " + Shape(dims).to_string());
      free_axis = static_cast<int>(i);
    } else {
      known *= dims[i];
    }
  }
  if (!from.is_static()) return Shape(std::move(dims));
  const std::int64_t elements = from.elements();
  if (free_axis >= 0 && known == 0 && elements == 0) {
    const auto product = [](std::span<const std::int64_t> sizes) {
      std::int64_t result = 1;
      for (const std::int64_t size : sizes) result *= size > 0 ? size : 1;
      return result;
    };
    const std::int64_t fixed = product(dims), given = product(from.dims());
    if (given % fixed == 0) {
      dims[static_cast<std::size_t>(free_axis)] = given / fixed;
      return Shape(std::move(dims));
    }
  }
  const bool fits = free_axis < 0 ? known == elements : known != 0 && elements % known == 0;
  if (!fits)
    c.fail(fmt::format("{} elements of shape {} do not fit shape {}", elements, from.to_string(),
                       Shape(dims).to_string()));
  if (free_axis >= 0) dims[static_cast<std::size_t>(free_axis)] = elements / known;
  return Shape(std::move(dims));
}

void infer_reshape(InferContext& c) {
  c.require_rank(1, 1);
  require_index_dtype(c, 1);
  if (const Tensor* shape = c.value(1)) {
    c.output(c.dtype(0), resolve_reshape(c, c.shape(0), tensor_to_int64s(*shape)));
  } else if (c.shape(1).is_static()) {
    c.output(c.dtype(0), Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(1)[0]), -1)));
  } else {
    c.output(c.dtype(0), Shape::unknown_rank());
  }
}

void infer_reshape_like(InferContext& c) {
  if (c.shape(0).is_static() && c.shape(1).is_static() && c.shape(0).elements() != c.shape(1).elements())
    c.fail(fmt::format("shape {} has other elements than shape {}", c.shape(0).to_string(),
                       c.shape(1).to_string()));
  c.output(c.dtype(0), c.shape(1));
}

void infer_squeeze(InferContext& c) {
  const Shape& in = c.shape(0);
  const auto squeezed = c.attr("squeeze_dims", std::vector<std::int64_t>{});
  if (!in.has_rank() || (squeezed.empty() && !in.is_static()))
    return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<bool> drop(static_cast<std::size_t>(in.rank()));
  for (int i = 0; i < in.rank() && squeezed.empty(); ++i) drop[static_cast<std::size_t>(i)] = in[i] == 1;
  for (std::int64_t requested : squeezed) {
    const int axis = normalized_axis(c, requested, in.rank());
    if (in[axis] != 1 && in[axis] != Shape::kUnknown)
      c.fail(fmt::format("dimension {} of shape {} is not 1", axis, in.to_string()));
    drop[static_cast<std::size_t>(axis)] = true;
  }
  std::vector<std::int64_t> dims;
  for (int i = 0; i < in.rank(); ++i)
    if (!drop[static_cast<std::size_t>(i)]) dims.push_back(in[i]);
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void infer_expand_dims(InferContext& c) {
  require_index_dtype(c, 1);
  const Shape& in = c.shape(0);
  const Tensor* axis = c.value(1);
  if (!in.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims(in.dims().begin(), in.dims().end());
  if (!axis) {
    dims.assign(dims.size() + 1, Shape::kUnknown);
  } else {
    const std::vector<std::int64_t> value = tensor_to_int64s(*axis);
    if (value.size() != 1) c.fail(fmt::format("the axis must be one number, got {}", value.size()));
    dims.insert(dims.begin() + normalized_axis(c, value[0], in.rank() + 1), 1);
  }
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void infer_leading_rows(InferContext& c) {
  Shape shape = c.shape(0);
  const auto rows = c.attr<std::int64_t>("rows", 0);
  if (!shape.has_rank()) return c.output(c.dtype(0), shape);
  if (shape.rank() == 0 || rows < 0 || (shape[0] != Shape::kUnknown && rows > shape[0]))
    c.fail(fmt::format("shape {} has no {} rows", shape.to_string(), rows));
  shape.set_dim(0, rows);
  c.output(c.dtype(0), shape);
}

void reshape_gradient(GradContext& c) { c.set_grad(0, c.reshape_like(c.grad(), c.input(0))); }

OpDef view_op(std::string name, int inputs, std::function<void(InferContext&)> infer,
              std::vector<TypeAttr> types = {{"T", 0}}) {
  return {.name = std::move(name),
          .traits = moves().any_type().batched(Batching::Reshape).type_attrs(std::move(types)),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .infer = std::move(infer),
          .gradient = reshape_gradient,
          .views = {{0, 0}},
          .same_shape_identity = 0};
}

}  // namespace

void register_reshape(OpRegistry& registry) {
  OpDef reshape = view_op("Reshape", 2, infer_reshape, {{"T", 0}, {"Tshape", 1}});
  reshape.shape_values = {1};
  registry.add(std::move(reshape));
  OpDef expand = view_op("ExpandDims", 2, infer_expand_dims, {{"T", 0}, {"Tdim", 1}});
  expand.shape_values = {1};
  registry.add(std::move(expand));
  OpDef like = view_op("braid.ReshapeLike", 2, infer_reshape_like);
  like.shape_only = {1};
  like.shape_like = 1;
  registry.add(std::move(like));
  registry.add(view_op("Squeeze", 1, infer_squeeze));
  OpDef leading = view_op("braid.LeadingRows", 1, infer_leading_rows);
  leading.traits = moves();
  leading.gradient = nullptr;
  leading.no_gradient_reason = "the compiler makes it after differentiation";
  registry.add(std::move(leading));
}

}  // namespace braid
