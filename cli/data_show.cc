// `braid data show`: reads a whole data file, so that damage anywhere in it is found, and says what is in it.
#include <fmt/core.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/column_guess.h"
#include "cli/data_show.h"
#include "cli/data_tools.h"
#include "engine/input/formats/tfrecord.h"

namespace braid::cli {
namespace {

struct ShowOptions {
  std::string file, format, separator;
  RecordFileOptions open;
  bool header = false, no_header = false, json = false, raw = false, columns = false;
  std::int64_t rows = 5;
};

/// Texts as they are; what is not printable as \xNN.
std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    const std::size_t length = utf8_length(bytes);
    const bool control =
        byte < 0x20 || byte == 0x7F || (byte == 0xC2 && length == 2 && (bytes[1] & 0x20) == 0);
    if (byte == '"' || byte == '\\')
      text += fmt::format("\\{}", bytes[0]);
    else if (length == 0 || control)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += bytes.substr(0, length);
    bytes.remove_prefix(length == 0 || control ? 1 : length);
  }
  return text;
}

constexpr std::size_t kShownValues = 8, kShownBytes = 48;

std::string short_text(std::string_view bytes) {
  if (bytes.size() <= kShownBytes) return "\"" + printable(bytes) + "\"";
  std::size_t end = kShownBytes;  // not inside of a character
  while (end > kShownBytes - 3 && (static_cast<unsigned char>(bytes[end]) & 0xC0) == 0x80) --end;
  return fmt::format("\"{}\"... ({} bytes)", printable(bytes.substr(0, end)), bytes.size());
}

template <class T, class Show>
std::string short_list(std::span<const T> values, Show show) {
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kShownValues); ++i)
    text += (i > 0 ? ", " : "") + show(values[i]);
  if (values.size() > kShownValues) text += fmt::format(", ... ({} values)", values.size());
  return values.size() == 1 ? text : "[" + text + "]";
}

std::string shown(const FeatureSet& record, const Feature& f) {
  switch (f.kind) {
    case FeatureKind::Bytes:
      return short_list(record.bytes(f), [](std::string_view v) { return short_text(v); });
    case FeatureKind::Float:
      return short_list(record.floats(f), [](float v) { return fmt::format("{}", v); });
    case FeatureKind::Int64:
      return short_list(record.ints(f), [](std::int64_t v) { return fmt::format("{}", v); });
    case FeatureKind::None:
      break;
  }
  return "-";
}

void print_record(std::int64_t number, const FeatureSet& record) {
  fmt::print("record {}\n", number);
  for (const Feature& f : record.features()) {
    const std::string steps = f.steps ? fmt::format(" in {} steps", *f.steps) : "";
    fmt::print("  {}: {}{} {}\n", printable(f.name), feature_kind_name(f.kind), steps, shown(record, f));
  }
}

std::string per_record(const FeatureSummary& f) {
  return f.fewest == f.most ? std::to_string(f.most) : fmt::format("{}..{}", f.fewest, f.most);
}

/// "~" before an estimate.
std::string different(const FeatureSummary& f) {
  return (f.distinct.exact() ? "" : "~") + std::to_string(f.distinct.count());
}

void print_summary(const RecordSummary& summary) {
  fmt::print("\n{:<28} {:<7} {:>9} {:>10} {:>9} {:>12} {:>12} {:>12} {:>12}\n", "feature", "type", "present",
             "per record", "distinct", "min", "max", "mean", "std");
  for (const auto& [name, f] : summary.features()) {
    fmt::print("{:<28} {:<7} {:>9} {:>10} {:>9} ", printable(name),
               f.mixed ? "mixed" : std::string(feature_kind_name(f.kind)), f.present, per_record(f),
               different(f));
    if (f.kind == FeatureKind::Int64)
      fmt::print("{:>12} {:>12} {:>12.6g} {:>12.6g}\n", f.int_min, f.int_max, f.moments.mean(),
                 f.moments.deviation());
    else if (f.kind == FeatureKind::Float)
      fmt::print("{:>12.6g} {:>12.6g} {:>12.6g} {:>12.6g}\n", f.min, f.max, f.moments.mean(),
                 f.moments.deviation());
    else
      fmt::print("{:>6} bytes {:>6} bytes {:>6.4g} bytes\n", f.min, f.max,
                 f.values > 0 ? f.sum / static_cast<double>(f.values) : 0.0);
  }
}

