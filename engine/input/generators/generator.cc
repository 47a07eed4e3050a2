#include "engine/input/generators/generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

std::int64_t classes_of(const ColumnSpec& column) {
  return column.vocabulary.empty() ? column.buckets : static_cast<std::int64_t>(column.vocabulary.size());
}

/// The hidden weight of value `v` of a column, standard normal.
float weight(std::uint64_t seed, const ColumnSpec& column, std::uint64_t v) {
  std::array<float, 1> value{};
  fill_normal01(make_rng_key(seed, "generator/weight/" + column.name), v, value);
  return value[0];
}

/// Numbers that are drawn for a column of a row; of a ragged one some of them are used.
std::size_t draws_of(const ColumnSpec& column) {
  constexpr std::int64_t kRagged = 8;
  return static_cast<std::size_t>(column.length > 0 ? column.length : kRagged);
}

/// A number whose id is `id`, of a column of buckets; nothing for the id of what is missing.
std::optional<std::int64_t> number_of(const ColumnSpec& column, std::int64_t id) {
  constexpr std::int64_t kDay = 86400;
  if (id == column.ids() - 1) return std::nullopt;
  if (!column.borders.empty())
    return static_cast<std::int64_t>(id == 0 ? std::floor(column.borders[0]) - 1
                                             : std::ceil(column.borders[static_cast<std::size_t>(id) - 1]));
  switch (column.time_part) {
    case TimePart::Minute:
      return 60 * id;
    case TimePart::Hour:
      return 3600 * id;
    case TimePart::Weekday:
      return (4 + id) * kDay;  // 1970 began with a Thursday
    case TimePart::Month:
      return (15 + 304 * id / 10) * kDay;
    case TimePart::YearDay:
      return (730 + id) * kDay;  // 1972 was a leap year
    default:
      return id * kDay;
  }
}

/// The columns of one kind of randomness of row after row.
class RowMaker {
 public:
  RowMaker(const GeneratorOptions& options, TableBuilder& builder) : options_(options), builder_(builder) {
    for (const ColumnSpec& column : options.columns) {
      width_ += draws_of(column) + (column.ragged ? 1 : 0);
      const auto owner = std::ranges::find(options.columns, column.name, &ColumnSpec::weights);
      owners_.push_back(column.ragged && owner != options.columns.end() ? owner - options.columns.begin()
                                                                        : -1);
      if (column.kind == ColumnKind::Class && classes_of(column) < 1)
        throw InvalidArgument(
            "schema column '" + column.name +
            "': the generator needs a vocabulary or buckets to know how many classes there are");
    }
  }

  void add(std::uint64_t row) {
    uniform_.resize(width_);
    normal_.resize(width_);
    fill_uniform01(make_rng_key(options_.seed, "generator/uniform"), row * width_, uniform_);
    fill_normal01(make_rng_key(options_.seed, "generator/normal"), row * width_, normal_);
    count_values();
    const double score = hidden_score();
    std::size_t at = 0;
    for (std::size_t c = 0; c < options_.columns.size(); ++c) {
      const std::string problem = add_column(c, at, score);
      if (!problem.empty())
        throw Internal("generator: column '" + options_.columns[c].name + "': " + problem);
      at += draws_of(options_.columns[c]) + (options_.columns[c].ragged ? 1 : 0);
    }
    builder_.end_row();
  }

 private:
  /// Of the row: of a ragged column 0 to as many as are drawn, as many weights as ids.
  void count_values() {
    counts_.clear();
    std::size_t at = 0;
    for (const ColumnSpec& column : options_.columns) {
      const std::size_t draws = draws_of(column);
      const auto some = static_cast<std::size_t>(uniform_[at + (column.ragged ? draws : 0)] *
                                                 static_cast<float>(draws + 1));
      counts_.push_back(column.ragged ? std::min(some, draws) : draws);
      at += draws + (column.ragged ? 1 : 0);
    }
    for (std::size_t c = 0; c < owners_.size(); ++c)
      if (owners_[c] >= 0) counts_[c] = counts_[static_cast<std::size_t>(owners_[c])];
  }

