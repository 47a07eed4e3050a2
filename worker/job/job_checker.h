// What refuses a job, in its name where it has one, and what the table of fields (fields.h) says of each.
// Private to the checks of worker/job. Thread rule: const is safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace braid::proto {
class Column;
class Job;
class OptimizerGroup;
}  // namespace braid::proto

namespace braid::worker {

class JobField;
struct Range;

class JobChecker {
 public:
  /// `job` outlives it.
  explicit JobChecker(const proto::Job& job) : job_(job) {}

  /// Throws: InvalidArgument with `what`, unless it is good.
  void require(bool good, const std::string& what) const;

  /// What the table says of the fields that begin so. Throws: InvalidArgument.
  void fields(std::string_view prefix) const;
  /// What it says of the ranges of an optimizer's fields holds for those of a group, which is at `place`.
  void fields_of_group(const proto::OptimizerGroup& group, const std::string& place) const;
  /// The same of a column of the schema.
  void fields_of_column(const proto::Column& column) const;

 private:
  void check(const JobField& field) const;
  void in_range(const std::string& path, const Range& range, double value) const;
  std::string known(const std::string& path) const;

  const proto::Job& job_;
};

}  // namespace braid::worker
