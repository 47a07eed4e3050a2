#include "worker/strategies/pipeline_groups.h"

#include <algorithm>

#include "worker/strategies/group_ops.h"
#include "worker/strategies/group_values.h"

namespace braid::worker {
namespace {

std::int64_t bytes_of(const VariableGradient& gradient) {
  return gradient.variable.shape.elements() * static_cast<std::int64_t>(dtype_size(gradient.variable.dtype));
}

bool is_dense(const VariableGradient& gradient) { return !gradient.slices; }

class GroupSums {
 public:
  GroupSums(TrainingGraph& training, const GroupExchanges& exchanges, const GroupWire& wire)
      : training_(training), graph_(training.graph), exchanges_(exchanges), wire_(wire) {}

  void run(std::int64_t bucket_bytes) {
    const auto buckets = bucket_gradients(training_.gradients, bucket_bytes);
    std::vector<VariableGradient> summed, rows;
    for (std::size_t b = 0; b < exchanges_.widths.size(); ++b) {
      std::vector<VariableGradient> dense;
      if (b < buckets.size())
        for (const VariableGradient& gradient : buckets[b])
          (is_dense(gradient) ? dense : rows).push_back(gradient);
      sum(dense, exchanges_.widths[b], "all_reduce/bucket" + std::to_string(b));
      std::ranges::move(dense, std::back_inserter(summed));
    }
    for (std::size_t t = 0; t < exchanges_.tables; ++t)
      join_rows(t < rows.size() ? &rows[t] : nullptr, "all_gather/rows" + std::to_string(t));
    std::ranges::move(rows, std::back_inserter(summed));
    training_.gradients = std::move(summed);
  }

 private:
  /// What a rank sends that has nothing to send: all ranks exchange values of one type.
  ValueRef nothing(DType dtype, const std::string& name) {
    return add_node(graph_, "Const", name + "/nothing", {},
                    {{"dtype", dtype}, {"value", Tensor::zeros(dtype, Shape{})}});
  }

  std::vector<ValueRef> exchange(std::vector<ValueRef> values, const char* op, const std::string& name) {
    Node node;
    node.name = graph_.unique_name(name);
    node.inputs = std::move(values);
    node.attrs = {{kMembers, wire_.members}};
    const std::size_t count = node.inputs.size();
    const NodeId id = wire_.add_exchange(std::move(node), op);
    std::vector<ValueRef> made;
    for (std::size_t i = 0; i < count; ++i) made.push_back({id, static_cast<int>(i)});
    return made;
  }

  void sum(std::vector<VariableGradient>& gradients, std::size_t width, const std::string& name) {
    std::vector<ValueRef> values;
    for (const VariableGradient& gradient : gradients) values.push_back(gradient.dense);
    const std::size_t own = values.size();
    const bool narrows = wire_.dtype != DType::Float32;
    if (narrows && own > 0)
      values = cast_together(graph_, std::move(values), wire_.dtype, name + "/narrowed");
    const bool gathers = wire_.gathers || narrows;
    while (values.size() < (gathers ? std::max<std::size_t>(width, 1) : 1))
      values.push_back(nothing(gathers ? wire_.dtype : DType::Float32, name));
    values = exchange(std::move(values), gathers ? "braid.GroupGather" : "braid.GroupAllReduce", name);
    values.resize(own);
    if (narrows && own > 0)
      values = cast_together(graph_, std::move(values), DType::Float32, name + "/widened");
    for (std::size_t i = 0; i < own; ++i)
      gradients[i].dense = gathers ? sum_of_members(graph_, values[i], name) : values[i];
  }

  void join_rows(VariableGradient* gradient, const std::string& name) {
    if (!gradient) {
      exchange({nothing(DType::Int64, name), nothing(DType::Float32, name)}, "braid.GroupGather", name);
      return;
    }
    require_rows_of_fixed_length(graph_, *gradient);
    IndexedSlices own = *gradient->slices;
    const DType indices = graph_.info(own.indices).dtype;
    if (indices != DType::Int64)
      own.indices = add_node(graph_, "Cast", name + "/widened", {own.indices},
                             {{"SrcT", indices}, {"DstT", DType::Int64}});
    const auto all = exchange({own.indices, own.values}, "braid.GroupGather", name);
    gradient->slices = IndexedSlices{behind_each_other(graph_, all[0], own.indices, name + "/indices"),
                                     behind_each_other(graph_, all[1], own.values, name + "/values")};
  }

  TrainingGraph& training_;
  Graph& graph_;
  const GroupExchanges& exchanges_;
  const GroupWire& wire_;
};

}  // namespace

GroupExchanges plan_group_exchanges(const std::vector<VariableGradient>& gradients,
                                    const std::vector<int>& stages, int count, std::int64_t bucket_bytes) {
  GroupExchanges found;
  for (int stage = 0; stage < count; ++stage) {
    std::vector<VariableGradient> own;
    for (std::size_t g = 0; g < gradients.size(); ++g)
      if (stages[g] == stage) own.push_back(gradients[g]);
    std::int64_t bytes = 0, filled = 0;
    std::size_t tables = 0, at = 0;
    for (const auto& bucket : bucket_gradients(own, bucket_bytes)) {
      const auto dense = static_cast<std::size_t>(std::ranges::count_if(bucket, is_dense));
      tables += bucket.size() - dense;
      for (const VariableGradient& gradient : bucket) bytes += is_dense(gradient) ? bytes_of(gradient) : 0;
      filled += dense > 0 ? 1 : 0;
      if (found.widths.size() <= at) found.widths.push_back(0);
      found.widths[at] = std::max(found.widths[at], dense);
      ++at;
    }
    found.tables = std::max(found.tables, tables);
    found.bytes.push_back(bytes);
    found.buckets.push_back(filled);
  }
  return found;
}

void sum_over_groups(TrainingGraph& training, const GroupExchanges& exchanges, std::int64_t bucket_bytes,
                     const GroupWire& wire) {
  GroupSums(training, exchanges, wire).run(bucket_bytes);
}

}  // namespace braid::worker
