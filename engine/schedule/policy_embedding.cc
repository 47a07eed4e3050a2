// EMBEDDING: the branch of each embedding table has a stream of its own. A branch is found by structure: the
// ops that gather from one variable, or that take the rows which one pull has brought from a table elsewhere;
// what prepares their indices and nothing else, what follows from them and nothing else, and the backward ops
// of all these. Branches go round the streams 1 to N - 1 in the order in which the graph was written; the
// rest of the graph is on stream 0.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "engine/ir/op.h"
#include "engine/schedule/stream_policy.h"

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

  /// REQUIRES: find() has found none.
  std::string why_none() const {
    return meeting_ == 0 ? "nothing gathers from a table"
                         : fmt::format("all gathers are of several tables at once ({} ops)", meeting_);
  }

 private:
  int& branch(int op) { return branch_[static_cast<std::size_t>(op)]; }

  void seed(int op) {
    const ProgramOp& made = plan_.op(op);
    if (made.kind != OpKind::Kernel || made.async) return;
    int table = -1;
    for (std::size_t i = 0; i < made.inputs.size(); ++i) {
      if (!brings_rows(op, i)) continue;
      if (table >= 0 && table != made.inputs[i].buffer) {  // where branches meet
        ++meeting_;
        return;
      }
      table = made.inputs[i].buffer;
    }
    if (table >= 0) branch(op) = numbers_.try_emplace(table, static_cast<int>(numbers_.size())).first->second;
  }

  /// Whether the input is a table that the op gathers from, or rows that were pulled from one.
  bool brings_rows(int op, std::size_t input) const {
    const Operand& in = plan_.op(op).inputs[input];
    if (in.access != Access::Read || in.buffer < 0) return false;
    const Node& node = *plan_.node_of(op);
    if (plan_.buffer(in.buffer).kind == BufferKind::Variable) {
      if (plan_.program.graph.info(node.inputs[input]).dtype == DType::Resource) return true;
      return static_cast<int>(input) == node.op->gathers.table;
    }
    if (in.producer < 0 || plan_.op(in.producer).kind != OpKind::Kernel) return false;
    return plan_.node_of(in.producer)->op->lane == Lane::Pull;
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
  std::map<int, int> numbers_;  // by the buffer of a table or of pulled rows
  int meeting_ = 0;             // ops that gather from several tables
};

/// Of the ops of branches, how many are on a stream of their own now; whoever asks for the policy has to see
/// when it does nothing.
std::string what_moved(const StreamProblem& problem, const std::vector<int>& branches,
                       const std::vector<int>& streams, int found) {
  int moved = 0, given = 0;
  for (std::size_t op = 0; op < streams.size(); ++op) {
    if (branches[op] == kNoBranch) continue;
    given += problem.fixed[op] != kNoStream;
    moved += problem.fixed[op] == kNoStream && streams[op] != 0;
  }
  if (moved > 0)
    return fmt::format("moved {} ops of {} branch{} onto streams 1 to {}", moved, found,
                       found == 1 ? "" : "es", std::min(found, problem.compute_streams - 1));
  if (problem.compute_streams == 1) return "moved nothing: there is one compute stream";
  return fmt::format("moved nothing: the {} ops of its {} branch{} have streams already", given, found,
                     found == 1 ? "" : "es");
}

}  // namespace

std::vector<int> spread_embeddings(Plan& plan, const StreamProblem& problem) {
  Branches finder(plan, problem.dag);
  const std::vector<int> branches = finder.find();
  const int found = branches.empty() ? 0 : 1 + *std::max_element(branches.begin(), branches.end());
  std::vector<int> streams = problem.fixed;
  const int others = problem.compute_streams - 1;
  for (std::size_t op = 0; op < streams.size(); ++op)
    if (streams[op] == kNoStream)
      streams[op] = branches[op] == kNoBranch || others == 0 ? 0 : 1 + branches[op] % others;
  for (std::size_t op = 0; op < streams.size(); ++op)
    if (problem.fixed[op] == kNoStream) streams[op] = streams[static_cast<std::size_t>(problem.leader[op])];
  plan.note(Severity::Info, "EMBEDDING " + (found == 0 ? "moved nothing: " + finder.why_none()
                                                       : what_moved(problem, branches, streams, found)));
  return streams;
}

}  // namespace braid
