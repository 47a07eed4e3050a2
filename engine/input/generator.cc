#include "engine/input/generator.h"

#include <algorithm>
#include <array>
#include <cmath>
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

/// The columns of one kind of randomness of row after row.
class RowMaker {
 public:
  RowMaker(const GeneratorOptions& options, TableBuilder& builder) : options_(options), builder_(builder) {
    for (const ColumnSpec& column : options.columns) {
      width_ += static_cast<std::uint64_t>(column.length);
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
    const double score = hidden_score();
    std::size_t at = 0;
    for (std::size_t c = 0; c < options_.columns.size(); ++c) {
      const std::string problem = add_column(c, at, score);
      if (!problem.empty())
        throw Internal("generator: column '" + options_.columns[c].name + "': " + problem);
      at += static_cast<std::size_t>(options_.columns[c].length);
    }
    builder_.end_row();
  }

 private:
  /// Small values are more frequent: the square of a uniform.
  std::int64_t category(const ColumnSpec& column, std::size_t at) const {
    const double u = uniform_[at];
    return static_cast<std::int64_t>(u * u * static_cast<double>(std::max<std::int64_t>(column.ids(), 1)));
  }

  double hidden_score() const {
    double sum = 0, terms = 0;
    std::size_t at = 0;
    for (const ColumnSpec& column : options_.columns)
      for (std::int64_t k = 0; k < column.length; ++k, ++at) {
        if (column.kind == ColumnKind::Numeric)
          sum += weight(options_.seed, column, static_cast<std::uint64_t>(k)) * normal_[at];
        else if (column.kind == ColumnKind::Categorical)
          sum += weight(options_.seed, column, static_cast<std::uint64_t>(category(column, at)));
        else
          continue;
        terms += 1;
      }
    constexpr double kSpread = 2;  // of the scores, whatever the number of columns
    return terms == 0 ? 0 : kSpread * sum / std::sqrt(terms);
  }

  std::string add_column(std::size_t c, std::size_t at, double score) {
    const ColumnSpec& column = options_.columns[c];
    const auto count = static_cast<std::size_t>(column.length);
    const double probability = 1 / (1 + std::exp(-score));
    ints_.clear();
    switch (column.kind) {
      case ColumnKind::Skip:
        return {};
      case ColumnKind::Numeric:
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
        for (std::size_t k = 0; k < count; ++k) ints_.push_back(category(column, at + k));
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
