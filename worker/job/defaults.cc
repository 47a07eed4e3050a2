// fill_job_defaults: what the table of fields names, where the job says nothing.
#include <google/protobuf/descriptor.h>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/job/field_path.h"
#include "worker/job/fields.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

void set_number(pb::Message& message, const pb::FieldDescriptor& field, double value) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, static_cast<std::int32_t>(value));
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, &field, static_cast<std::int64_t>(value));
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, static_cast<std::uint32_t>(value));
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, static_cast<std::uint64_t>(value));
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.SetFloat(&message, &field, static_cast<float>(value));
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field, value);
    case pb::FieldDescriptor::CPPTYPE_ENUM:  // one that is a number with names for some
      return reflection.SetEnumValue(&message, &field, static_cast<int>(value));
    default:
      throw Internal("job field '" + field.full_name() + "' is no number");
  }
}

void set(pb::Message& message, const pb::FieldDescriptor& field, const JobField::Default& fallback) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (fallback.kind) {
    case JobField::Default::Kind::Switch:
      return reflection.SetBool(&message, &field, fallback.on);
    case JobField::Default::Kind::Number:
      return set_number(message, field, fallback.number);
    case JobField::Default::Kind::Name:
      return reflection.SetEnum(&message, &field, field.enum_type()->FindValueByName(fallback.text));
    default:
      break;
  }
}

}  // namespace

void fill_job_defaults(proto::Job& job) {
  for (const JobField& field : job_fields()) {
    const JobField::Default& fallback = field.fallback();
    if (fallback.kind == JobField::Default::Kind::None ||
        fallback.kind == JobField::Default::Kind::Elsewhere || is_set(job, field.path()))
      continue;
    if (fallback.set) {
      fallback.set(job);
      continue;
    }
    const FieldPlace place = field_place(job, field.path());
    set(*place.message, *place.field, fallback);
  }
}

}  // namespace braid::worker
