#include "engine/input/formats/sniff.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "engine/input/files/data_file.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/foreign.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr std::size_t kHeadBytes = std::size_t{1} << 16;

/// Lengths in a TFRecord file have bytes of zero, which no text has; a stray control character it may have.
bool is_binary(std::string_view head) {
  const auto controls = std::count_if(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f';
  });
  return 10 * static_cast<std::size_t>(controls) > head.size() || head.find('\0') != std::string_view::npos;
}

bool is_idx(std::string_view head) {
  if (head.size() < 8 || head[0] != 0 || head[1] != 0) return false;
  const auto type = static_cast<unsigned char>(head[2]), rank = static_cast<unsigned char>(head[3]);
  return type >= 0x08 && type <= 0x0E && type != 0x0A && rank >= 1 && rank <= 32;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

bool name_says_tfrecord(const std::filesystem::path& file) {
  return file.filename().string().find("tfrecord") != std::string::npos;
}

/// Of the pieces in which data sets are written, part-00000 and x-00000-of-00001, some may have no records.
bool name_says_piece(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("part-") || name.find("-of-") != std::string::npos;
}

struct Rows {
  std::vector<std::vector<std::string>> fields;
  std::size_t wrong = 0;  // with quotes that are wrong
};

/// The first records of `head`.
Rows first_rows(std::string_view head, std::string_view comment, char separator) {
  constexpr std::size_t kRows = 20;
  Rows rows;
  FieldReader record(head, separator, comment);
  while (rows.fields.size() < kRows && record.next()) {
    if (record.problem().empty())
      rows.fields.emplace_back(record.fields().begin(), record.fields().end());
    else
      ++rows.wrong;
  }
  if (rows.fields.size() > 1 && head.size() == kHeadBytes && rows.fields.size() < kRows)
    rows.fields.pop_back();  // cut off
  return rows;
}

/// The number of fields that most records have, and whether all have it.
std::pair<std::size_t, bool> usual_fields(const Rows& rows) {
  std::map<std::size_t, std::size_t> counts;
  for (const auto& row : rows.fields) ++counts[row.size()];
  for (const auto& [fields, records] : counts)
    if (2 * records > rows.fields.size()) return {fields, records == rows.fields.size() + rows.wrong};
  return {1, false};
}

bool looks_like_header(const std::vector<std::vector<std::string>>& rows) {
  if (rows.size() < 2 || rows[0].size() != rows[1].size()) return false;
  bool tells = false;
  for (std::size_t f = 0; f < rows[0].size(); ++f) {
    if (is_number(rows[0][f])) return false;
    tells = tells || (!rows[0][f].empty() && is_number(rows[1][f]));
  }
  return tells;
}

}  // namespace

std::string read_head(const std::filesystem::path& file) {
  std::string head(kHeadBytes, '\0');
  head.resize(open_bytes(file)->read(head));
  return head;
}

std::string read_head(const FilePiece& piece) {
  std::string head(kHeadBytes, '\0');
  head.resize(open_piece(piece)->read(head));
  return head;
}

bool is_parquet_file(const std::filesystem::path& file) { return read_head(file).starts_with("PAR1"); }

TextShape text_shape(std::string_view head, std::string_view comment, char separator) {
  TextShape shape;
  shape.separator = separator;
  bool all_alike = false;
  for (const char candidate : separator ? std::string(1, separator) : std::string("\t,;")) {
    const Rows rows = first_rows(head.substr(0, kHeadBytes), comment, candidate);
    const auto [fields, alike] = usual_fields(rows);
    const bool better = shape.fields < 2 || (alike && !all_alike);
    if ((fields < 2 && candidate != separator) || !better) continue;
    shape = {candidate, fields, looks_like_header(rows.fields)};
    all_alike = alike;
  }
  return shape;
}

bool holds_tfrecords(const std::filesystem::path& file) {
  return is_tfrecord_file(file) || name_says_tfrecord(file) || is_binary(read_head(file));
}

FileFormat sniff_format(const std::filesystem::path& file, std::string_view comment) {
  if (is_tfrecord_file(file)) return FileFormat::TfRecord;
  const std::string head = read_head(file);
  if (head.starts_with("PAR1")) return FileFormat::Parquet;
  const bool packed_nothing = head.empty() && file != "-" && stamp_of(file).size > 0;
  if (head.empty() && !packed_nothing && !name_says_tfrecord(file) && !name_says_piece(file))
    throw InvalidArgument("'" + file.string() + "' is empty: nothing says what format it has");
  if (is_idx(head)) return FileFormat::Idx;
  if (const std::string_view what = foreign_format(head); !what.empty() && is_binary(head))
    throw InvalidArgument("'" + file.string() + "' is " + std::string(what));
  if (head.empty() || name_says_tfrecord(file) || is_binary(head)) return FileFormat::TfRecord;
  const TextShape shape = text_shape(head, comment);
  const std::string_view text = without_byte_order_mark(head);
  const bool label_first =
      text.size() > 1 && (text[0] == '0' || text[0] == '1') && text[1] == shape.separator;
  if (shape.fields == kCriteoFields && (label_first || text.starts_with("label,I1,")))
    return FileFormat::Criteo;
  return shape.separator == 0 ? FileFormat::Text : FileFormat::Csv;
}

}  // namespace braid
