#include "worker/job/field_path.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "base/error.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

const pb::FieldDescriptor& field_of(const pb::Message& message, std::string_view name) {
  const auto* field = message.GetDescriptor()->FindFieldByName(std::string(name));
  if (!field)
    throw Internal("no field '" + std::string(name) + "' in " + message.GetDescriptor()->full_name());
  return *field;
}

double number_of(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
  const pb::Reflection& reflection = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return list ? reflection.GetRepeatedInt32(message, &field, index)
                  : reflection.GetInt32(message, &field);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(list ? reflection.GetRepeatedInt64(message, &field, index)
                                      : reflection.GetInt64(message, &field));
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return list ? reflection.GetRepeatedUInt32(message, &field, index)
                  : reflection.GetUInt32(message, &field);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(list ? reflection.GetRepeatedUInt64(message, &field, index)
                                      : reflection.GetUInt64(message, &field));
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      return list ? reflection.GetRepeatedFloat(message, &field, index)
                  : reflection.GetFloat(message, &field);
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? reflection.GetRepeatedDouble(message, &field, index)
                  : reflection.GetDouble(message, &field);
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return reflection.GetEnumValue(message, &field);
    default:
      throw Internal("job field '" + field.full_name() + "' is no number");
  }
}

/// The last message of a path and its field there; no message where one on the way is absent.
struct Found {
  const pb::Message* message = nullptr;
  const pb::FieldDescriptor* field = nullptr;
};

Found find(const pb::Message& message, std::string_view path) {
  const std::size_t dot = path.find('.');
  const pb::FieldDescriptor& field = field_of(message, path.substr(0, dot));
  if (dot == std::string_view::npos) return {&message, &field};
  const pb::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated() || !reflection.HasField(message, &field)) return {};
  return find(reflection.GetMessage(message, &field), path.substr(dot + 1));
}

}  // namespace

bool is_set(const pb::Message& message, std::string_view path) {
  const auto [last, field] = find(message, path);
  if (!last) return false;
  const pb::Reflection& reflection = *last->GetReflection();
  return field->is_repeated() ? reflection.FieldSize(*last, field) > 0 : reflection.HasField(*last, field);
}

FieldPlace field_place(pb::Message& message, std::string_view path) {
  const std::size_t dot = path.find('.');
  const pb::FieldDescriptor& field = field_of(message, path.substr(0, dot));
  if (dot == std::string_view::npos) return {&message, &field};
  return field_place(*message.GetReflection()->MutableMessage(&message, &field), path.substr(dot + 1));
}

std::vector<double> numbers_at(const pb::Message& message, std::string_view path) {
  std::vector<double> numbers;
  if (!is_set(message, path)) return numbers;
  const auto [last, field] = find(message, path);
  const int count = field->is_repeated() ? last->GetReflection()->FieldSize(*last, field) : 1;
  for (int i = 0; i < count; ++i) numbers.push_back(number_of(*last, *field, i));
  return numbers;
}

bool switch_at(const pb::Message& message, std::string_view path) {
  const auto [last, field] = find(message, path);
  return last && last->GetReflection()->GetBool(*last, field);
}

std::vector<std::string> enum_names(const pb::Message& message, std::string_view path) {
  std::vector<std::string> names;
  const auto [last, field] = find(message, path);
  if (!last || !field->enum_type()) return names;
  for (int v = 0; v < field->enum_type()->value_count(); ++v)
    if (const std::string& name = field->enum_type()->value(v)->name(); !name.ends_with("_UNSPECIFIED"))
      names.push_back(name);
  return names;
}

}  // namespace braid::worker
