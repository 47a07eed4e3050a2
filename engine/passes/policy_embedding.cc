// EMBEDDING: the branch of each embedding table has a stream of its own. A branch is found by structure: the
// ops that gather from one sparse variable, what prepares their indices and nothing else, what follows from
// them and nothing else, and the backward ops of all these. Branches go round the streams 1 to N - 1 in the
// order of the variables' handles; the rest of the graph is on stream 0.
#include <map>

#include "engine/ops/op.h"
#include "engine/passes/stream_policy.h"

namespace braid {
namespace {

constexpr int kNoBranch = -1;

class Branches {
 public:
  Branches(const Plan& plan, const Dag& dag)
      : plan_(plan), dag_(dag), branch_(static_cast<std::size_t>(dag.size()), kNoBranch) {}

  std::vector<int> find() {
    const std::vector<int> order = dag_.rank_order();
    for (const int op : order) seed(op);
    for (const int op : order) join(op, dag_.deps(op));
    for (auto at = order.rbegin(); at != order.rend(); ++at) join(*at, dag_.users(*at));
    if (plan_.options.streams.grad_follows_forward) follow_forward();
    for (const int op : order) join(op, dag_.deps(op));
    return branch_;
  }

 private:
  int& branch(int op) { return branch_[static_cast<std::size_t>(op)]; }

  void seed(int op) {
    if (plan_.op(op).kind != OpKind::Kernel) return;
    const Node& node = *plan_.node_of(op);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Operand& in = plan_.op(op).inputs[i];
      if (in.access != Access::Read || in.buffer < 0 || plan_.buffer(in.buffer).kind != BufferKind::Variable)
        continue;
      if (plan_.program.graph.info(node.inputs[i]).dtype != DType::Resource) continue;  // all of it, not rows
      const VariableInfo variable = variable_of(plan_.program.graph, node.inputs[i]);
      if (variable.sparse)
        branch(op) = numbers_.try_emplace(variable.name, static_cast<int>(numbers_.size())).first->second;
    }
  }

  /// An op whose neighbours on one side are all of one branch belongs to it.
  void join(int op, const std::vector<int>& neighbours) {
    if (branch(op) != kNoBranch || neighbours.empty()) return;
    const int first = branch(neighbours.front());
    for (const int other : neighbours)
      if (branch(other) != first) return;
    branch(op) = first;
  }

  void follow_forward() {
    std::map<NodeId, int> by_node;
    for (int op = 0; op < dag_.size(); ++op)
      if (branch(op) != kNoBranch && plan_.op(op).kind == OpKind::Kernel)
        by_node[plan_.op(op).node] = branch(op);
    for (int op = 0; op < dag_.size(); ++op) {
      const Node* node = plan_.node_of(op);
      if (branch(op) != kNoBranch || !node || node->forward_of == kNoNode) continue;
      const auto forward = by_node.find(node->forward_of);
      if (forward != by_node.end() && plan_.program.graph.node(node->forward_of).include_grad)
        branch(op) = forward->second;
    }
  }

  const Plan& plan_;
  const Dag& dag_;
  std::vector<int> branch_;
  std::map<std::string, int> numbers_;  // by variable
};

}  // namespace

std::vector<int> spread_embeddings(const Plan& plan, const StreamProblem& problem) {
  const std::vector<int> branches = Branches(plan, problem.dag).find();
  std::vector<int> streams = problem.fixed;
  const int others = problem.compute_streams - 1;
  for (std::size_t op = 0; op < streams.size(); ++op)
    if (streams[op] == kNoStream)
      streams[op] = branches[op] == kNoBranch || others == 0 ? 0 : 1 + branches[op] % others;
  for (std::size_t op = 0; op < streams.size(); ++op)
    if (problem.fixed[op] == kNoStream) streams[op] = streams[static_cast<std::size_t>(problem.leader[op])];
  return streams;
}

}  // namespace braid
