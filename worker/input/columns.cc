#include "worker/input/columns.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/input/formats/readers.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

ColumnKind kind_of(proto::Column::Kind kind) {
  switch (kind) {
    case proto::Column::NUMERIC:
      return ColumnKind::Numeric;
    case proto::Column::CATEGORICAL:
      return ColumnKind::Categorical;
    case proto::Column::LABEL:
      return ColumnKind::Label;
    case proto::Column::CLASS:
      return ColumnKind::Class;
    case proto::Column::WEIGHT:
      return ColumnKind::Weight;
    default:
      return ColumnKind::Skip;
  }
}

/// Numbers of job.proto are those of the enums, in their order.
ListPooling pooling_of(proto::Column::Pooling pooling) { return static_cast<ListPooling>(pooling); }
TimePart part_of(proto::Column::TimePart part) { return static_cast<TimePart>(part); }
static_assert(static_cast<int>(ListPooling::Attention) == proto::Column::ATTENTION &&
              static_cast<int>(ListPooling::Max) == proto::Column::MAX &&
              static_cast<int>(ListPooling::SqrtN) == proto::Column::SQRTN &&
              static_cast<int>(TimePart::Seconds) == proto::Column::SECONDS &&
              static_cast<int>(TimePart::Weekday) == proto::Column::WEEKDAY);

/// What `braid data stats --json` has found.
class Statistics {
 public:
  Statistics(std::string file, const Path& root) : file_(std::move(file)) {
    try {
      all_ = nlohmann::json::parse(read_text_file(root / file_)).at("features");
    } catch (const nlohmann::json::exception&) {
      refuse("is not what `braid data stats --json` writes");
    }
  }

  double number(const ColumnSpec& column, const char* what) const {
    const nlohmann::json& its = of(column);
    if (!its.contains(what) || !its[what].is_number())
      refuse("says no " + std::string(what) + " of '" + field_of(column) + "', which column '" + column.name +
             "' needs");
    return its[what].get<double>();
  }

  /// Between whole percents by straight lines.
  std::vector<double> borders(const ColumnSpec& column, std::int64_t parts) const {
    const nlohmann::json& its = of(column);
    if (!its.contains("percentiles") || its["percentiles"].size() != 101)
      refuse("says no percentiles of '" + field_of(column) + "', which column '" + column.name + "' needs");
    const auto percentiles = its["percentiles"].get<std::vector<double>>();
    std::vector<double> borders;
    for (std::int64_t i = 1; i < parts; ++i) {
      const double at = 100.0 * static_cast<double>(i) / static_cast<double>(parts);
      const auto below = static_cast<std::size_t>(at);
      const double border = std::lerp(percentiles[below], percentiles[std::min<std::size_t>(below + 1, 100)],
                                      at - static_cast<double>(below));
      if (borders.empty() || border > borders.back()) borders.push_back(border);
    }
    return borders;
  }

 private:
  const nlohmann::json& of(const ColumnSpec& column) const {
    const std::string field = field_of(column);
    if (!all_.contains(field)) refuse("has no '" + field + "', which column '" + column.name + "' reads");
    return all_[field];
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument("input.statistics_file '" + file_ + "': " + why);
  }

  const std::string file_;
  nlohmann::json all_;
};

