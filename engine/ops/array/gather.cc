// Gather(params, indices) and GatherV2(params, indices, axis): slices of params along an axis. ResourceGather
// reads rows of a variable in place and has a sparse gradient; the others' is dense, by
// braid.GatherGrad(dy, indices, like, axis): the slices added up in the shape of `like`, in the order of the
// indices. braid.GatherOrZero(params, ids) gives zeros for negative ids (the gradient of UnsortedSegmentSum),
// braid.ResourceGatherOrZero does so for a variable, where lists of rows are padded with -1.
// Attribute batch_dims must be 0. An index out of range is InvalidArgument.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/array/gather_slices.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_gather(InferContext& c) {
  const Shape& params = c.shape(0);
  const Shape& indices = c.shape(1);
  require_min_rank(c, 0, 1);
  require_index_dtype(c, 1);
  if (c.attr("batch_dims", std::int64_t{0}) != 0) c.fail("attribute batch_dims must be 0");
  const bool is_variable = c.dtype(0) == DType::Resource;
  const DType dtype = is_variable ? c.node().attrs.require<DType>("dtype") : c.dtype(0);
  const Tensor* axis_value = c.inputs() > 2 ? c.value(2) : nullptr;
  if (!params.has_rank() || !indices.has_rank() || (c.inputs() > 2 && !axis_value))
    return c.output(dtype, Shape::unknown_rank());
  if (axis_value && axis_value->elements() != 1) c.fail("the axis must be one number");
  const int axis = axis_value ? normalized_axis(c, tensor_to_int64s(*axis_value)[0], params.rank()) : 0;
  std::vector<std::int64_t> dims(params.dims().begin(), params.dims().begin() + axis);
  dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), params.dims().begin() + axis + 1, params.dims().end());
  c.output(dtype, Shape(std::move(dims)));
}

PreparedKernel prepare_gather(const PrepareContext& c) {
  const GatherSlices s(c.inputs[0].shape, prepared_gather_axis(c, 2, c.inputs[0].shape.rank()));
  const std::int64_t n = c.inputs[1].shape.elements();
  const std::size_t row_bytes = static_cast<std::size_t>(s.width) * dtype_size(c.inputs[0].dtype);
  const bool zero_for_negative = gives_zeros(*c.node.op);
  if (row_bytes == 0 && s.width != 0)
    c.fail("no CPU kernel for " + std::string(dtype_name(c.inputs[0].dtype)));
  return with_index("Gather", c.inputs[1].dtype, [&]<class I>() {
    return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      const I* indices = a.in<I>(1);
      if (zero_for_negative)
        check_segment_ids(place, indices, n, s.rows);
      else
        check_indices(place, indices, n, s.rows);
      pool->parallel_range(s.outer * n, row_grain(s.width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          char* to = a.out<char>(0) + static_cast<std::size_t>(r) * row_bytes;
          const std::int64_t index = indices[r % n];
          if (index < 0) {
            std::memset(to, 0, row_bytes);
          } else {
            const auto from = static_cast<std::size_t>(r / n * s.rows + index);
            std::memcpy(to, a.in<char>(0) + from * row_bytes, row_bytes);
          }
        }
      });
    });
  });
}

void gather_gradient(GradContext& c) {
  const bool has_axis = c.node().inputs.size() > 2;
  const ValueRef axis = has_axis ? c.input(2) : c.constant(Tensor::scalar<std::int32_t>(0));
  c.set_grad(0, c.op("braid.GatherGrad", {c.grad(), c.input(1), c.input(0), axis}));
}

void gather_or_zero_gradient(GradContext& c) {
  const ValueRef rows = c.op("Shape", {c.input(0)}, {{"out_type", DType::Int64}});
  const ValueRef count =
      c.op("StridedSlice",
           {rows, c.constant(Tensor::from<std::int64_t>({1}, std::vector<std::int64_t>{0})),
            c.constant(Tensor::from<std::int64_t>({1}, std::vector<std::int64_t>{1})),
            c.constant(Tensor::from<std::int64_t>({1}, std::vector<std::int64_t>{1}))},
           {{"shrink_axis_mask", 1}});
  c.set_grad(0, c.op("UnsortedSegmentSum", {c.grad(), c.input(1), count}));
}

