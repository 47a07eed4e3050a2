// Input pipelines inside graphs, as TensorFlow 1 makes them: a queue of file names, a reader, and a queue of
// examples that batches. Threads ("queue runners"), which a GraphDef does not have, would fill the queues;
// here what is dequeued is computed before the graph runs, by doing what they would do, one element after
// another.
//   queues    FIFOQueue, PaddingFIFOQueue (of equal shapes), RandomShuffleQueue, with and without V2; a queue
//             filled by several nodes takes from each in turn
//   readers   TextLineReader (skip_header_lines), TFRecordReader, WholeFileReader, IdentityReader
//   epochs    a CountUpTo that an enqueue waits for limits how often it runs, else it repeats for ever
// The order of a RandomShuffleQueue is drawn from the seed, not TensorFlow's. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/tensor.h"

namespace braid {
class GraphDef;
}

namespace braid::cli {

/// The values of a graph that needs no queue.
using EvaluateGraph =
    std::function<std::vector<Tensor>(const GraphDef&, const std::vector<std::string>& names)>;

/// Puts what they give in place of the dequeuing and reading nodes that `roots` need; gives the new names of
/// their values. Throws: InvalidArgument (a queue that nothing fills, an unreadable file, one that ends too
/// early: the node), and what `evaluate` throws.
std::map<std::string, std::string> run_queues(GraphDef& graph, const std::vector<std::string>& roots,
                                              std::uint64_t seed, const EvaluateGraph& evaluate);

}  // namespace braid::cli
