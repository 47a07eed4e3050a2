#include "worker/model/trainable.h"

#include "proto/job.pb.h"

namespace braid::worker {

TrainableVariables::TrainableVariables(const proto::TrainedGraph& asked, const MetaGraphFacts& facts)
    : trainable_("trainable", asked.trainable()), frozen_("frozen", asked.frozen()), facts_(facts) {}

bool TrainableVariables::allows(const std::string& variable) const {
  if (frozen_.is_set() && frozen_.matches(variable)) return false;
  if (trainable_.is_set()) return trainable_.matches(variable);
  const auto& said = facts_.trainable;
  if (!said || said->contains(variable)) return true;
  // A SavedModel makes names that several objects have different: kernel, kernel_1.
  const std::size_t suffix = variable.rfind('_');
  const bool numbered = suffix != std::string::npos && suffix + 1 < variable.size() &&
                        variable.find_first_not_of("0123456789", suffix + 1) == std::string::npos;
  return numbered && said->contains(variable.substr(0, suffix));
}

bool is_float_variable(const NodeIndex& index, const std::string& name) {
  for (const std::string_view node_name : index.names()) {
    const NodeDef& node = *index.find(node_name);
    if (!is_variable(node) || variable_name(node) != name) continue;
    const auto dtype = node.attr().find("dtype");
    const int type = dtype == node.attr().end() ? 0 : dtype->second.type();
    return type == DT_FLOAT || type == DT_DOUBLE || type == DT_HALF || type == DT_BFLOAT16;
  }
  return false;
}

}  // namespace braid::worker
