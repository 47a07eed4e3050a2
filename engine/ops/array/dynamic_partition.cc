// DynamicPartition(data, partitions), attribute num_partitions: output p holds the slices data[i...] with
// partitions[i...] == p, in their order; how many that are must be known before the program runs, from the
// value of partitions. braid.DynamicPartitionGrad(partitions, like, dy...): the slices back at their places.
// DynamicStitch, ParallelDynamicStitch(indices..., data...): y[indices[m][i...]] = data[m][i...], the last
// one stays; as many rows as the largest index says, zeros where none is given. Gradient: the rows of dy at
// the indices.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/segment_rules.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// Fails unless the shape of `prefix` begins the shape of `whole`.
void require_prefix(const InferContext& c, const char* what, const Shape& prefix, const Shape& whole) {
  if (!prefix.has_rank() || !whole.has_rank()) return;
  bool fits = prefix.rank() <= whole.rank();
  for (int i = 0; fits && i < prefix.rank(); ++i)
    fits = prefix[i] == whole[i] || prefix[i] == Shape::kUnknown || whole[i] == Shape::kUnknown;
  if (!fits)
    c.fail(
        fmt::format("{} of shape {} are no prefix of shape {}", what, prefix.to_string(), whole.to_string()));
}

void infer_partition(InferContext& c) {
  require_dtype(c, 1, {DType::Int32});
  require_prefix(c, "partitions", c.shape(1), c.shape(0));
  const auto count = c.node().attrs.require<std::int64_t>("num_partitions");
  if (count < 1) c.fail(fmt::format("num_partitions is {}", count));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), Shape::kUnknown);
  if (c.value(1)) {
    std::fill(sizes.begin(), sizes.end(), 0);
    for (const std::int64_t p : tensor_to_int64s(*c.value(1))) {
      if (p < 0 || p >= count) c.fail(fmt::format("partition {} is not in [0, {})", p, count));
      ++sizes[static_cast<std::size_t>(p)];
    }
  }
  const bool ranks = c.shape(0).has_rank() && c.shape(1).has_rank();
  for (const std::int64_t size : sizes)
    c.output(c.dtype(0), ranks ? segments_shape(c.shape(0), c.shape(1).rank(), size) : Shape::unknown_rank());
}

constexpr std::size_t kMaxPartitions = 4096;

PreparedKernel prepare_partition(const PrepareContext& c) {
  const std::int64_t n = c.inputs[1].shape.elements();
  const std::size_t partitions = c.outputs.size();
  if (partitions > kMaxPartitions) c.fail(fmt::format("more than {} partitions", kMaxPartitions));
  const std::size_t row_bytes =
      n == 0 ? 0 : static_cast<std::size_t>(c.inputs[0].shape.elements() / n) * dtype_size(c.inputs[0].dtype);
  PreparedKernel kernel;
  kernel.scratch_bytes = partitions * sizeof(std::size_t);
  kernel.run = [=](const KernelArgs& a) {
    auto* filled = static_cast<std::size_t*>(a.scratch);
    std::fill(filled, filled + partitions, std::size_t{0});
    for (std::int64_t k = 0; k < n; ++k) {
      const auto p = static_cast<std::size_t>(a.in<std::int32_t>(1)[k]);
      std::memcpy(a.out<char>(static_cast<int>(p)) + filled[p]++ * row_bytes,
                  a.in<char>(0) + static_cast<std::size_t>(k) * row_bytes, row_bytes);
    }
  };
  return kernel;
}

void partition_gradient(GradContext& c) {
  std::vector<ValueRef> inputs{c.input(1), c.input(0)};
  for (int p = 0; p < static_cast<int>(c.node().outputs.size()); ++p)
    inputs.push_back(c.grad(p).valid() ? c.grad(p) : c.op("ZerosLike", {c.output(p)}));
  c.set_grad(0, c.op("braid.DynamicPartitionGrad", std::move(inputs)));
}

void infer_partition_grad(InferContext& c) {
  require_dtype(c, 0, {DType::Int32});
  c.output(c.dtype(1), c.shape(1));
}

