// The nodes of input pipelines inside graphs: queues, what fills and empties them, readers of records. What
// they are run by is in queue_runners.h. Thread rule: pure functions.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace braid {
class GraphDef;
class NodeDef;
}  // namespace braid

namespace braid::cli {

/// "FIFOQueueV2" and "FIFOQueue" are one.
std::string_view plain(std::string_view op);
/// Whether it takes elements from a queue, or records from a reader.
bool is_source(const NodeDef& node);

/// The nodes that no program executes and that `braid graph run` does without: queues that something fills,
/// what fills them, readers, counters of epochs. What they give becomes placeholders, where the graph says
/// its types, so that what reads it can be checked.
std::set<std::string> set_queues_aside(GraphDef& graph);

}  // namespace braid::cli
