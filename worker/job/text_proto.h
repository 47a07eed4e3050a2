// Text protobuf with errors that users can act on: file, line and column in front, and for an unknown field
// or enum value the nearest known one. Thread rule: none; values in, values out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf

namespace braid::worker {

/// Replaces the message. `source` stands in front of errors. Throws: InvalidArgument.
void parse_text(std::string_view text, std::string_view source, google::protobuf::Message& message);
/// What the text says is set over what the message has; repeated fields grow. Throws: InvalidArgument.
void merge_text(std::string_view text, std::string_view source, google::protobuf::Message& message);

/// A text as the value of an assignment, for set_job_field(): as it is, or in quotes where it would be read
/// as something else.
std::string text_value(const std::string& value);

/// Without those that are deprecated.
std::vector<std::string> field_names(const google::protobuf::Descriptor& type);
/// "; did you mean 'x'?", or all that are known when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
/// The candidate with the least edit distance to `word`; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace braid::worker
