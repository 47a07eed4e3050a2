#include "cli/graph_job.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "cli/column_guess.h"
#include "engine/input/formats/record_file.h"
#include "engine/input/formats/record_summary.h"
#include "proto/job.pb.h"
#include "worker/model/graph_model.h"

namespace braid::cli {
namespace {

using worker::InputColumn;

/// Where a column of the file goes.
struct Destination {
  const InputColumn* placeholder = nullptr;
  std::int64_t length = 1;
};

class ColumnMapper {
 public:
  ColumnMapper(const std::vector<InputColumn>& wanted, const RecordFile& file, const RecordSummary& summary,
               const std::string& label)
      : wanted_(wanted), summary_(summary), label_(label) {
    names_ = file.column_names();
    if (names_.empty())
      for (const auto& [name, feature] : summary.features()) names_.push_back(name);
  }

  std::string columns_text() {
    match_by_name();
    match_by_number();
    std::string text;
    for (const std::string& name : names_) text += "  " + column_text(name) + "\n";
    return text;
  }

  /// The column of the job that the label becomes; empty: none. REQUIRES: columns_text() was called.
  std::string label_output() const {
    const auto at = to_.find(label_);
    return at == to_.end() ? std::string() : at->second.placeholder->name;
  }

 private:
  const FeatureSummary& feature(const std::string& name) const {
    return summary_.features().find(name)->second;
  }
  bool has_values(const std::string& name) const {
    return summary_.features().find(name) != summary_.features().end();
  }
  bool is_text(const std::string& name) const { return feature(name).kind == FeatureKind::Bytes; }

  /// A placeholder's name without what TensorFlow puts before the inputs of a SavedModel.
  static std::string key_of(const InputColumn& column) {
    constexpr std::string_view kPrefix = "serving_default_";
    return column.name.starts_with(kPrefix) ? column.name.substr(kPrefix.size()) : column.name;
  }

  void match_by_name() {
    for (const std::string& name : names_)
      for (const InputColumn& column : wanted_)
        if (has_values(name) &&
            (column.name == name || key_of(column) == name || (name == label_ && column.name == "label")))
          take(name, column);
    for (const InputColumn& column : wanted_) match_numbered(column);
  }

  /// "age_0", "age_1", ... or "age0", ... fill the placeholder "age" of as many numbers.
  void match_numbered(const InputColumn& column) {
    if (filled_.contains(column.name)) return;
    const std::string key = key_of(column);
    std::vector<std::string> parts;
    for (const std::string& name : names_) {
      if (!name.starts_with(key) || !has_values(name) || to_.contains(name) || name == label_) continue;
      const std::string number = name.substr(key.size() + (name[key.size()] == '_' ? 1 : 0));
      if (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos)
        parts.push_back(name);
    }
    if (static_cast<std::int64_t>(parts.size()) != std::max<std::int64_t>(1, column.row.elements())) return;
    for (const std::string& name : parts) take(name, column);
  }

  void take(const std::string& name, const InputColumn& column) {
    to_[name] = {&column, std::max<std::int64_t>(1, feature(name).most)};
    filled_.insert(column.name);
  }

  /// A placeholder that wants as many numbers, or ids, as there are columns left of them takes these.
  void match_by_number() {
    for (const InputColumn& column : wanted_) {
      if (filled_.contains(column.name)) continue;
      const bool numbers = is_floating(column.dtype);
      std::vector<std::string> open;
      for (const std::string& name : names_)
        if (has_values(name) && !to_.contains(name) && name != label_ && (numbers ? !is_text(name) : true) &&
            (numbers || is_text(name) || feature(name).kind == FeatureKind::Int64))
          open.push_back(name);
      if (static_cast<std::int64_t>(open.size()) != std::max<std::int64_t>(1, column.row.elements()))
        continue;
      for (const std::string& name : open) take(name, column);
    }
  }

  std::string column_text(const std::string& name) const {
    const auto at = to_.find(name);
    if (at == to_.end()) return fmt::format("columns {{ name: {} kind: SKIP }}", text_literal(name));
    const InputColumn& column = *at->second.placeholder;
    const bool floats = is_floating(column.dtype);
    std::string kind = floats ? (name == label_ ? "LABEL" : "NUMERIC") : "CLASS";
    if (!floats && is_text(name)) kind = "CATEGORICAL";
    std::string text = fmt::format("columns {{ name: {} kind: {} output: {}", text_literal(name), kind,
                                   text_literal(column.name));
    if (kind == "CATEGORICAL")
      text += fmt::format(" buckets: {}", std::max<std::int64_t>(10, 2 * feature(name).distinct.count()));
    if (at->second.length > 1) text += fmt::format(" length: {}", at->second.length);
    return text + " }";
  }

  const std::vector<InputColumn>& wanted_;
  const RecordSummary& summary_;
  const std::string label_;
  std::vector<std::string> names_;
  std::map<std::string, Destination> to_;
  std::set<std::string> filled_;
};

std::int64_t batch_for(std::int64_t rows) {
  std::int64_t batch = 256;
  while (batch > 1 && batch * 10 > rows) batch /= 2;
  return batch;
}

}  // namespace

std::string graph_job_text(const GraphJobFlags& flags) {
  proto::Job job;
  *job.mutable_model()->mutable_graph() = flags.graph.message();
  const std::vector<InputColumn> wanted = worker::columns_of_placeholders(job);
  RecordFileOptions open;  // columns of these names are in a header alone
  for (const InputColumn& column : wanted) open.expected.push_back(column.name);
  if (!flags.label.empty()) open.expected.push_back(flags.label);
  const auto file = RecordFile::open(flags.data, open);
  const bool is_csv = file->format() == FileFormat::Csv;
  if (!is_csv && file->format() != FileFormat::TfRecord)
    throw InvalidArgument("--data '" + flags.data +
                          "': CSV, TSV and TFRecord have columns; for other data write a job (model.graph)");
  RecordSummary summary;
  while (file->next()) summary.add(file->record());
  if (summary.records() == 0) throw InvalidArgument("--data '" + flags.data + "' has no records");
  const std::string label = flags.label.empty() ? "label" : flags.label;
  const auto absolute = [](const std::string& path) { return std::filesystem::absolute(path).string(); };
  ColumnMapper mapper(wanted, *file, summary, label);
  const std::string columns = mapper.columns_text();
  if (flags.graph.label.empty() && !mapper.label_output().empty())
    job.mutable_model()->mutable_graph()->set_label(mapper.label_output());
  std::string model;
  google::protobuf::TextFormat::Printer printer;
  printer.SetInitialIndentLevel(2);
  printer.PrintToString(job.model().graph(), &model);
  std::string text = fmt::format("epochs: 1\nmodel {{\n  graph {{\n{}  }}\n}}\n", model);
  text += fmt::format("input {{\n  format: {}\n  train_files: {}\n", is_csv ? "CSV" : "TFRECORD",
                      text_literal(absolute(flags.data)));
  if (!flags.test.empty()) text += fmt::format("  test_files: {}\n", text_literal(absolute(flags.test)));
  text +=
      fmt::format("  global_batch_size: {}\n", flags.batch > 0 ? flags.batch : batch_for(summary.records()));
  if (is_csv)
    text +=
        fmt::format("  csv {{ separator: {}{} }}\n",
                    file->separator() == '\t' ? "\"\\t\"" : text_literal(std::string(1, file->separator())),
                    file->has_header() ? " header: true" : "");
  text += columns + "}\n";
  if (flags.graph.train_op.empty()) text += "optimizer { kind: ADAM learning_rate: 0.001 }\n";
  return text;
}

}  // namespace braid::cli