/// `buckets`: of a category that says neither buckets nor a vocabulary.
ColumnSpec column_spec(const proto::Column& column, std::int64_t buckets, const Path& root) {
  ColumnSpec to;
  to.name = column.name();
  to.kind = kind_of(column.kind());
  to.buckets = column.buckets();
  to.positive = column.positive();
  to.shift = column.shift();
  to.scale = column.has_scale() ? column.scale() : 1.0;
  to.log1p = column.log1p();
  to.missing = column.missing();
  to.missing_word = column.missing_word();
  to.vocabulary.assign(column.vocabulary().begin(), column.vocabulary().end());
  if (!column.vocabulary_file().empty()) {
    std::vector<std::string> words = read_words(root / column.vocabulary_file());
    if (column.vocabulary_words() > 0)
      words.resize(std::min(words.size(), static_cast<std::size_t>(column.vocabulary_words())));
    std::ranges::move(words, std::back_inserter(to.vocabulary));
  }
  to.ragged = column.ragged();
  to.length = column.length() == 0 && !to.ragged ? 1 : column.length();
  const std::string place = "column '" + column.name() + "': ";
  to.list_separator = one_character(column.list_separator(), place + "list_separator", '|');
  to.weights = column.weights();
  to.weight_separator = one_character(column.weight_separator(), place + "weight_separator", 0);
  to.batch_ids = column.batch_ids();
  to.output = column.output();
  to.table = {column.table(), column.embedding_dim(), column.embedding_init(), pooling_of(column.pooling()),
              column.query()};
  to.field = column.field();
  to.cross.assign(column.cross().begin(), column.cross().end());
  to.borders.assign(column.borders().begin(), column.borders().end());
  to.time_part = part_of(column.time_part());
  const bool is_bucket = !to.borders.empty() || to.has_part() || column.quantiles() > 0;
  if (to.kind == ColumnKind::Categorical && to.buckets == 0 && to.vocabulary.empty() && !is_bucket)
    to.buckets = buckets;
  return to;
}

void apply_statistics(const proto::Column& from, const Statistics& statistics, ColumnSpec& to) {
  if (from.quantiles() > 0) {
    if (!to.borders.empty())
      throw InvalidArgument("column '" + to.name + "': has borders and quantiles: one says its ids");
    to.borders = statistics.borders(to, from.quantiles());
  }
  if (from.scaling() == proto::Column::AS_SAID) return;
  if (to.shift != 0 || from.has_scale())
    throw InvalidArgument("column '" + to.name +
                          "': has scaling and a shift or scale: one says how it is scaled");
  if (from.scaling() == proto::Column::STANDARD) {
    to.shift = statistics.number(to, to.log1p ? "log1p_mean" : "mean");
    to.scale = statistics.number(to, to.log1p ? "log1p_std" : "std");
  } else {
    const auto shown = [&](double value) { return to.log1p ? std::log1p(std::max(value, 0.0)) : value; };
    to.shift = shown(statistics.number(to, "min"));
    to.scale = shown(statistics.number(to, "max")) - to.shift;
  }
  if (to.scale == 0) to.scale = 1;  // all values are equal, and become 0
}

}  // namespace

char one_character(const std::string& text, const std::string& field, char fallback) {
  if (text.size() > 1) throw InvalidArgument(field + " must be one character, got '" + text + "'");
  if (text == "\n" || text == "\r" || text == "\"")
    throw InvalidArgument(field + " cannot be a line end or a quote, which mean something else in text");
  return text.empty() ? fallback : text[0];
}

std::vector<ColumnSpec> job_schema(const proto::Job& job, const Path& data_dir) {
  const proto::Input& input = job.input();
  const auto& columns = input.columns().empty() ? input.csv().columns() : input.columns();
  if (columns.empty())
    throw InvalidArgument("input.columns is missing: " + proto::Input::Format_Name(input.format()) +
                          " needs its schema");
  std::optional<Statistics> statistics;
  std::vector<ColumnSpec> result;
  for (const auto& column : columns) {
    result.push_back(column_spec(column, job.model().hash_buckets(), data_dir));
    if (column.quantiles() == 0 && column.scaling() == proto::Column::AS_SAID) continue;
    if (input.statistics_file().empty())
      throw InvalidArgument(
          "column '" + column.name() +
          "': scaling and quantiles need input.statistics_file, what `braid data stats --json` "
          "writes of the training files");
    if (!statistics) statistics.emplace(input.statistics_file(), data_dir);
    apply_statistics(column, *statistics, result.back());
  }
  return result;
}

}  // namespace braid::worker
