#include "worker/job/unused_fields.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include "proto/job.pb.h"
#include "worker/job/field_path.h"
#include "worker/job/field_reasons.h"
#include "worker/job/fields.h"
#include "worker/job/job.h"
#include "worker/job/optimizers.h"

namespace braid::worker {
namespace {

/// The first reason of several that holds.
std::string idle_reason(const JobField& field, const FieldScope& scope) {
  for (const Reason& reason : field.idle_reasons())
    if (std::string why = reason(scope); !why.empty()) return why;
  return {};
}

/// Whether a switch is as it is without a word: the job's defaults may have been filled.
bool is_default(const proto::Job& job, const JobField& field) {
  const JobField::Default& fallback = field.fallback();
  return fallback.kind == JobField::Default::Kind::Switch && switch_at(job, field.path()) == fallback.on;
}

std::string text_at(proto::Job job, const std::string& path) {
  const FieldPlace place = field_place(job, path);
  if (place.field->is_repeated()) return "repeated";
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(*place.message, place.field, -1, &text);
  return text;
}

proto::Job without(proto::Job job, const std::string& path) {
  const FieldPlace place = field_place(job, path);
  place.message->GetReflection()->ClearField(place.message, place.field);
  return job;
}

void find_in_columns(const proto::Job& job, std::vector<std::string>& found) {
  constexpr std::string_view kPrefix = "input.columns.";
  for (const proto::Column* column : columns_of(job))
    for (const JobField& field : job_fields()) {
      if (!field.is_of_column()) continue;
      const std::string name = field.path().substr(kPrefix.size());
      if (!is_set(*column, name)) continue;
      if (const std::string why = idle_reason(field, {job, column}); !why.empty())
        found.push_back(fmt::format("{} of column '{}' has no effect: {}", name, column->name(), why));
    }
}

/// A field of a group does what it does in an optimizer that is as the group's.
void find_in_groups(const proto::Job& job, std::vector<std::string>& found) {
  constexpr std::string_view kPrefix = "optimizer.";
  for (int g = 0; g < job.optimizer().group_size(); ++g) {
    const proto::OptimizerGroup& group = job.optimizer().group(g);
    const std::string place = fmt::format("{}group[{}].", kPrefix, g);
    proto::Job as_job;
    *as_job.mutable_optimizer() = group_optimizer(job.optimizer(), group);
    for (const JobField& field : job_fields()) {
      const std::string& path = field.path();
      if (!path.starts_with(kPrefix)) continue;
      const std::string name = path.substr(kPrefix.size());
      if (!group.GetDescriptor()->FindFieldByName(name) || !is_set(group, name)) continue;
      std::string why = group.frozen() ? place + "frozen is set" : idle_reason(field, {as_job});
      if (why.starts_with("optimizer.kind") && group.has_kind()) why = place + why.substr(kPrefix.size());
      if (!why.empty()) found.push_back(place + name + " has no effect: " + why);
    }
  }
}

}  // namespace

std::vector<std::string> unused_fields(const proto::Job& job) {
  std::vector<std::string> found;
  for (const JobField& field : job_fields()) {
    if (field.is_of_column() || !is_set(job, field.path())) continue;
    if (const std::string why = idle_reason(field, {job}); !why.empty())
      found.push_back(field.path() + " has no effect: " + why);
  }
  find_in_columns(job, found);
  find_in_groups(job, found);
  return found;
}

void clear_unused_defaults(proto::Job& job) {
  proto::Job cleared = job;
  for (const JobField& field : job_fields()) {
    if (field.is_of_column() || !is_set(cleared, field.path()) || idle_reason(field, {job}).empty()) continue;
    proto::Job anew = without(job, field.path());
    fill_job_defaults(anew);
    if (is_set(anew, field.path()) && text_at(anew, field.path()) == text_at(job, field.path()))
      cleared = without(std::move(cleared), field.path());
  }
  job = std::move(cleared);
}

std::vector<std::string> unused_device_fields(const proto::Job& job, SettingsFor purpose) {
  std::vector<std::string> found;
  if (job.runtime().device() == proto::Runtime::CUDA) return found;
  for (const JobField& field : job_fields()) {
    const auto& rule = field.host_rule();
    if (!rule || !is_set(job, field.path()) || is_default(job, field)) continue;
    if (rule->in_training_only && purpose != SettingsFor::Training) continue;
    if (rule->also && rule->also({job}).empty()) continue;
    found.push_back(field.path() + " has no effect: the device is the CPU");
  }
  return found;
}

}  // namespace braid::worker
