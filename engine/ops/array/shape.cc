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

Cost no_cost(const InferContext&, std::span<const OutputInfo>) { return {}; }

}  // namespace

void register_shape(OpRegistry& registry) {
  const std::string reason = "its outputs are integers";
  registry.add({.name = "Shape",
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_shape,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_shape,
                .shape_only = {0}});
  registry.add({.name = "ShapeN",
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_shape,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_shape,
                .shape_only = inputs_from(0)});
  registry.add({.name = "Size",
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_size,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_size,
                .shape_only = {0}});
  registry.add({.name = "Rank",
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_rank,
                .no_gradient_reason = reason,
                .cost = no_cost,
                .cpu = prepare_rank,
                .shape_only = {0}});
}

}  // namespace braid
