#include "base/checked_text.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "base/crc32c.h"
#include "base/error.h"

namespace braid {
namespace {

constexpr std::string_view kCrcLine = "# crc32c: ";  // a comment of text protobuf

std::uint32_t text_crc(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

/// Keeps the first thing that the text parser says.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text.empty()) text = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  std::string text;
};

}  // namespace

std::string checked_text(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text + fmt::format("{}{:08x}\n", kCrcLine, text_crc(text));
}

void parse_checked_text(const std::filesystem::path& file, const std::string& text,
                        google::protobuf::Message& message) {
  const auto damaged = [&](std::string_view why) {
    throw DataLoss(fmt::format("[checkpoint] '{}': {}", file.string(), why));
  };
  const std::size_t crc_at = text.rfind(kCrcLine);
  if (crc_at == std::string::npos) damaged("the last line, with the CRC, is missing: truncated");
  const std::string_view body = std::string_view(text).substr(0, crc_at);
  if (text.substr(crc_at) != fmt::format("{}{:08x}\n", kCrcLine, text_crc(body)))
    damaged("the text does not match the CRC of its last line");
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(body), &message)) damaged(error.text);
}

}  // namespace braid
