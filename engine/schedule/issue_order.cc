// The order in which ops are issued: one topological order for the whole program, of which each stream takes
// its part, so the streams can never wait for each other in a circle.
//
// With several compute streams each starts, of what is ready, the op with the longest path after it; ops are
// issued in the order in which they are predicted to start. One compute stream beside lanes (pulls,
// pushes, collectives) issues first what has the longest tail after it, so that communication begins early;
// where the order of several streams is predicted to be faster, since it does other work until a lane has
// brought what the longest tail needs, it takes that. Alone, a stream takes the same time in any order, so
// there the order in which the graph was written is kept: it frees memory early, where the others would put
// off what is off the critical path, such as weight gradients.
// The same order is kept beside copies of an offload, which are there to save memory.
#include <algorithm>

#include "engine/ir/offload_attrs.h"
#include "engine/schedule/dag.h"
#include "engine/schedule/passes.h"

namespace braid {
namespace {

constexpr double kWorthwhile = 0.99;  // of the step's time

std::vector<int> order_beside_lanes(const Dag& dag, const std::vector<int>& streams, int count) {
  std::vector<int> delivery = dag.delivery_order(), listed = list_order(dag, streams, count);
  const double faster = predict(dag, listed, streams, count).end;
  return faster < kWorthwhile * predict(dag, delivery, streams, count).end ? listed : delivery;
}

/// Whether copies of what is offloaded share the memory of the step.
bool offloads(const Plan& plan) {
  for (int op = 0; op < plan.ops(); ++op)
    if (const Node* node = plan.node_of(op); node && node->attrs.get(kInArena, false)) return true;
  return false;
}

std::vector<int> choose_order(const Plan& plan) {
  std::vector<char> used(plan.program.streams.size(), 0);
  for (const ProgramOp& op : plan.program.ops) used[static_cast<std::size_t>(op.stream)] = 1;
  const auto compute = std::count(used.begin(), used.begin() + plan.program.compute_streams, 1);
  const auto all = std::count(used.begin(), used.end(), 1);
  const Dag dag(plan);
  if (all == 1 || (compute <= 1 && offloads(plan))) return dag.rank_order();
  std::vector<int> streams;
  for (const ProgramOp& op : plan.program.ops) streams.push_back(op.stream);
  const auto count = static_cast<int>(plan.program.streams.size());
  return compute > 1 ? list_order(dag, streams, count) : order_beside_lanes(dag, streams, count);
}

}  // namespace

void set_issue_order(Plan& plan) {
  Program& program = plan.program;
  const std::vector<int> order = choose_order(plan);
  std::vector<int> position(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    position[static_cast<std::size_t>(order[i])] = static_cast<int>(i);

  std::vector<ProgramOp> sorted;
  sorted.reserve(order.size());
  for (const int op : order) sorted.push_back(std::move(plan.op(op)));
  program.ops = std::move(sorted);
  for (int i = 0; i < plan.ops(); ++i) {
    ProgramOp& op = plan.op(i);
    for (int& dep : op.deps) dep = position[static_cast<std::size_t>(dep)];
    std::sort(op.deps.begin(), op.deps.end());
    for (Operand& in : op.inputs)
      if (in.producer >= 0) in.producer = position[static_cast<std::size_t>(in.producer)];
  }
  plan.reads.clear();  // its op numbers are no longer valid

  const Dag dag(plan);
  program.stats.critical_path = dag.critical_path();
  std::vector<int> streams(order.size()), serial(order.size(), 0), in_order(order.size());
  for (int i = 0; i < plan.ops(); ++i) {
    streams[static_cast<std::size_t>(i)] = plan.op(i).stream;
    in_order[static_cast<std::size_t>(i)] = i;
    // Serially, the lanes stay: what is compared is the number of compute streams.
    if (plan.op(i).stream >= program.compute_streams) serial[static_cast<std::size_t>(i)] = plan.op(i).stream;
  }
  const int count = static_cast<int>(program.streams.size());
  program.stats.step_us = predict(dag, in_order, streams, count).end;
  program.stats.serial_us = predict(dag, in_order, serial, count).end;
  program.stats.critical_path_us =
      program.stats.critical_path.empty() ? 0 : dag.priority(program.stats.critical_path.front());
}

}  // namespace braid
