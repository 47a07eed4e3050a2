// Shapes, types and compile-time values for this program's feeds (engine/ir/infer.h does the work; what it
// leaves is folded by fold_constants.h).
#include "base/error.h"
#include "engine/graph/fold_constants.h"
#include "engine/graph/passes.h"

namespace braid {

void infer_shapes(Plan& plan) {
  const Graph& graph = plan.program.graph;
  std::vector<FeedInfo> live;
  for (const FeedInfo& feed : plan.feeds)
    if (!graph.node(feed.value.node).removed) live.push_back(feed);
  infer_graph(plan.program.graph, live);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!node.removed && node.op->role == OpRole::Placeholder && !plan.is_fed(node))
      throw InvalidArgument(place_of(node) + ": it is needed but not fed");
  }
  fold_constants(plan);
}

}  // namespace braid
