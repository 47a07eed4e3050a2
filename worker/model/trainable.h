// Which variables of a graph may be trained. Thread rule: values.
#pragma once

#include <string>

#include "engine/import/meta_graph.h"
#include "worker/model/def_graph.h"
#include "worker/model/patterns.h"

namespace braid::proto {
class TrainedGraph;
}

namespace braid::worker {

class TrainableVariables {
 public:
  /// `facts` outlives it. Throws: InvalidArgument (a pattern that is none).
  TrainableVariables(const proto::TrainedGraph& asked, const MetaGraphFacts& facts);

  /// By the job's patterns, else by what the file says, else all.
  bool allows(const std::string& variable) const;

 private:
  const NamePattern trainable_, frozen_;
  const MetaGraphFacts& facts_;
};

/// Whether the graph has a variable of that name that holds floats.
bool is_float_variable(const NodeIndex& index, const std::string& name);

}  // namespace braid::worker
