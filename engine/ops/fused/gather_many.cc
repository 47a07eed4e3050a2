// braid.GatherMany(handle, indices, handle, indices, ...): rows of many variables, each as ResourceGather
// gives them; output k belongs to pair k. Attribute dtype is what all of them hold; outputs may be rounded to
// halves (common/halves.h). The compiler makes it from the gathers of a device's program
// (engine/rewrite/group_gathers.cc). An index out of range is InvalidArgument.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  if (c.inputs() % 2 != 0) c.fail("inputs must be pairs of a handle and indices");
  const DType dtype = c.node().attrs.require<DType>("dtype");
  for (int i = 0; i < c.inputs(); i += 2) {
    if (c.dtype(i) != DType::Resource)
      c.fail(fmt::format("input {} must be a variable's handle, got {}", i, dtype_name(c.dtype(i))));
    require_min_rank(c, i, 1);
    require_index_dtype(c, i + 1);
    const Shape &table = c.shape(i), &indices = c.shape(i + 1);
    if (!table.has_rank() || !indices.has_rank()) {
      c.output(dtype, Shape::unknown_rank());
      continue;
    }
    std::vector<std::int64_t> dims(indices.dims().begin(), indices.dims().end());
    dims.insert(dims.end(), table.dims().begin() + 1, table.dims().end());
    c.output(dtype, Shape(std::move(dims)));
  }
}

struct Table {
  std::int64_t rows, n;
  std::size_t row_bytes;
  DType index_dtype;
};

template <class I>
void gather(const Table& t, int pair, const std::string& place, ThreadPool& pool, const KernelArgs& a) {
  const I* indices = a.in<I>(2 * pair + 1);
  check_indices(place, indices, t.n, t.rows);
  const auto grain = row_grain(static_cast<std::int64_t>(t.row_bytes / sizeof(float)));
  pool.parallel_range(t.n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      std::memcpy(a.out<char>(pair) + static_cast<std::size_t>(k) * t.row_bytes,
                  a.in<char>(2 * pair) + static_cast<std::size_t>(indices[k]) * t.row_bytes, t.row_bytes);
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  std::vector<Table> tables;
  for (std::size_t i = 0; i < c.inputs.size(); i += 2) {
    const Shape& table = c.inputs[i].shape;
    std::size_t row_bytes = dtype_size(c.outputs[i / 2].dtype);
    for (int axis = 1; axis < table.rank(); ++axis) row_bytes *= static_cast<std::size_t>(table[axis]);
    tables.push_back({table[0], c.inputs[i + 1].shape.elements(), row_bytes, c.inputs[i + 1].dtype});
  }
  return serial_kernel(
      [tables = std::move(tables), pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        for (std::size_t k = 0; k < tables.size(); ++k)
          with_index("braid.GatherMany", tables[k].index_dtype,
                     [&]<class I>() { gather<I>(tables[k], static_cast<int>(k), place, *pool, a); });
      });
}

/// Only the gathered rows are touched, not the tables.
Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  Cost sum;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const int indices = static_cast<int>(2 * k + 1);
    sum.bytes += 2 * known_bytes(outputs[k]) + known_bytes({c.dtype(indices), c.shape(indices)});
  }
  return sum;
}

}  // namespace

void register_gather_many(OpRegistry& registry) {
  registry.add(takes_halves({.name = "braid.GatherMany",
                             .traits = moves().output_list(),
                             .min_inputs = 2,
                             .max_inputs = -1,
                             .infer = infer,
                             .no_gradient_reason = "the compiler makes it, after gradients are made",
                             .cost = cost,
                             .cpu = prepare,
                             .further_handles = Access::Read},
                            {.kind = HalfKind::Follower, .outputs = {-1}}));
}

}  // namespace braid
