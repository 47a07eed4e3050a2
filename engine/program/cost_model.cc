#include "engine/program/cost_model.h"

#include <algorithm>

#include "engine/program/plan.h"

namespace braid {
namespace {

double bytes_of(const OutputInfo& info) {
  if (!info.shape.is_static()) return 0;
  return static_cast<double>(info.shape.elements()) * static_cast<double>(dtype_size(info.dtype));
}

}  // namespace

Cost modelled_cost(const Graph& graph, const Node& node) {
  std::vector<OutputInfo> inputs;
  std::vector<const Tensor*> values;
  for (const ValueRef input : node.inputs) {
    inputs.push_back(graph.info(input));
    values.push_back(graph.known_value(input));
  }
  if (node.op->cost) return node.op->cost(InferContext(node, inputs, values), node.outputs);
  Cost cost;
  for (const OutputInfo& info : inputs) cost.bytes += bytes_of(info);
  for (const OutputInfo& info : node.outputs) cost.bytes += bytes_of(info);
  return cost;
}

Cost modelled_cost(const Program& program, const ProgramOp& op) {
  switch (op.kind) {
    case OpKind::Kernel:
      return modelled_cost(program.graph, program.graph.node(op.node));
    case OpKind::Copy:
      return {0,
              2 * static_cast<double>(program.buffers[static_cast<std::size_t>(op.outputs[0].buffer)].bytes)};
    default:
      return {};
  }
}

double modelled_us(const Cost& cost, Lane lane, Domain domain) {
  const CostModel& m = cost_model(domain);
  if (lane == Lane::Pull || lane == Lane::Push || lane == Lane::Comm)
    return m.network_us + cost.bytes / m.network_bytes_per_us;
  if (lane == Lane::HostToDevice || lane == Lane::DeviceToHost)
    return m.kernel_us + cost.bytes / 2 / m.link_bytes_per_us;  // read on one side, written on the other
  return m.kernel_us + std::max(cost.flops / m.flops_per_us, cost.bytes / m.bytes_per_us);
}

void model_costs(Plan& plan) {
  const MeasuredCosts* measured = plan.options.streams.costs.get();
  for (ProgramOp& op : plan.program.ops) {
    if (measured) {
      const auto known = measured->find(op.name);
      if (known != measured->end()) {
        op.cost_us = known->second;
        continue;
      }
    }
    if (op.kind == OpKind::Join) continue;
    const Lane lane = op.kind == OpKind::Kernel ? plan.program.graph.node(op.node).op->lane : Lane::Compute;
    op.cost_us = modelled_us(modelled_cost(plan.program, op), lane, op.domain);
  }
}

}  // namespace braid
