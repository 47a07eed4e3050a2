#include "engine/input/sniff.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "engine/input/criteo_fields.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"
#include "engine/input/tfrecord.h"

namespace braid {
namespace {

constexpr std::size_t kHead = std::size_t{1} << 16;

bool is_binary(std::string_view head) {
  return std::any_of(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f';
  });
}

bool is_idx(std::string_view head) {
  if (head.size() < 8 || head[0] != 0 || head[1] != 0) return false;
  const auto type = static_cast<unsigned char>(head[2]), rank = static_cast<unsigned char>(head[3]);
  return type >= 0x08 && type <= 0x0E && type != 0x0A && rank >= 1 && rank <= 8;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

bool name_says_tfrecord(const std::filesystem::path& file) {
  return file.filename().string().find("tfrecord") != std::string::npos;
}

std::vector<std::string_view> first_lines(std::string_view head, std::string_view comment) {
  constexpr std::size_t kLines = 20;
  std::vector<std::string_view> lines;
  for_each_line(head, [&](std::string_view line, std::int64_t) {
    if (lines.size() < kLines && !line.empty() && (comment.empty() || !line.starts_with(comment)))
      lines.push_back(line);
  });
  if (lines.size() > 1 && head.size() == kHead) lines.pop_back();  // cut off
  return lines;
}

/// The number of fields that most lines have.
std::size_t usual_fields(const std::vector<std::string_view>& lines, char separator) {
  std::map<std::size_t, int> counts;
  std::vector<std::string_view> fields;
  std::string unquoted;
  for (std::string_view line : lines) {
    split_fields(line, separator, fields, unquoted);
    ++counts[fields.size()];
  }
  std::size_t usual = 1;
  int most = 0;
  for (const auto& [size, lines_of_size] : counts)
    if (lines_of_size > most) {
      most = lines_of_size;
      usual = size;
    }
  return 2 * static_cast<std::size_t>(most) > lines.size() ? usual : 1;
}

bool looks_like_header(const std::vector<std::string_view>& lines, char separator) {
  if (lines.size() < 2) return false;
  std::vector<std::string_view> names, values;
  std::string unquoted_names, unquoted_values;
  split_fields(lines[0], separator, names, unquoted_names);
  split_fields(lines[1], separator, values, unquoted_values);
  const bool named = std::none_of(names.begin(), names.end(),
                                  [](std::string_view name) { return name.empty() || is_number(name); });
  return named && names.size() == values.size() && std::any_of(values.begin(), values.end(), is_number);
}

}  // namespace

TextShape text_shape(std::string_view head, std::string_view comment, char separator) {
  const auto lines = first_lines(head.substr(0, kHead), comment);
  TextShape shape;
  shape.separator = separator;
  for (const char candidate : separator ? std::string(1, separator) : std::string("\t,;")) {
    const std::size_t fields = usual_fields(lines, candidate);
    if (fields < 2 && candidate != separator) continue;
    shape.separator = candidate;
    shape.fields = fields;
    shape.has_header = looks_like_header(lines, candidate);
    return shape;
  }
  return shape;
}

FileFormat sniff_format(const std::filesystem::path& file) {
  if (is_tfrecord_file(file)) return FileFormat::TfRecord;
  std::string head(kHead, '\0');
  head.resize(open_bytes(file)->read(head));
  const bool packed_nothing = head.empty() && std::filesystem::file_size(file) > 0;
  if (head.empty() && !packed_nothing && !name_says_tfrecord(file))
    throw InvalidArgument("'" + file.string() + "' is empty: nothing says what format it has");
  if (is_idx(head)) return FileFormat::Idx;
  if (packed_nothing || name_says_tfrecord(file) || is_binary(head)) return FileFormat::TfRecord;
  const TextShape shape = text_shape(head, {});
  const bool label_first =
      head.size() > 1 && (head[0] == '0' || head[0] == '1') && head[1] == shape.separator;
  if (shape.fields == kCriteoFields && (label_first || head.starts_with("label,I1,")))
    return FileFormat::Criteo;
  return shape.separator == 0 ? FileFormat::Text : FileFormat::Csv;
}

std::string read_all(const std::filesystem::path& file, Compression& compression) {
  compression = open_bytes(file)->compression();
  return read_text_file(file);
}

}  // namespace braid
