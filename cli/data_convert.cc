// `braid data convert`: records of files of any format into one file of another. Two files of IDX, images and
// labels, become records that have both.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/data_tools.h"
#include "engine/input/record_file.h"
#include "engine/input/record_sink.h"
#include "engine/input/record_summary.h"

namespace braid::cli {
namespace {

struct ConvertOptions {
  std::vector<std::string> files;
  std::string out, from, to, compression, separator;
  std::string comment;
  std::vector<std::string> names;
  bool header = false, no_header = false;
  std::int64_t max_bad_records = 0;
};

bool ends_with(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

/// What the options and the name of the output say; the columns are still missing.
RecordSinkOptions sink_options(const ConvertOptions& options) {
  RecordSinkOptions sink;
  std::string name = options.out;
  if (name.ends_with(".gz")) {
    sink.compression = Compression::Gzip;
    name.resize(name.size() - 3);
  }
  if (options.compression == "gzip") sink.compression = Compression::Gzip;
  if (options.compression == "zlib") sink.compression = Compression::Zlib;
  if (options.compression == "none") sink.compression = Compression::None;
  if (!options.to.empty()) {
    sink.format = file_format_from_name(options.to);
  } else if (ends_with(name, {".csv", ".tsv"})) {
    sink.format = FileFormat::Csv;
  } else if (ends_with(name, {".txt"})) {
    sink.format = FileFormat::Text;
  } else if (!ends_with(name, {".tfrecord", ".tfrecords"})) {
    throw InvalidArgument(
        "--out '" + options.out +
        "': its name does not say a format (.tfrecord, .csv, .tsv, .txt, each with .gz); --to does");
  }
  const bool tabs = options.to == "tsv" || (options.to.empty() && name.ends_with(".tsv"));
  sink.separator = tabs ? '\t' : ',';
  return sink;
}

/// The records of all inputs, one after the other; of images and labels side by side.
class Inputs {
 public:
  explicit Inputs(const ConvertOptions& options) : options_(options) {
    open_.comment = options.comment;
    open_.names = options.names;
    open_.max_bad_records = options.max_bad_records;
    if (!options.from.empty()) open_.format = file_format_from_name(options.from);
    if (options.from == "tsv") open_.separator = '\t';
    if (!options.separator.empty()) open_.separator = options.separator[0];
    if (options.header || options.no_header) open_.header = options.header;
    restart();
  }
  void restart() {
    at_ = 0;
    file_ = RecordFile::open(options_.files[0], open_);
    beside_ = nullptr;
    if (options_.files.size() == 2 && file_->format() == FileFormat::Idx)
      beside_ = RecordFile::open(options_.files[1], open_);
  }
  bool next() {
    while (!file_->next()) {
      if (beside_ && beside_->next())
        throw DataLoss("'" + options_.files[1] + "' has more items than '" + options_.files[0] + "'");
      if (beside_ || at_ + 1 == options_.files.size()) return false;
      file_ = RecordFile::open(options_.files[++at_], open_);
    }
    if (beside_) join();
    return true;
  }
  const FeatureSet& record() const { return beside_ ? joined_ : file_->record(); }
  std::vector<std::string> column_names() const {
    return beside_ ? std::vector<std::string>() : file_->column_names();
  }

 private:
  void join() {
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

  const ConvertOptions& options_;
  RecordFileOptions open_;
  std::size_t at_ = 0;
  std::unique_ptr<RecordFile> file_, beside_;
  FeatureSet joined_;
};

int convert(const ConvertOptions& options) {
  if (options.separator.size() > 1)
    throw InvalidArgument("--separator must be one character, got '" + options.separator + "'");
  for (const std::string& file : options.files)
    if (std::error_code ignored; std::filesystem::equivalent(file, options.out, ignored))
      throw InvalidArgument("--out '" + options.out + "' is one of the inputs");
  RecordSinkOptions sink = sink_options(options);
  Inputs inputs(options);
  if (sink.format == FileFormat::Csv) {  // its columns are known only when every record was seen
    RecordSummary summary;
    while (inputs.next()) summary.add(inputs.record());
    sink.columns = inputs.column_names();
    for (const auto& [name, feature] : summary.features())
      if (std::find(sink.columns.begin(), sink.columns.end(), name) == sink.columns.end())
        sink.columns.push_back(name);
    inputs.restart();
  }
  const auto out = RecordSink::create(options.out, sink);
  std::int64_t records = 0;
  while (inputs.next()) {
    ++records;
    try {
      out->write(inputs.record());
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(fmt::format("record {}: {}", records, e.message()));
    }
  }
  out->finish();
  fmt::print("{}: {} records, {}\n", options.out, records, file_format_name(sink.format));
  return kExitSuccess;
}

}  // namespace

void add_data_convert(CLI::App& data, Action& action) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* sub = data.add_subcommand("convert",
                                      "Write the records of data files of any format into one file of "
                                      "another; IMAGES LABELS of IDX are joined");
  sub->add_option("FILE", options->files, "Inputs, one after the other")->required();
  sub->add_option("--out", options->out, "Output: .tfrecord, .csv, .tsv or .txt, each with .gz")->required();
  sub->add_option("--from", options->from, "Format of the inputs; default: what they look like");
  sub->add_option("--to", options->to,
                  "Format of the output: tfrecord, criteo, csv, tsv or text; default: by its name");
  sub->add_option("--compression", options->compression, "Of the output; default: gzip for .gz, else none")
      ->check(CLI::IsMember({"none", "gzip", "zlib"}));
  sub->add_option("--separator", options->separator, "Of the fields of a CSV input, one character");
  sub->add_flag("--header", options->header, "The first line of a CSV input has names");
  sub->add_flag("--no-header", options->no_header, "The first line of a CSV input is a record");
  sub->add_option("--names", options->names,
                  "Of the columns of a CSV input, between commas; default: the header's, else numbers")
      ->delimiter(',');
  sub->add_option("--comment", options->comment, "Lines of a CSV input that begin with this are skipped");
  sub->add_option("--max-bad", options->max_bad_records, "Bad records of an input that may be skipped")
      ->capture_default_str();
  sub->callback([options, &action] { action = [options] { return convert(*options); }; });
}

}  // namespace braid::cli
