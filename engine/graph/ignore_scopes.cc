// Where the options say so, ids that were written on nodes go before anything looks at them: they decide no
// stream and keep no siblings apart.
#include <string>

#include "engine/graph/passes.h"

namespace braid {

void ignore_scopes(Plan& plan) {
  if (plan.options.streams.scopes != Scopes::Ignored) return;
  Graph& graph = plan.program.graph;
  int ids = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    int& stream = graph.mutable_node(id).stream;
    ids += stream != kNoStream && !graph.node(id).removed;
    stream = kNoStream;
  }
  plan.note(Severity::Info, ids > 0 ? "the ids of " + std::to_string(ids) + " nodes are ignored"
                                    : std::string("no node has an id that could be ignored"));
}

}  // namespace braid
