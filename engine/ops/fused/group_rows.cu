// CUDA kernel of braid.GroupRows.
#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/common/index_groups.h"

namespace braid {
namespace {

std::vector<cuda::IndexedTable> tables_of(const Node& node, std::span<const OutputInfo> inputs) {
  const auto rows = node.attrs.require<std::vector<std::int64_t>>("rows");
  std::vector<cuda::IndexedTable> tables;
  for (std::size_t t = 0; t < inputs.size(); ++t)
    tables.push_back(
        {rows[t], inputs[t].shape[0], inputs[t].dtype == DType::Int64, node.attrs.get(kSkipNegative, false)});
  return tables;
}

PreparedKernel prepare(const PrepareContext& c) {
  cuda::RowGrouping grouping(tables_of(c.node, c.inputs));
  PreparedKernel kernel;
  kernel.scratch_bytes = grouping.scratch_bytes();
  kernel.run = [grouping = std::move(grouping)](const KernelArgs& a) {
    grouping.run(a, 0, 1, a.scratch, a.out<std::uint64_t>(0));
  };
  return kernel;
}

bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  return cuda::fits_entries(tables_of(node, inputs));
}

}  // namespace

void register_group_rows_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.GroupRows", prepare, supports);
}

}  // namespace braid
