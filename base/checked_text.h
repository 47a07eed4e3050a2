// Small files that people read and that must not be read damaged: a message as text protobuf, and behind it a
// comment line with the CRC-32C of the text. Thread rule: pure functions.
//
//   file     := text crc-line
//   crc-line := "# crc32c: " 8 lower-case hexadecimal digits, LF
#pragma once

#include <filesystem>
#include <string>

namespace google::protobuf {
class Message;
}

namespace braid {

std::string checked_text(const google::protobuf::Message& message);

/// Fills `message` from a file's `text`. Throws: DataLoss naming `file`, and what is wrong with the text.
void parse_checked_text(const std::filesystem::path& file, const std::string& text,
                        google::protobuf::Message& message);

}  // namespace braid
