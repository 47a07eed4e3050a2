// What each variable of a graph is to a job: trained or not, a table or not, and what it begins with, written
// on its handles as the engine's attributes. Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/model/graph_model.h"
#include "worker/model/initial_values.h"
#include "worker/model/problems.h"
#include "worker/model/trainable.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct DecidedVariables {
  std::map<std::string, Tensor> initial;  // of those whose first values no rule makes
  std::vector<GraphModelReport::Variable> found;
};

/// `predict`: the graph that predicts, or null: the same. Variables that it alone reads become constants
/// there, since no training step and no checkpoint has them. `promoted`: constants that have become
/// variables. REQUIRES: gather_from_variables() and remove_unused() were called on both.
DecidedVariables decide_variables(const proto::Job& job, Graph& train, Graph* predict,
                                  const InitialValues& initial, const TrainableVariables& may_train,
                                  const std::map<std::string, Tensor>& promoted, Problems& problems);

}  // namespace braid::worker
