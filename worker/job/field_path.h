// Fields by their path, "staging.capacity", through protobuf's reflection. REQUIRES throughout: the path
// names a field, and no list is on the way to it. Thread rule: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace braid::worker {

/// Whether the field is there, or is not what it is when it is absent.
bool is_set(const google::protobuf::Message& message, std::string_view path);

struct FieldPlace {
  google::protobuf::Message* message;  // the one that has it
  const google::protobuf::FieldDescriptor* field;
};
/// Makes the messages on the way.
FieldPlace field_place(google::protobuf::Message& message, std::string_view path);

/// The number, or each of a list; none for a field that is no number, or is not set.
std::vector<double> numbers_at(const google::protobuf::Message& message, std::string_view path);

/// REQUIRES: the field is a switch. Off where it is absent.
bool switch_at(const google::protobuf::Message& message, std::string_view path);

/// The names of an enum's values, without one that says that nothing is said; none for other fields.
std::vector<std::string> enum_names(const google::protobuf::Message& message, std::string_view path);

}  // namespace braid::worker