  /// Small values are more frequent: the square of a uniform.
  std::int64_t category(const ColumnSpec& column, std::size_t at) const {
    const double u = uniform_[at];
    return static_cast<std::int64_t>(u * u * static_cast<double>(std::max<std::int64_t>(column.ids(), 1)));
  }

  double hidden_score() const {
    double sum = 0, terms = 0;
    std::size_t at = 0;
    for (std::size_t c = 0; c < options_.columns.size(); ++c) {
      const ColumnSpec& column = options_.columns[c];
      for (std::size_t k = 0; k < counts_[c]; ++k) {
        if (column.kind == ColumnKind::Numeric && !column.ragged)
          sum += weight(options_.seed, column, k) * normal_[at + k];
        else if (column.kind == ColumnKind::Categorical && column.cross.empty())
          sum += weight(options_.seed, column, static_cast<std::uint64_t>(category(column, at + k)));
        else
          continue;
        terms += 1;
      }
      at += draws_of(column) + (column.ragged ? 1 : 0);
    }
    constexpr double kSpread = 2;  // of the scores, whatever the number of columns
    return terms == 0 ? 0 : kSpread * sum / std::sqrt(terms);
  }

  std::string add_column(std::size_t c, std::size_t at, double score) {
    const ColumnSpec& column = options_.columns[c];
    const std::size_t count = counts_[c];
    const double probability = 1 / (1 + std::exp(-score));
    ints_.clear();
    switch (column.kind) {
      case ColumnKind::Skip:
        return {};
      case ColumnKind::Numeric:
        if (column.ragged) return builder_.add_values(c, {.floats = std::span(uniform_).subspan(at, count)});
        return builder_.add_values(c, {.floats = std::span(normal_).subspan(at, count)});
      case ColumnKind::Label: {
        const bool positive = uniform_[at] < probability;
        return builder_.add_text(c, column.positive.empty()
                                        ? (positive ? "1" : "0")
                                        : (positive ? std::string_view(column.positive) : ""));
      }
      case ColumnKind::Weight: {
        const float value = 0.5F + uniform_[at];
        return builder_.add_values(c, {.floats = {&value, 1}});
      }
      case ColumnKind::Class:
        ints_.push_back(
            std::min(static_cast<std::int64_t>(probability * static_cast<double>(classes_of(column))),
                     classes_of(column) - 1));
        break;
      case ColumnKind::Categorical:
        for (std::size_t k = 0; k < count; ++k) {
          const std::int64_t id = category(column, at + k);
          if (!column.is_bucket())
            ints_.push_back(id);
          else if (const auto number = number_of(column, id))
            ints_.push_back(*number);
        }
        break;
    }
    if (column.vocabulary.empty()) return builder_.add_values(c, {.ints = ints_});
    std::vector<std::string_view> words;
    const auto known = static_cast<std::int64_t>(column.vocabulary.size());
    for (const std::int64_t v : ints_)
      words.push_back(column.vocabulary[static_cast<std::size_t>(std::min(v, known - 1))]);
    return builder_.add_values(c, {.texts = words});
  }

  const GeneratorOptions& options_;
  TableBuilder& builder_;
  std::uint64_t width_ = 0;
  std::vector<std::ptrdiff_t> owners_;  // whose weights a column is; -1
  std::vector<std::size_t> counts_;     // values of the present row
  std::vector<float> uniform_, normal_;
  std::vector<std::int64_t> ints_;
};

}  // namespace

std::shared_ptr<const Table> generate_rows(const GeneratorOptions& options) {
  if (options.rows < 1) throw InvalidArgument("generator: rows must be at least 1");
  TableBuilder builder(options.columns);
  RowMaker maker(options, builder);
  for (std::int64_t r = 0; r < options.rows; ++r)
    maker.add(static_cast<std::uint64_t>(options.first_row + r));
  return builder.finish(0);
}

}  // namespace braid
