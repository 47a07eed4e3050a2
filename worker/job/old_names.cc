#include "worker/job/old_names.h"

#include <fmt/format.h>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/job/field_path.h"
#include "worker/job/fields.h"

namespace braid::worker {
namespace {

/// "runtime.no_tf32" of "runtime.tf32".
std::string old_path(const JobField& field) {
  return field.path().substr(0, field.path().rfind('.') + 1) + field.old_name();
}

std::string last_name(const JobField& field) { return field.path().substr(field.path().rfind('.') + 1); }

}  // namespace

std::vector<std::string> take_new_names(proto::Job& job, std::string_view source) {
  std::vector<std::string> warnings;
  for (const JobField& field : job_fields()) {
    if (field.old_name().empty() || !is_set(job, old_path(field))) continue;
    const bool on = !switch_at(job, old_path(field));
    const FieldPlace old_place = field_place(job, old_path(field));
    old_place.message->GetReflection()->ClearField(old_place.message, old_place.field);
    const FieldPlace place = field_place(job, field.path());
    place.message->GetReflection()->SetBool(place.message, place.field, on);
    warnings.push_back(fmt::format("{}: {} is an old name; write {}: {}", source, old_path(field),
                                   last_name(field), on ? "true" : "false"));
  }
  return warnings;
}

void check_old_names(const proto::Job& job, std::string_view source) {
  for (const JobField& field : job_fields())
    if (!field.old_name().empty() && is_set(job, old_path(field)) && is_set(job, field.path()) &&
        switch_at(job, old_path(field)) == switch_at(job, field.path()))
      throw InvalidArgument(fmt::format("{}: {} and {}, its old name, contradict each other", source,
                                        field.path(), old_path(field)));
}

}  // namespace braid::worker
