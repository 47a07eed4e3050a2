// CUDA kernels of the scatters of slices by vectors of indices, into variables and into copies of tensors
// (common/cuda/row_groups.h).
#include "engine/ops/common/cuda/nd_rows.cuh"
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
  const cuda::NdRows to(NdAddressing(c.inputs[0].shape, c.inputs[1].shape));
  const bool copies = !c.outputs.empty();
  const auto bytes = static_cast<std::uint64_t>(c.inputs[0].shape.elements()) * dtype_size(c.inputs[0].dtype);
  const cuda::RowUpdate update(c, {.dtype = c.inputs[0].dtype,
                                   .updates = to.count,
                                   .rows = to.rows,
                                   .width = to.width,
                                   .reduce = row.reduce,
                                   .write = row.write});
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [=, device = c.accelerator, index_type = c.inputs[1].dtype](const KernelArgs& a) {
    void* target = copies ? a.outputs[0] : a.inputs[0];
    if (bytes != 0 && target != a.inputs[0]) device->copy(target, a.inputs[0], bytes, a.stream);
    cuda::make_nd_entries(a, to, a.inputs[1], index_type, update.entries(a.scratch));
    update.apply(a.scratch, a.stream, {.data = a.inputs[2], .row_stride = to.width, .column_stride = 1},
                 target);
  };
  return kernel;
}

constexpr Row kRows[] = {
    {"ResourceScatterNdAdd", RowReduce::Sum, RowWrite::Add},
    {"ResourceScatterNdSub", RowReduce::Sum, RowWrite::Sub},
    {"ResourceScatterNdUpdate", RowReduce::Last, RowWrite::Set},
    {"ResourceScatterNdMin", RowReduce::Min, RowWrite::Min},
    {"ResourceScatterNdMax", RowReduce::Max, RowWrite::Max},
    {"TensorScatterAdd", RowReduce::Sum, RowWrite::Add},
    {"TensorScatterSub", RowReduce::Sum, RowWrite::Sub},
    {"TensorScatterUpdate", RowReduce::Last, RowWrite::Set},
    {"TensorScatterMin", RowReduce::Min, RowWrite::Min},
    {"TensorScatterMax", RowReduce::Max, RowWrite::Max},
};

}  // namespace

void register_scatter_nd_cuda(OpRegistry& registry) {
  for (const Row& row : kRows)
    registry.add_cuda(
        row.name, [&row](const PrepareContext& c) { return prepare(c, row); },
        [](const Node&, std::span<const OutputInfo> inputs) {
          return inputs[0].dtype == inputs[2].dtype && cuda::is_row_type(inputs[2].dtype) &&
                 cuda::NdRows::supports(inputs[0].shape);
        });
}

}  // namespace braid
