#include "worker/job/job_checker.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/job/field_path.h"
#include "worker/job/fields.h"

namespace braid::worker {

void JobChecker::require(bool good, const std::string& what) const {
  if (!good) throw InvalidArgument((job_.name().empty() ? "" : "job '" + job_.name() + "': ") + what);
}

void JobChecker::fields(std::string_view prefix) const {
  for (const JobField& field : job_fields())
    if (!field.is_of_column() && field.path().starts_with(prefix)) check(field);
}

void JobChecker::fields_of_group(const proto::OptimizerGroup& group, const std::string& place) const {
  constexpr std::string_view kPrefix = "optimizer.";
  for (const JobField& field : job_fields()) {
    if (!field.range() || !field.path().starts_with(kPrefix)) continue;
    const std::string name = field.path().substr(kPrefix.size());
    if (!group.GetDescriptor()->FindFieldByName(name)) continue;
    for (const double value : numbers_at(group, name))
      in_range(fmt::format("{}.{}", place, name), *field.range(), value);
  }
}

void JobChecker::fields_of_column(const proto::Column& column) const {
  constexpr std::string_view kPrefix = "input.columns.";
  for (const JobField& field : job_fields()) {
    if (!field.range() || !field.is_of_column()) continue;
    const std::string name = field.path().substr(kPrefix.size());
    if (!is_set(column, name)) continue;
    for (const double value : numbers_at(column, name))
      in_range(fmt::format("input.columns: {} of column '{}'", name, column.name()), *field.range(), value);
  }
}

void JobChecker::check(const JobField& field) const {
  if (!is_set(job_, field.path())) {
    require(!field.is_needed(), field.path() + " is missing" + known(field.path()));
    if (const Reason& reason = field.needed_because())
      if (const std::string why = reason({job_}); !why.empty())
        require(false, why + " needs " + field.path());
    return;
  }
  if (!field.range()) return;
  for (const double value : numbers_at(job_, field.path())) in_range(field.path(), *field.range(), value);
}

void JobChecker::in_range(const std::string& path, const Range& range, double value) const {
  const bool no_number = std::isinf(range.most) && !std::isfinite(value);
  require(!no_number, fmt::format("{} must be finite, got {}", path, value));
  require(range.contains(value), fmt::format("{} {}, got {}", path, range.says, value));
}

/// " (IDX, CSV or CRITEO)" of an enum.
std::string JobChecker::known(const std::string& path) const {
  const std::vector<std::string> names = enum_names(job_, path);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace braid::worker
