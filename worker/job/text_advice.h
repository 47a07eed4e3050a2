// What to write in place of what protobuf's parser refuses in a job's text, for the mistakes that people
// make. Thread rule: none; values in, values out.
#pragma once

#include <string>
#include <string_view>

namespace braid::worker {

/// `message` of the parser, about the place `line`, `column` (from 0) of `text`, with advice behind it where
/// the mistake is known: "Expected identifier, got: /; comments begin with #".
std::string with_advice(const std::string& message, std::string_view text, int line, int column);

}  // namespace braid::worker
