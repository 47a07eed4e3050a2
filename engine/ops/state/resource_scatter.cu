// CUDA kernels of the scatters of rows into variables (common/cuda/row_groups.h): updates of one row are
// joined in the order of their positions, and then applied to it: several factors or divisors of a row may
// leave the range of its type together where, one after the other, they would not.
#include "engine/ops/common/cuda/row_groups.h"

namespace braid {
namespace {

using cuda::RowReduce;
using cuda::RowWrite;

struct Row {
  const char* name;
  RowReduce reduce;
  RowWrite write;
};

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  if (c.inputs[0].dtype != c.inputs[2].dtype)
    c.fail("the variable holds " + std::string(dtype_name(c.inputs[0].dtype)) + ", the updates are " +
           std::string(dtype_name(c.inputs[2].dtype)));
  const std::int64_t rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.inputs[0].shape.elements() / rows;
  const bool scalar = c.inputs[2].shape.rank() == 0;
  const cuda::RowUpdate update(c, {.dtype = c.inputs[0].dtype,
                                   .updates = c.inputs[1].shape.elements(),
                                   .rows = rows,
                                   .width = width,
                                   .reduce = row.reduce,
                                   .write = row.write});
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [=, index_type = c.inputs[1].dtype](const KernelArgs& a) {
    update.index(a, a.scratch, a.inputs[1], index_type, false);
    update.apply(a.scratch, a.stream,
                 {.data = a.inputs[2], .row_stride = scalar ? 0 : width, .column_stride = scalar ? 0 : 1},
                 a.inputs[0]);
  };
  return kernel;
}

constexpr Row kRows[] = {
    {"ResourceScatterAdd", RowReduce::Sum, RowWrite::Add},
    {"ResourceScatterSub", RowReduce::Sum, RowWrite::Sub},
    {"ResourceScatterMul", RowReduce::Prod, RowWrite::Mul},
    {"ResourceScatterDiv", RowReduce::Prod, RowWrite::Div},
    {"ResourceScatterMin", RowReduce::Min, RowWrite::Min},
    {"ResourceScatterMax", RowReduce::Max, RowWrite::Max},
    {"ResourceScatterUpdate", RowReduce::Last, RowWrite::Set},
};

}  // namespace

void register_resource_scatter_cuda(OpRegistry& registry) {
  for (const Row& row : kRows)
    registry.add_cuda(
        row.name, [&row](const PrepareContext& c) { return prepare(c, row); },
        [&row](const Node&, std::span<const OutputInfo> inputs) {
          // A zero divisor of integers is an error, which the host's kernel finds.
          if (row.write == RowWrite::Div && !is_floating(inputs[2].dtype)) return false;
          return inputs[0].dtype == inputs[2].dtype && cuda::is_row_type(inputs[2].dtype);
        });
}

}  // namespace braid