/// The variable's gradient as rows: indices [n], values [n, row...].
void resource_gather_gradient(GradContext& c) {
  ValueRef indices = c.input(1);
  ValueRef values = c.grad();
  const Shape& index_shape = c.input_info(1).shape;
  if (!index_shape.has_rank() || index_shape.rank() != 1) {
    const Shape& table = c.input_info(0).shape;
    std::vector<std::int64_t> row{-1};
    row.insert(row.end(), table.dims().begin() + 1, table.dims().end());
    const auto vector = [&](const std::vector<std::int64_t>& v) {
      return c.constant(Tensor::from<std::int64_t>({static_cast<std::int64_t>(v.size())}, v));
    };
    indices = c.op("Reshape", {indices, vector({-1})});
    values = c.op("Reshape", {values, vector(row)});
  }
  c.set_grad(0, IndexedSlices{indices, values});
}

void infer_gather_grad(InferContext& c) {
  require_index_dtype(c, 1);
  c.output(c.dtype(0), c.shape(2));
}

PreparedKernel prepare_gather_grad(const PrepareContext& c) {
  const GatherSlices s(c.outputs[0].shape, prepared_gather_axis(c, 3, c.outputs[0].shape.rank()));
  const std::int64_t n = c.inputs[1].shape.elements();
  return with_number("braid.GatherGrad", c.inputs[0].dtype, [&]<class T>() {
    return with_index("braid.GatherGrad", c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        check_indices(place, a.in<I>(1), n, s.rows);
        const IndexGroups groups(a.in<I>(1), n, s.rows, a.scratch);
        for (std::int64_t o = 0; o < s.outer; ++o)
          sum_rows(*pool, groups, a.in<T>(0) + o * n * s.width, s.width, s.rows,
                   a.out<T>(0) + o * s.rows * s.width);
      };
      return kernel;
    });
  });
}

void gather_grad_gradient(GradContext& c) {
  c.set_grad(0, c.op("GatherV2", {c.grad(), c.input(1), c.input(3)}));
}

/// Only the gathered rows are touched, not the table.
Cost gather_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  return {0, 2 * known_bytes(outputs[0]) + known_bytes({c.dtype(1), c.shape(1)})};
}

bool is_of_images(const Node& node, std::span<const OutputInfo>) {
  constexpr int kImages = 4;
  return node.outputs[0].shape.rank() >= kImages;
}

}  // namespace

void register_gather(OpRegistry& registry) {
  OpDef gather{.name = "Gather",
               .traits = moves().any_type().on_string_ids().type_attrs({{"Tparams", 0}, {"Tindices", 1}}),
               .min_inputs = 2,
               .max_inputs = 2,
               .infer = infer_gather,
               .gradient = gather_gradient,
               .cost = gather_cost,
               .cpu = prepare_gather,
               .gathers = {.table = 0}};
  registry.add(gather);
  OpDef gather_v2 = gather;
  gather_v2.name = "GatherV2";
  gather_v2.traits = gather.traits.type_attrs({{"Tparams", 0}, {"Tindices", 1}, {"Taxis", 2}});
  gather_v2.gathers = {.table = 0, .axis = 2};
  gather_v2.min_inputs = gather_v2.max_inputs = 3;
  gather_v2.shape_values = {2};
  registry.add(std::move(gather_v2));
  OpDef resource = gather;
  resource.name = "ResourceGather";
  resource.traits = moves().any_type();
  resource.gradient = resource_gather_gradient;
  resource.handles = {Access::Read};
  registry.add(takes_halves(resource, {.kind = HalfKind::Follower, .outputs = {0}}));
  OpDef resource_or_zero = resource;
  resource_or_zero.name = "braid.ResourceGatherOrZero";
  resource_or_zero.gradient = {};
  resource_or_zero.no_gradient_reason = "strategies make it, after gradients are made";
  registry.add(std::move(resource_or_zero));
  OpDef or_zero = gather;
  or_zero.name = "braid.GatherOrZero";
  or_zero.traits = moves();
  or_zero.gradient = gather_or_zero_gradient;
  registry.add(std::move(or_zero));
  // Of images that were made larger. Gradients of tables, whose rows are matrices', stay float32.
  registry.add(
      takes_halves({.name = "braid.GatherGrad",
                    .traits = computes(),
                    .min_inputs = 4,
                    .max_inputs = 4,
                    .infer = infer_gather_grad,
                    .gradient = gather_grad_gradient,
                    .cpu = prepare_gather_grad,
                    .shape_values = {3},
                    .shape_only = {2}},
                   {.kind = HalfKind::Follower, .inputs = {0}, .outputs = {0}, .pays = is_of_images}));
}

}  // namespace braid
