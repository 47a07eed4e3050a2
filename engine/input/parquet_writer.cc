#include "engine/input/parquet_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace braid {
namespace {

std::pair<std::uint32_t, std::uint32_t> range(const ParquetValues& values, std::int64_t row) {
  if (values.ends.empty()) return {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row + 1)};
  return {row == 0 ? 0 : values.ends[static_cast<std::size_t>(row - 1)],
          values.ends[static_cast<std::size_t>(row)]};
}

}  // namespace

bool takes_floats(const ColumnSpec& column) {
  return column.kind == ColumnKind::Numeric || column.kind == ColumnKind::Label ||
         column.kind == ColumnKind::Weight;
}

ParquetColumnWriter::ParquetColumnWriter(const ColumnSpec& spec) : spec_(spec), one_({spec}) {
  is_float_ = takes_floats(spec);
  // What the rules come to where nothing has to be looked at value by value.
  plain_floats_ = is_float_ && spec.length == 1 && spec.positive.empty();
  identity_ = plain_floats_ &&
              !(spec.kind == ColumnKind::Numeric && (spec.log1p || spec.shift != 0 || spec.scale != 1));
  plain_ints_ = spec.kind == ColumnKind::Class && spec.length == 1 && spec.vocabulary.empty();
}

void ParquetColumnWriter::write(const ParquetValues& values, std::int64_t rows, std::byte* out,
                                std::int64_t stride, const BadRow& bad) {
  if (plain_floats_ && values.kind != ParquetKind::Text)
    write_numbers(values, rows, reinterpret_cast<float*>(out), stride, bad);
  else if (plain_ints_ && values.kind == ParquetKind::Int && !values.by_dictionary && values.ends.empty())
    for (std::int64_t r = 0; r < rows; ++r)
      reinterpret_cast<std::int64_t*>(out)[r * stride] = values.ints[static_cast<std::size_t>(r)];
  else if (values.by_dictionary && spec_.length == 1)
    write_places(values, rows, reinterpret_cast<std::int64_t*>(out), stride, bad);
  else
    write_rows(values, rows, out, stride, bad);
}

double ParquetColumnWriter::scaled(double value) const {
  if (spec_.kind != ColumnKind::Numeric) return value;
  if (spec_.log1p) value = std::log1p(std::max(value, 0.0));
  return (value - spec_.shift) / spec_.scale;
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
    const double value =
        values.kind == ParquetKind::Int ? static_cast<double>(values.ints[first]) : values.floats[first];
    if (std::isnan(value) && numeric) {
      *out = missing;
      continue;
    }
    *out = static_cast<float>(scaled(value));
    if (!std::isfinite(value)) {
      *out = 0;
      bad(r, fmt::format("{} is not a finite number", value));
    } else if (spec_.kind == ColumnKind::Weight && value < 0) {
      *out = 0;
      bad(r, "a weight must not be negative");
    }
  }
}

void ParquetColumnWriter::write_places(const ParquetValues& values, std::int64_t rows, std::int64_t* out,
                                       std::int64_t stride, const BadRow& bad) {
  std::vector<std::string> problems;
  const std::size_t entries = values.kind == ParquetKind::Int ? values.ints.size() : values.texts.size();
  for (std::size_t i = 0; i < entries; ++i) {
    FieldValues value;
    if (values.kind == ParquetKind::Int)
      value.ints = std::span(values.ints).subspan(i, 1);
    else
      value.texts = std::span(values.texts).subspan(i, 1);
    std::string problem = one_.add_values(0, value);
    if (problem.empty()) {
      one_.end_row();
    } else {
      problems.resize(entries);
      problems[i] = std::move(problem);
      one_.blank_row();
    }
  }
  std::string no_value = one_.add_values(0, {});
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

void ParquetColumnWriter::write_rows(const ParquetValues& values, std::int64_t rows, std::byte* out,
                                     std::int64_t stride, const BadRow& bad) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto [first, last] = range(values, r);
    const std::size_t count = last - first;
    FieldValues value;
    if (values.kind == ParquetKind::Int && values.by_dictionary) {
      gathered_.clear();
      for (std::uint32_t i = first; i < last; ++i)
        gathered_.push_back(values.ints[static_cast<std::size_t>(values.places[i])]);
      value.ints = gathered_;
    } else if (values.kind == ParquetKind::Int) {
      value.ints = std::span(values.ints).subspan(first, count);
    } else if (values.kind == ParquetKind::Text) {
      value.texts = std::span(values.texts).subspan(first, count);
    } else {
      floats_.assign(values.floats.begin() + first, values.floats.begin() + last);
      value.floats = floats_;
    }
    const std::string problem = one_.add_values(0, value);
    if (problem.empty()) {
      one_.end_row();
    } else {
      one_.blank_row();
      bad(r, problem);
    }
  }
  const std::shared_ptr<Table> made = one_.finish(0);
  const std::size_t width = static_cast<std::size_t>(spec_.length), item = is_float_ ? 4 : 8;
  const std::byte* from = made->columns[0].data.raw();
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(out + static_cast<std::size_t>(r * stride) * item,
                from + static_cast<std::size_t>(r) * width * item, width * item);
}

}  // namespace braid