/// Records of a TFRecord file that are not Examples: their number, place and size.
int show_raw(const ShowOptions& options) {
  TfRecordReader reader(options.file);
  std::uint64_t bytes = 0;
  std::int64_t records = 0;
  while (const auto record = reader.next()) {
    ++records;
    bytes += record->size();
    if (records <= options.rows)
      fmt::print("record {} at byte {}: {}\n", records, reader.offset(), short_text(*record));
  }
  fmt::print("{}: tfrecord, compression {}, {} records, {} bytes of data, every CRC right\n", options.file,
             compression_name(reader.compression()), records, bytes);
  return kExitSuccess;
}

bool next_of(RecordFile& file) {
  try {
    return file.next();
  } catch (const DataLoss& e) {
    if (e.message().find("not a tf.train.Example") == std::string::npos) throw;
    throw DataLoss(e.message() + "; --raw shows records as bytes");
  }
}

int show(const ShowOptions& options) {
  if (options.raw) return show_raw(options);
  const auto file = RecordFile::open(options.file, options.open);
  RecordSummary summary;
  if (options.columns) {
    while (next_of(*file)) summary.add(file->record());
    fmt::print("{}", columns_text(guess_columns(*file, summary, {})));
    return kExitSuccess;
  }
  std::vector<std::string> records;
  while (next_of(*file)) {
    if (options.json && summary.records() < options.rows) records.push_back(json_of_record(file->record()));
    if (!options.json && summary.records() < options.rows)
      print_record(summary.records() + 1, file->record());
    summary.add(file->record());
  }
  if (options.json) {
    fmt::print("{}", json_of_file(options.file, *file, summary, records));
    return kExitSuccess;
  }
  const bool checked = file->format() == FileFormat::TfRecord;
  if (!summary.features().empty()) print_summary(summary);
  fmt::print("\n{}: {}, compression {}, {} records{}{}\n", options.file, file_format_name(file->format()),
             compression_name(file->compression()), summary.records(), checked ? ", every CRC right" : "",
             file->bad_records() > 0 ? fmt::format("; {} bad ones skipped", file->bad_records()) : "");
  return kExitSuccess;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0 && follows(1)) return 2;
  if (first >= 0xE0 && first < 0xF0 && follows(1) && follows(2)) {
    const unsigned code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    return code >= 0x800 && (code < 0xD800 || code > 0xDFFF) ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5 && follows(1) && follows(2) && follows(3)) {
    const unsigned code = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6;
    return code >= 0x10000 && code < 0x110000 ? 4 : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string shown_name(std::string_view name) { return is_utf8(name) ? std::string(name) : printable(name); }

void add_data_show(CLI::App& data, Action& action) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* sub = data.add_subcommand(
      "show",
      "Print the first records of a data file of any format, and name, type, range, mean and number of "
      "different values of everything in it");
  sub->add_option("FILE", options->file, "TFRecord, CSV, TSV, Criteo, IDX or text; plain or gzip")
      ->required();
  sub->add_option("--rows", options->rows, "Records to print")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->add_option("--format", options->format,
                  "tfrecord, criteo, csv, tsv, text or idx; default: what the content looks like");
  sub->add_option("--separator", options->separator, "Of CSV fields, one character");
  sub->add_flag("--header", options->header, "The first line of the CSV has names");
  sub->add_flag("--no-header", options->no_header, "The first line of the CSV is a record");
  sub->add_option("--comment", options->open.comment, "Lines of the CSV that begin with this are skipped");
  sub->add_option("--max-bad", options->open.max_bad_records, "Bad records that may be skipped")
      ->capture_default_str();
  sub->add_flag("--raw", options->raw, "Records of a TFRecord file as bytes, whatever they are");
  CLI::Option* json = sub->add_flag("--json", options->json, "One JSON object");
  sub->add_flag("--columns", options->columns,
                "Print only the `columns` of a job that reads this file, as `braid init` guesses them")
      ->excludes(json)
      ->excludes("--raw");
  sub->callback([options, &action] {
    action = [options] {
      if (!options->format.empty()) options->open.format = file_format_from_name(options->format);
      if (options->format == "tsv") options->open.separator = '\t';
      if (options->separator.size() > 1)
        throw InvalidArgument("--separator must be one character, got '" + options->separator + "'");
      if (!options->separator.empty()) options->open.separator = options->separator[0];
      if (options->header || options->no_header) options->open.header = options->header;
      return show(*options);
    };
  });
}

}  // namespace braid::cli
