// What the two outputs of `braid data show` share, text and JSON. Private to it. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/input/formats/record_file.h"
#include "engine/input/formats/record_summary.h"

namespace braid::cli {

/// How long the character is that `text` begins with, in bytes; 0 when it does not begin with one.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
/// A name as it is, or with \xNN for its bytes when it is not UTF-8.
std::string shown_name(std::string_view name);

std::string json_of_record(const FeatureSet& record);
std::string json_of_file(const std::string& path, const RecordFile& file, const RecordSummary& summary,
                         const std::vector<std::string>& records);

}  // namespace braid::cli
