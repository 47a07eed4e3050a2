// The values that a checkpoint gives to variables and slots of a store, whichever strategy wrote it, by their
// names or those that they had before. Thread rule: one object, one thread.
#pragma once

#include <map>
#include <string>

#include "base/checkpoint_values.h"
#include "engine/ir/tensor.h"

namespace braid::worker {

class RestoredValues {
 public:
  /// `former_names`: of variables, by the names that they have now. Both outlive it. Throws: DataLoss.
  RestoredValues(const CheckpointInfo& info, const std::map<std::string, std::string>& former_names)
      : values_(info), former_names_(former_names) {}

  /// Fills `value`, which is on the host; rows that the checkpoint does not have keep theirs. False: it has
  /// none of that name, which is logged. Throws: InvalidArgument where it has another type or shape.
  bool read(const std::string& name, Tensor& value) const;

 private:
  bool fill(const std::string& name, bool is_former, Tensor& value) const;
  bool fill_rows(const std::string& name, Tensor& value) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& has, const Tensor& value) const;

  const CheckpointValues values_;
  const std::map<std::string, std::string>& former_names_;
};

}  // namespace braid::worker
