// Shape, ShapeN, Size and Rank: facts about a tensor's shape, of type int32 or int64 (attribute out_type).
// They depend on no data, so they fold away as soon as shapes are known.
#include <fmt/format.h>

#include <limits>

#include "engine/ops/array/variadic.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

DType out_type(const InferContext& c) {
  const DType type = c.attr("out_type", DType::Int32);
  if (type != DType::Int32 && type != DType::Int64)
    c.fail("attribute out_type must be int32 or int64, got " + std::string(dtype_name(type)));
  return type;
}

void infer_shape(InferContext& c) {
  for (int i = 0; i < c.inputs(); ++i)
    c.output(out_type(c), Shape{c.shape(i).has_rank() ? c.shape(i).rank() : Shape::kUnknown});
}
void infer_size(InferContext& c) { c.output(out_type(c), Shape{}); }
void infer_rank(InferContext& c) { c.output(DType::Int32, Shape{}); }

/// A kernel that writes values[i] to output i.
PreparedKernel write_values(const PrepareContext& c, std::vector<std::vector<std::int64_t>> values) {
  const DType type = c.outputs[0].dtype;
  if (type == DType::Int32)
    for (const auto& list : values)
      for (std::int64_t v : list)
        if (v > std::numeric_limits<std::int32_t>::max())
          c.fail(fmt::format("{} does not fit int32; ask for out_type int64", v));
  return with_index("Shape", type, [&]<class T>() {
    return serial_kernel([values = std::move(values)](const KernelArgs& a) {
      for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t k = 0; k < values[i].size(); ++k)
          a.out<T>(static_cast<int>(i))[k] = static_cast<T>(values[i][k]);
    });
  });
}

PreparedKernel prepare_shape(const PrepareContext& c) {
  std::vector<std::vector<std::int64_t>> values;
  for (const OutputInfo& info : c.inputs)
    values.emplace_back(info.shape.dims().begin(), info.shape.dims().end());
  return write_values(c, std::move(values));
}

PreparedKernel prepare_size(const PrepareContext& c) {
  return write_values(c, {{c.inputs[0].shape.elements()}});
}

PreparedKernel prepare_rank(const PrepareContext& c) { return write_values(c, {{c.inputs[0].shape.rank()}}); }

Tensor integers(DType dtype, Shape shape, std::span<const std::int64_t> values) {
  Tensor tensor(dtype, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::Int64)
      tensor.data<std::int64_t>()[i] = values[i];
    else
      tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  }
  return tensor;
}

std::vector<Tensor> known_shape(const Node& node, std::span<const OutputInfo> inputs) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < node.outputs.size() && i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    values.push_back(shape.is_static() ? integers(node.outputs[i].dtype, Shape{shape.rank()}, shape.dims())
                                       : Tensor());
  }
  return values;
}

std::vector<Tensor> known_scalar(const Node& node, bool is_known, std::int64_t value) {
  return {is_known ? integers(node.outputs[0].dtype, Shape{}, {&value, 1}) : Tensor()};
}

std::vector<Tensor> known_size(const Node& node, std::span<const OutputInfo> inputs) {
  const Shape& shape = inputs[0].shape;
  return known_scalar(node, shape.is_static(), shape.is_static() ? shape.elements() : 0);
}

std::vector<Tensor> known_rank(const Node& node, std::span<const OutputInfo> inputs) {
  const Shape& shape = inputs[0].shape;
  return known_scalar(node, shape.has_rank(), shape.has_rank() ? shape.rank() : 0);
}

Cost no_cost(const InferContext&, std::span<const OutputInfo>) { return {}; }

}  // namespace

void register_shape(OpRegistry& registry) {
  const std::string reason = "its outputs are integers";
  registry.add({.name = "Shape",
                .traits = computes().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_shape,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_shape,
                .shape_only = {0},
                .known = known_shape});
  registry.add({.name = "ShapeN",
                .traits = computes().any_type().output_list(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_shape,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_shape,
                .shape_only = inputs_from(0),
                .known = known_shape});
  registry.add({.name = "Size",
                .traits = computes().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_size,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_size,
                .shape_only = {0},
                .known = known_size});
  registry.add({.name = "Rank",
                .traits = computes().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_rank,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_rank,
                .shape_only = {0},
                .known = known_rank});
}

}  // namespace braid
