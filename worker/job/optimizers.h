// The section `optimizer` of a job: defaults and formulas of each kind, and which variable has which. Thread
// rule: values and pure functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/optim.h"

namespace braid::proto {
class Job;
class Optimizer;
class OptimizerGroup;
}  // namespace braid::proto

namespace braid::worker {

/// What variables of a group have: the group's fields over those of `optimizer`, or over the defaults of the
/// group's kind, which are filled.
proto::Optimizer group_optimizer(const proto::Optimizer& optimizer, const proto::OptimizerGroup& group);

/// Which optimizer each variable has.
class Optimizers {
 public:
  /// REQUIRES: defaults are filled. Throws: InvalidArgument for a pattern that is none, naming the group.
  explicit Optimizers(const proto::Job& job);
  ~Optimizers();
  Optimizers(Optimizers&&) noexcept;
  Optimizers& operator=(Optimizers&&) noexcept;

  /// 0: those of no group; g: the g-th group of the job.
  int group_of(const std::string& variable) const;
  const OptimizerSpec& spec(int group) const { return specs_[static_cast<std::size_t>(group)]; }
  const OptimizerSpec& spec_of(const std::string& variable) const { return spec(group_of(variable)); }
  int groups() const { return static_cast<int>(specs_.size()) - 1; }
  bool frozen(const std::string& variable) const {
    return frozen_[static_cast<std::size_t>(group_of(variable))];
  }
  /// Throws: InvalidArgument for a group that none of the variables is in, naming it and them, and when all
  /// of them are frozen.
  void check_groups(const std::vector<std::string>& variables) const;

 private:
  struct Patterns;
  std::vector<OptimizerSpec> specs_;  // [0]: of no group
  std::vector<bool> frozen_;
  std::unique_ptr<Patterns> patterns_;
};

}  // namespace braid::worker
