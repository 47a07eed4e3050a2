#include "worker/strategies/replicated_rows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/ops/common/index_groups.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

constexpr const char* kCounts = "/reads";

ValueRef add_constant(Graph& graph, const std::string& name, Tensor value) {
  const DType dtype = value.dtype();
  return add_node(graph, "Const", name, {}, {{"value", std::move(value)}, {"dtype", dtype}});
}

/// 0, 1, ... or -1s.
Tensor row_numbers(std::int64_t rows, bool none) {
  Tensor numbers(DType::Int64, Shape{rows});
  for (std::int64_t row = 0; row < rows; ++row)
    numbers.data<std::int64_t>()[static_cast<std::size_t>(row)] = none ? -1 : row;
  return numbers;
}

}  // namespace

std::vector<VariableGradient> ReplicatedRows::dense_of(const VariableGradient& rows) {
  const std::string& name = rows.variable.name;
  const IndexedSlices& slices = *rows.slices;
  const bool pads = pads_indices(graph_, rows);
  const auto made_dense = [&](ValueRef values, ValueRef like, const std::string& what) {
    const ValueRef dense =
        add_node(graph_, "braid.SlicesToDense", name + what, {slices.indices, values, like});
    if (pads) graph_.mutable_node(dense.node).attrs.set(kSkipNegative, true);
    return dense;
  };
  VariableGradient sums = rows, counts = rows;
  sums.slices.reset();
  sums.dense = made_dense(slices.values, {rows.variable.handle, 0}, "/dense_gradient");
  counts.slices.reset();
  counts.variable.name += kCounts;
  counts.variable.shape = Shape{rows.variable.shape[0], 1};
  const ValueRef like =
      add_constant(graph_, name + "/reads_like", Tensor(DType::Float32, counts.variable.shape));
  counts.dense = made_dense(ones(slices.indices, name), like, "/dense_reads");
  tables_.push_back(rows);
  return {std::move(sums), std::move(counts)};
}

/// [n, 1]
ValueRef ReplicatedRows::ones(ValueRef indices, const std::string& name) {
  const ValueRef list = reshaped(graph_, indices, {-1, 1}, name + "/read");
  const ValueRef same = add_node(graph_, "Equal", name + "/read_once", {list, list});
  return add_node(graph_, "Cast", name + "/read_ones", {same},
                  {{"SrcT", DType::Bool}, {"DstT", DType::Float32}});
}

ValueRef ReplicatedRows::rows_that_were_read(const VariableGradient& table, ValueRef counts) {
  const std::string& name = table.variable.name;
  const std::int64_t rows = table.variable.shape[0];
  const ValueRef list = reshaped(graph_, counts, {-1}, name + "/reads_of_all");
  const ValueRef zero = add_constant(graph_, name + "/no_reads", Tensor::scalar<float>(0));
  const ValueRef read = add_node(graph_, "Greater", name + "/is_read", {list, zero});
  const ValueRef numbers = add_constant(graph_, name + "/row_numbers", row_numbers(rows, false));
  const ValueRef none = add_constant(graph_, name + "/no_rows", row_numbers(rows, true));
  return add_node(graph_, "SelectV2", name + "/read_rows", {read, numbers, none});
}

void ReplicatedRows::take_sums(std::vector<VariableGradient>& reduced) {
  const auto find = [&](const std::string& name) {
    const auto at = std::ranges::find_if(
        reduced, [&](const VariableGradient& gradient) { return gradient.variable.name == name; });
    if (at == reduced.end()) throw Internal("the sum of '" + name + "' is missing");
    return at;
  };
  for (const VariableGradient& table : tables_) {
    const auto counts = find(table.variable.name + kCounts);
    const ValueRef rows = rows_that_were_read(table, counts->dense);
    reduced.erase(counts);
    const auto sums = find(table.variable.name);
    sums->slices = IndexedSlices{rows, sums->dense};
    sums->dense = {};
  }
}

}  // namespace braid::worker