PreparedKernel prepare_partition_grad(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape.elements();
  const std::size_t partitions = c.inputs.size() - 2;
  const std::size_t row_bytes =
      n == 0 ? 0
             : static_cast<std::size_t>(c.outputs[0].shape.elements() / n) * dtype_size(c.outputs[0].dtype);
  PreparedKernel kernel;
  kernel.scratch_bytes = partitions * sizeof(std::size_t);
  kernel.run = [=](const KernelArgs& a) {
    auto* taken = static_cast<std::size_t*>(a.scratch);
    std::fill(taken, taken + partitions, std::size_t{0});
    for (std::int64_t k = 0; k < n; ++k) {
      const auto p = static_cast<std::size_t>(a.in<std::int32_t>(0)[k]);
      std::memcpy(a.out<char>(0) + static_cast<std::size_t>(k) * row_bytes,
                  a.in<char>(static_cast<int>(p) + 2) + taken[p]++ * row_bytes, row_bytes);
    }
  };
  return kernel;
}

void infer_stitch(InferContext& c) {
  const int parts = c.inputs() / 2;
  if (c.inputs() != 2 * parts)
    c.fail(fmt::format("expected as many indices as data, got {} inputs", c.inputs()));
  std::int64_t rows = 0;
  Shape row = Shape::unknown_rank();
  for (int m = 0; m < parts; ++m) {
    require_dtype(c, m, {DType::Int32});
    c.require_same_dtype(parts, parts + m);
    const Shape &indices = c.shape(m), &data = c.shape(parts + m);
    require_prefix(c, "indices", indices, data);
    if (indices.has_rank() && data.has_rank()) {
      const Shape rest(std::vector<std::int64_t>(data.dims().begin() + indices.rank(), data.dims().end()));
      if (!merge_shapes(row, rest, row))
        c.fail(fmt::format("data {} has slices of shape {}, those before {}", m, rest.to_string(),
                           row.to_string()));
    }
    if (!c.value(m)) {
      rows = Shape::kUnknown;
    } else if (rows != Shape::kUnknown) {
      for (const std::int64_t index : tensor_to_int64s(*c.value(m))) {
        if (index < 0) c.fail(fmt::format("index {} is negative", index));
        rows = std::max(rows, index + 1);
      }
    }
  }
  c.output(c.dtype(parts), row.has_rank() ? segments_shape(row, 0, rows) : Shape::unknown_rank());
}

PreparedKernel prepare_stitch(const PrepareContext& c) {
  const std::size_t parts = c.inputs.size() / 2;
  const std::int64_t rows = c.outputs[0].shape[0];
  const auto bytes = static_cast<std::size_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  const std::size_t row_bytes = rows == 0 ? 0 : bytes / static_cast<std::size_t>(rows);
  std::vector<std::int64_t> counts;
  for (std::size_t m = 0; m < parts; ++m) counts.push_back(c.inputs[m].shape.elements());
  return serial_kernel([=, place = place_of(c.node)](const KernelArgs& a) {
    if (bytes == 0) return;
    std::memset(a.outputs[0], 0, bytes);
    for (std::size_t m = 0; m < parts; ++m) {
      const std::int32_t* indices = a.in<std::int32_t>(static_cast<int>(m));
      const char* data = a.in<char>(static_cast<int>(parts + m));
      for (std::int64_t k = 0; k < counts[m]; ++k)
        std::memcpy(a.out<char>(0) + static_cast<std::size_t>(indices[k]) * row_bytes,
                    data + static_cast<std::size_t>(k) * row_bytes, row_bytes);
    }
  });
}

void stitch_gradient(GradContext& c) {
  const int parts = static_cast<int>(c.node().inputs.size()) / 2;
  for (int m = 0; m < parts; ++m) c.set_grad(parts + m, c.op("Gather", {c.grad(), c.input(m)}));
}

}  // namespace

void register_dynamic_partition(OpRegistry& registry) {
  registry.add({.name = "DynamicPartition",
                .traits = moves().any_type().on_string_ids().output_list(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_partition,
                .gradient = partition_gradient,
                .cpu = prepare_partition,
                .shape_values = {1}});
  registry.add({.name = "braid.DynamicPartitionGrad",
                .traits = moves(),
                .min_inputs = 3,
                .max_inputs = -1,
                .infer = infer_partition_grad,
                .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                .cpu = prepare_partition_grad,
                .shape_only = {1}});
  for (const char* name : {"DynamicStitch", "ParallelDynamicStitch"})
    registry.add({.name = name,
                  .traits = moves().any_type().on_string_ids(),
                  .min_inputs = 2,
                  .max_inputs = -1,
                  .infer = infer_stitch,
                  .gradient = stitch_gradient,
                  .cpu = prepare_stitch});
}

}  // namespace braid
