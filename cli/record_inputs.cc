#include "cli/record_inputs.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "engine/input/formats/record_summary.h"

namespace braid::cli {
namespace {

bool ends_with_any(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

/// Without the ending of what packs it.
std::string unpacked_name(const OutputOptions& output) {
  return output.out.ends_with(".gz") ? output.out.substr(0, output.out.size() - 3) : output.out;
}

}  // namespace

void add_input_options(CLI::App& sub, InputOptions& options) {
  sub.add_option("FILE", options.files,
                 "Inputs, one after the other: paths, names of stores, or - for a pipe")
      ->required();
  sub.add_option("--from", options.from, "Format of the inputs; default: what they look like");
  sub.add_option("--separator", options.separator, "Of the fields of a CSV input, one character");
  sub.add_flag("--header", options.header, "The first line of a CSV input has names");
  sub.add_flag("--no-header", options.no_header, "The first line of a CSV input is a record");
  sub.add_option("--names", options.names,
                 "Of the columns of a CSV input, between commas; default: the header's, else numbers")
      ->delimiter(',');
  sub.add_option("--comment", options.comment, "Lines of a CSV input that begin with this are skipped");
  sub.add_option("--max-bad", options.max_bad_records, "Bad records of an input that may be skipped")
      ->capture_default_str();
}

void add_output_options(CLI::App& sub, OutputOptions& options) {
  sub.add_option("--to", options.to,
                 "Format of the output: tfrecord, criteo, csv, tsv, text or parquet; default: by its name");
  sub.add_option("--compression", options.compression, "Of the output; default: gzip for .gz, else none")
      ->check(CLI::IsMember({"none", "gzip", "zlib"}));
  sub.add_option("--row-group", options.row_group_rows, "Rows of a row group of Parquet")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

RecordInputs::RecordInputs(const InputOptions& options, bool texts) : options_(options) {
  open_.texts = texts;
  if (options.separator.size() > 1)
    throw InvalidArgument("--separator must be one character, got '" + options.separator + "'");
  open_.comment = options.comment;
  open_.names = options.names;
  open_.max_bad_records = options.max_bad_records;
  if (!options.from.empty()) open_.format = file_format_from_name(options.from);
  if (options.from == "tsv") open_.separator = '\t';
  if (!options.separator.empty()) open_.separator = options.separator[0];
  if (options.header || options.no_header) open_.header = options.header;
  restart();
}

void RecordInputs::restart() {
  at_ = 0;
  bad_ = 0;
  file_ = RecordFile::open(options_.files[0], open_);
  beside_ = nullptr;
  if (options_.files.size() == 2 && file_->format() == FileFormat::Idx)
    beside_ = RecordFile::open(options_.files[1], open_);
}

bool RecordInputs::next() {
  while (!file_->next()) {
    if (beside_ && beside_->next())
      throw DataLoss("'" + options_.files[1] + "' has more items than '" + options_.files[0] + "'");
    if (beside_ || at_ + 1 == options_.files.size()) return false;
    bad_ += file_->bad_records();
    file_ = RecordFile::open(options_.files[++at_], open_);
  }
  if (beside_) join();
  return true;
}

std::vector<std::string> RecordInputs::column_names() const {
  return beside_ ? std::vector<std::string>() : file_->column_names();
}

void RecordInputs::join() {
  if (!beside_->next())
    throw DataLoss("'" + options_.files[1] + "' has fewer items than '" + options_.files[0] + "'");
  joined_.clear();
  for (const FeatureSet* record : {&file_->record(), &beside_->record()})
    for (const Feature& f : record->features()) {
      if (f.kind == FeatureKind::Bytes) joined_.add(f.name, record->bytes(f)[0]);
      if (f.kind == FeatureKind::Int64) joined_.add(f.name, record->ints(f));
      if (f.kind == FeatureKind::Float) joined_.add(f.name, record->floats(f));
    }
}

FileFormat output_format(const OutputOptions& output) {
  if (!output.to.empty()) return file_format_from_name(output.to);
  const std::string name = unpacked_name(output);
  if (ends_with_any(name, {".csv", ".tsv"})) return FileFormat::Csv;
  if (name.ends_with(".txt")) return FileFormat::Text;
  if (name.ends_with(".parquet")) return FileFormat::Parquet;
  if (ends_with_any(name, {".tfrecord", ".tfrecords"})) return FileFormat::TfRecord;
  throw InvalidArgument("--out '" + output.out +
                        "': its name does not say a format (.tfrecord, .csv, .tsv, .txt, each with .gz, "
                        ".parquet); --to does");
}

bool writes_texts(const OutputOptions& output) {
  const FileFormat format = output_format(output);
  return format == FileFormat::Csv || format == FileFormat::Text;
}

RecordSinkOptions sink_options(const OutputOptions& output, RecordInputs& inputs) {
  RecordSinkOptions sink;
  const std::string name = unpacked_name(output);
  if (name != output.out) sink.compression = Compression::Gzip;
  if (output.compression == "gzip") sink.compression = Compression::Gzip;
  if (output.compression == "zlib") sink.compression = Compression::Zlib;
  if (output.compression == "none") sink.compression = Compression::None;
  sink.row_group_rows = output.row_group_rows;
  sink.format = output_format(output);
  if (sink.format == FileFormat::Parquet && sink.compression != Compression::None)
    throw InvalidArgument("--out '" + output.out + "': Parquet has a compression of its own");
  const bool tabs = output.to == "tsv" || (output.to.empty() && name.ends_with(".tsv"));
  sink.separator = tabs ? '\t' : ',';
  if (sink.format != FileFormat::Csv && sink.format != FileFormat::Parquet) return sink;
  RecordSummary summary;  // the columns are known only when every record was seen
  while (inputs.next()) summary.add(inputs.record());
  sink.columns = inputs.column_names();
  for (const auto& [feature, its] : summary.features())
    if (std::find(sink.columns.begin(), sink.columns.end(), feature) == sink.columns.end())
      sink.columns.push_back(feature);
  for (const std::string& column : sink.columns) {
    const auto found = summary.features().find(column);
    if (found == summary.features().end()) {
      sink.kinds.emplace_back();
      continue;
    }
    const FeatureSummary& its = found->second;
    const bool numbers = its.mixed && its.kind != FeatureKind::Bytes;
    sink.kinds.push_back({its.kind == FeatureKind::None ? FeatureKind::Bytes
                          : numbers                     ? FeatureKind::Float
                                                        : its.kind,
                          its.most > 1 || its.is_list});
  }
  inputs.restart();
  return sink;
}

void check_not_an_input(const InputOptions& inputs, const std::string& out) {
  for (const std::string& file : inputs.files)
    if (std::error_code ignored; std::filesystem::equivalent(file, out, ignored))
      throw InvalidArgument("--out '" + out + "' is one of the inputs");
}

}  // namespace braid::cli
