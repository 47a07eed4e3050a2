// The values that a checkpoint gives to the variables of a graph, whichever strategy wrote it. Of a sparse
// table, which parameter servers hold by rows, the checkpoint has the rows that training has touched; the
// others have their initial values, which follow from the job's seed. A variable that the checkpoint knows by
// its former name only has that one's values. Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/checkpoint_values.h"
#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"

namespace braid::worker {

/// What older checkpoints call the variable (attribute _former_name of its handle); empty: the same.
std::string former_name(const Graph& graph, const VariableInfo& variable);

/// Whether values of shape `stored` under a variable's former name are its own: all of them, or, of a table
/// that had more rows, the first.
bool holds_former(const Shape& stored, const Shape& shape);

class StoredVariables {
 public:
  /// `seed`: the job's; without one, that of the input cursors in the manifest, else 0.
  /// Throws: DataLoss.
  explicit StoredVariables(const CheckpointInfo& info, std::optional<std::uint64_t> seed = std::nullopt);

  /// On the host, with the type and shape that `variable` of `graph` has. Throws: InvalidArgument with the
  /// step and the name: the checkpoint does not have it, or has it with another type or shape; DataLoss.
  Tensor value(const Graph& graph, const VariableInfo& variable) const;

 private:
  void fill(const std::string& name, bool is_former, Tensor& tensor) const;
  void fill_rows(const VariableInfo& variable, const std::string& name, Tensor& tensor) const;

  const CheckpointValues values_;
  const std::uint64_t seed_;
};

}  // namespace braid::worker
