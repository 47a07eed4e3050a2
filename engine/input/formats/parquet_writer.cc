#include "engine/input/formats/parquet_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace braid {
namespace {

std::string not_finite(double value) {
  return fmt::format("{:g} is not a finite number{}", value, std::isfinite(value) ? " as a float" : "");
}

std::pair<std::uint32_t, std::uint32_t> range(const ParquetValues& values, std::int64_t row) {
  if (values.ends.empty()) return {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row + 1)};
  return {row == 0 ? 0 : values.ends[static_cast<std::size_t>(row - 1)],
          values.ends[static_cast<std::size_t>(row)]};
}

}  // namespace

bool takes_floats(const ColumnSpec& column) { return is_float_kind(column.kind) || column.is_bucket(); }

namespace {

/// As a schema of its own: without the columns that it belongs to.
ColumnSpec alone(ColumnSpec spec) {
  spec.weights.clear();
  if (spec.kind != ColumnKind::Numeric || !spec.ragged) return spec;
  spec.ragged = false;
  spec.length = 1;
  return spec;
}

}  // namespace

ParquetColumnWriter::ParquetColumnWriter(const ColumnSpec& spec) : spec_(spec), one_({alone(spec)}) {
  is_float_ = is_float_kind(spec.kind);
  // What the rules come to where nothing has to be looked at value by value.
  plain_floats_ = is_float_ && spec.length == 1 && spec.positive.empty();
  const bool is_scaled = spec.log1p || spec.shift != 0 || spec.scale != 1 || spec.has_part();
  identity_ = plain_floats_ && !(spec.kind == ColumnKind::Numeric && is_scaled);
  plain_ints_ = spec.kind == ColumnKind::Class && spec.length == 1 && spec.vocabulary.empty();
}

void ParquetColumnWriter::write(const ParquetValues& values, std::int64_t rows, std::byte* out,
                                std::int64_t stride, const BadRow& bad) {
  if (plain_floats_ && values.kind != ParquetKind::Text)
    write_numbers(values, rows, reinterpret_cast<float*>(out), stride, bad);
  else if (plain_ints_ && values.kind == ParquetKind::Int && !values.by_dictionary && !values.is_unsigned &&
           values.ends.empty())
    for (std::int64_t r = 0; r < rows; ++r)
      reinterpret_cast<std::int64_t*>(out)[r * stride] = values.ints[static_cast<std::size_t>(r)];
  else if (values.by_dictionary && !spec_.is_list())
    write_places(values, rows, reinterpret_cast<std::int64_t*>(out), stride, bad);
  else
    write_rows(values, rows, out, stride, bad);
}

double ParquetColumnWriter::scaled(double value) const {
  if (spec_.kind != ColumnKind::Numeric) return value;
  if (spec_.has_part()) value = seconds_of_number(value);
  if (spec_.log1p) value = std::log1p(std::max(value, 0.0));
  return (value - spec_.shift) / spec_.scale;
}

double ParquetColumnWriter::number_of(const ParquetValues& values, std::uint32_t place) {
  if (values.kind == ParquetKind::Float) return values.floats[place];
  const std::int64_t value = values.ints[place];
  return values.is_unsigned ? static_cast<double>(static_cast<std::uint64_t>(value))
                            : static_cast<double>(value);
}

void ParquetColumnWriter::write_numbers(const ParquetValues& values, std::int64_t rows, float* out,
                                        std::int64_t stride, const BadRow& bad) {
  const bool numeric = spec_.kind == ColumnKind::Numeric;
  const auto missing = static_cast<float>(scaled(spec_.missing));
  for (std::int64_t r = 0; r < rows; ++r, out += stride) {
    const auto [first, last] = range(values, r);
    if (first == last) {
      *out = numeric ? missing : 0;
      if (!numeric) bad(r, "has no value");
      continue;
    }
    const double value = number_of(values, first);
    if (std::isnan(value) && numeric) {
      *out = missing;
      continue;
    }
    *out = static_cast<float>(scaled(value));
    if (!std::isfinite(*out)) {
      *out = 0;
      bad(r, not_finite(value));
    } else if (spec_.kind == ColumnKind::Weight && value < 0) {
      *out = 0;
      bad(r, "a weight must not be negative");
    }
  }
}

