// What the variables of a graph begin with: a checkpoint's values, or what the graph's own initializers
// assign. An initializer that fills with a constant or draws random numbers is recognised, so that rows of a
// table can be made where they are first seen; others are computed once. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/init.h"
#include "engine/ir/graph.h"
#include "worker/model/model_file.h"
#include "worker/model/problems.h"

namespace braid::proto {
class TrainedGraph;
}

namespace braid::worker {

/// One variable's: a rule, or its elements.
using InitialValue = std::variant<InitSpec, Tensor>;

/// The rule by which a value is made, where it is one that InitSpec has: constants; and uniform, normal and
/// truncated normal numbers times a scale plus a shift. What is computed so begins with other numbers than in
/// TensorFlow, of the same distribution.
std::optional<InitSpec> recognised_init(const Graph& graph, ValueRef value);
/// The same of elements that are all alike.
std::optional<InitSpec> recognised_init(const Tensor& tensor);

/// What the checkpoint inside a SavedModel's folder gives the variables of its graph, by their names there;
/// nothing for other files. Throws: InvalidArgument, DataLoss.
std::map<std::string, Tensor> saved_variables(const std::string& graph_file);

class InitialValues {
 public:
  /// `file` as it was read, without feeds; outlives it. Reads the checkpoint that there is. `seed`: of
  /// initializers that are computed. Throws: InvalidArgument, DataLoss (the checkpoint).
  InitialValues(const proto::TrainedGraph& asked, const ModelFile& file, std::uint64_t seed);

  /// Whether a file or the graph has a value for the variable.
  bool has(const std::string& variable) const {
    return stored_.contains(variable) || initializers_.contains(variable);
  }
  /// A warning that names those of `variables` that the job's initial_file lacks; empty where it has all, or
  /// the job names no file. A file that has none of them is a problem.
  std::string lacking(const std::vector<std::string>& variables, Problems& problems) const;
  /// Nothing where neither a file nor the graph has one, with a problem that says why.
  std::optional<InitialValue> value_of(const VariableInfo& variable, Problems& problems) const;
  /// The number that all of a variable begins with, by the graph, else by the file; nothing for others.
  std::optional<float> constant_of(const std::string& variable) const;

 private:
  std::optional<Tensor> stored(const VariableInfo& variable, Problems& problems) const;
  std::optional<std::string> initializer_of(const std::string& variable) const;

  const ModelFile& file_;
  const std::uint64_t seed_;
  std::string stored_in_;                 // the checkpoint; empty: none
  bool is_named_ = false;                 // by the job
  std::map<std::string, Tensor> stored_;  // by variable
  std::map<std::string, std::string> initializers_;
};

}  // namespace braid::worker
