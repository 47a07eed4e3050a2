// What a step does for the step behind it: values of the next batch. Their nodes are copies of those that
// make them of this batch's columns, behind placeholders of their own, which the step is fed with (class
// StepFeeds of worker/input/step_feeds.h). Thread rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/program/options.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Attribute of a placeholder: the column that it is of the next batch.
inline constexpr const char* kNextOf = "_next_of";

/// Whether the batch of a step is there, or not long in coming, when the step before it begins: a stage makes
/// it, of rows that are there.
bool looks_ahead(const proto::Job& job);

class NextBatch {
 public:
  /// `graph` outlives it.
  explicit NextBatch(Graph& graph) : graph_(graph) {}

  /// Whether the value follows from columns alone, by nodes that a program can run: no variables, nothing
  /// random, no text.
  bool can_make(ValueRef value) const;
  /// The same of the next batch. REQUIRES: can_make().
  ValueRef make(ValueRef value);

 private:
  NodeId copy(NodeId id);

  Graph& graph_;
  std::map<NodeId, NodeId> copies_;
};

/// The column that this feed is of the next batch; empty: it is of the step's own.
std::string next_column(const Graph& graph, const std::string& feed);

/// Adds the placeholders of the next batch to a step's feeds, behind the others. `columns`: of a batch.
void add_next_feeds(const Graph& graph, const std::vector<FeedSpec>& columns, CompileRequest& request);

/// Attribute of the node that keeps what a step has made for the next one.
inline constexpr const char* kKeepsNext = "_keeps_next";

/// What runs before the first step, since there is no step before that did it.
struct BeforeFirst {
  Graph graph;
  CompileRequest request;
};
/// Nothing where the steps of that graph do nothing ahead.
std::optional<BeforeFirst> before_first_step(const Graph& step, const std::vector<FeedSpec>& columns);

}  // namespace braid::worker