void ParquetColumnWriter::write_places(const ParquetValues& values, std::int64_t rows, std::int64_t* out,
                                       std::int64_t stride, const BadRow& bad) {
  std::vector<std::string> problems;
  std::vector<std::uint64_t> entry_hashes;
  const std::size_t entries = values.kind == ParquetKind::Int ? values.ints.size() : values.texts.size();
  for (std::size_t i = 0; i < entries; ++i) {
    FieldValues value{.is_unsigned = values.is_unsigned};
    if (values.kind == ParquetKind::Int)
      value.ints = std::span(values.ints).subspan(i, 1);
    else
      value.texts = std::span(values.texts).subspan(i, 1);
    std::string problem = one_.add_values(0, value);
    if (keeps_hashes_) entry_hashes.push_back(one_.hash_of(0));
    if (problem.empty()) {
      one_.end_row();
    } else {
      problems.resize(entries);
      problems[i] = std::move(problem);
      one_.blank_row();
    }
  }
  std::string no_value = one_.add_values(0, {});
  if (keeps_hashes_) {
    entry_hashes.push_back(one_.hash_of(0));
    hashes_.clear();
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto [first, last] = range(values, r);
      hashes_.push_back(
          entry_hashes[first == last ? entries : static_cast<std::size_t>(values.places[first])]);
    }
  }
  if (no_value.empty())
    one_.end_row();
  else
    one_.blank_row();
  const std::shared_ptr<Table> made = one_.finish(0);
  const auto ids = made->columns[0].data.data<std::int64_t>();
  for (std::int64_t r = 0; r < rows; ++r, out += stride) {
    const auto [first, last] = range(values, r);
    if (first == last) {
      *out = ids[entries];
      if (!no_value.empty()) bad(r, no_value);
      continue;
    }
    const auto place = static_cast<std::size_t>(values.places[first]);
    *out = ids[place];
    if (!problems.empty() && !problems[place].empty()) bad(r, problems[place]);
  }
}

void ParquetColumnWriter::keep_hashes() {
  keeps_hashes_ = true;
  one_.keep_hash(0);
}

FieldValues ParquetColumnWriter::values_of_row(const ParquetValues& values, std::int64_t row) {
  const auto [first, last] = range(values, row);
  const std::size_t count = last - first;
  FieldValues value{.is_unsigned = values.is_unsigned, .are_items = values.is_list};
  if (values.by_dictionary && values.kind != ParquetKind::Float) {
    gathered_.clear();
    gathered_texts_.clear();
    for (std::uint32_t i = first; i < last; ++i) {
      const auto place = static_cast<std::size_t>(values.places[i]);
      if (values.kind == ParquetKind::Int)
        gathered_.push_back(values.ints[place]);
      else
        gathered_texts_.push_back(values.texts[place]);
    }
    value.ints = gathered_;
    value.texts = gathered_texts_;
  } else if (values.kind == ParquetKind::Int) {
    value.ints = std::span(values.ints).subspan(first, count);
  } else if (values.kind == ParquetKind::Text) {
    value.texts = std::span(values.texts).subspan(first, count);
  } else {
    value.doubles = std::span(values.floats).subspan(first, count);
  }
  return value;
}

std::shared_ptr<Table> ParquetColumnWriter::make_rows(const ParquetValues& values, std::int64_t rows,
                                                      const BadRow& bad) {
  hashes_.clear();
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::string problem = one_.add_values(0, values_of_row(values, r));
    if (keeps_hashes_) hashes_.push_back(one_.hash_of(0));
    if (problem.empty()) {
      one_.end_row();
    } else {
      one_.blank_row();
      bad(r, problem);
    }
  }
  return one_.finish(0);
}

void ParquetColumnWriter::write_rows(const ParquetValues& values, std::int64_t rows, std::byte* out,
                                     std::int64_t stride, const BadRow& bad) {
  const std::shared_ptr<Table> made = make_rows(values, rows, bad);
  const std::size_t width = static_cast<std::size_t>(spec_.length), item = is_float_ ? 4 : 8;
  const std::byte* from = made->columns[0].data.raw();
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(out + static_cast<std::size_t>(r * stride) * item,
                from + static_cast<std::size_t>(r) * width * item, width * item);
}

void ParquetColumnWriter::write_weights(const ParquetValues& values, std::int64_t rows, ParquetBags& bags,
                                        const BadRow& bad) {
  for (std::int64_t r = 0; r < rows; ++r) {
    auto [first, last] = range(values, r);
    if (spec_.length > 0) last = std::min(last, first + static_cast<std::uint32_t>(spec_.length));
    const std::size_t before = bags.weights.size();
    for (std::uint32_t i = first; i < last; ++i) {
      if (values.kind == ParquetKind::Text) throw DataLoss("has texts, weights are numbers");
      const double value = number_of(values, i);
      bags.weights.push_back(static_cast<float>(scaled(value)));
      if (std::isfinite(bags.weights.back())) continue;
      bags.weights.resize(before);
      bad(r, not_finite(value));
      break;
    }
    bags.weight_ends.push_back(std::ssize(bags.weights));
  }
}

void ParquetColumnWriter::write_bags(const ParquetValues& values, std::int64_t rows, ParquetBags& bags,
                                     const BadRow& bad) {
  if (is_float_) return write_weights(values, rows, bags, bad);
  const std::shared_ptr<Table> made = make_rows(values, rows, bad);
  const TableColumn& column = made->columns[0];
  const auto ids = column.data.data<std::int64_t>();
  const std::int64_t before = std::ssize(bags.ids);
  bags.ids.insert(bags.ids.end(), ids.begin(), ids.end());
  for (const std::int64_t end : column.offsets.data<std::int64_t>().subspan(1))
    bags.ends.push_back(before + end);
  if (!column.weights.defined()) return;
  const auto weights = column.weights.data<float>();
  bags.weights.insert(bags.weights.end(), weights.begin(), weights.end());
}

}  // namespace braid
