#include "engine/input/schema/ragged_room.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

namespace braid {
namespace {

constexpr double kLogOfRare = 27.631;  // ln(10^12)

std::vector<std::int64_t> lengths_of(const TableColumn& column) {
  const auto offsets = column.offsets.data<std::int64_t>();
  std::vector<std::int64_t> lengths(offsets.size() - 1);
  for (std::size_t r = 0; r < lengths.size(); ++r) lengths[r] = offsets[r + 1] - offsets[r];
  return lengths;
}

double bernstein(double mean, double deviation, double longest, double rows) {
  const double steps = kLogOfRare * longest / 3;
  return rows * mean + steps + std::sqrt(steps * steps + 2 * kLogOfRare * rows * deviation * deviation);
}

struct Lengths {
  double mean = 0, deviation = 0;
  std::int64_t longest = 0;
};

Lengths moments_of(const std::vector<std::int64_t>& lengths) {
  Lengths found;
  if (lengths.empty()) return found;
  double sum = 0, squares = 0;
  for (const std::int64_t length : lengths) {
    sum += static_cast<double>(length);
    squares += static_cast<double>(length) * static_cast<double>(length);
    found.longest = std::max(found.longest, length);
  }
  const auto count = static_cast<double>(lengths.size());
  found.mean = sum / count;
  found.deviation = std::sqrt(std::max(0.0, squares / count - found.mean * found.mean));
  return found;
}

/// Of neighbours, the first row being that of the last one.
std::int64_t most_of_neighbours(const std::vector<std::int64_t>& lengths, std::size_t rows) {
  std::int64_t now =
      std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(rows), std::int64_t{0});
  std::int64_t most = now;
  for (std::size_t r = 0; r + 1 < lengths.size(); ++r) {
    now += lengths[(r + rows) % lengths.size()] - lengths[r];
    most = std::max(most, now);
  }
  return most;
}

std::int64_t sum_of_longest(std::vector<std::int64_t> lengths, std::size_t rows) {
  const auto end = lengths.begin() + static_cast<std::ptrdiff_t>(rows);
  if (rows < lengths.size()) std::nth_element(lengths.begin(), end, lengths.end(), std::greater<>());
  return std::accumulate(lengths.begin(), end, std::int64_t{0});
}

}  // namespace

std::int64_t most_values(const TableColumn& column, std::int64_t rows, RowOrder order, bool carries) {
  const std::vector<std::int64_t> lengths = lengths_of(column);
  const std::int64_t all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const auto count = std::ssize(lengths);
  if (count == 0) return 0;
  carries = carries && order != RowOrder::AsTheyLie;
  // Epochs that a batch has whole; the rest of it are rows of one more, or of one before and one behind.
  const std::int64_t epochs = std::max<std::int64_t>(rows / count - (carries ? 1 : 0), 0);
  const std::int64_t whole = epochs * all;
  const auto rest = static_cast<std::size_t>(rows - epochs * count);
  if (rest == 0) return whole;
  if (order == RowOrder::AsTheyLie) return whole + most_of_neighbours(lengths, rest);
  const std::int64_t longest =
      carries ? 2 * sum_of_longest(lengths, (rest + 1) / 2) : sum_of_longest(lengths, rest);
  if (order == RowOrder::Any) return whole + longest;
  const Lengths its = moments_of(lengths);
  const double drawn =
      bernstein(its.mean, its.deviation, static_cast<double>(its.longest), static_cast<double>(rest));
  return whole + std::min(longest, static_cast<std::int64_t>(std::ceil(drawn)));
}

std::int64_t likely_values(const TableColumn& sample, std::int64_t rows) {
  const Lengths its = moments_of(lengths_of(sample));
  const double longest = 2 * static_cast<double>(std::max<std::int64_t>(its.longest, 4));
  return static_cast<std::int64_t>(
      std::ceil(bernstein(1.25 * its.mean, 2 * its.deviation, longest, static_cast<double>(rows))));
}

std::int64_t usual_values(const TableColumn& column, std::int64_t rows, bool sampled) {
  const std::vector<std::int64_t> lengths = lengths_of(column);
  if (lengths.empty()) return 0;
  const Lengths its = moments_of(lengths);
  const auto n = static_cast<double>(rows);
  const double error = sampled ? 3 * its.deviation / std::sqrt(static_cast<double>(lengths.size())) : 0;
  return static_cast<std::int64_t>(std::ceil(n * (its.mean + error) + 4.5 * std::sqrt(n) * its.deviation +
                                             static_cast<double>(its.longest)));
}

std::int64_t rounded_room(std::int64_t values) {
  constexpr std::int64_t kFine = 1024;
  if (values > kFine) {
    const auto step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(values - 1)) / 16);
    return (values + step - 1) / step * step;
  }
  std::int64_t room = 64;
  while (room < values) room = room % 3 == 0 ? room / 3 * 4 : room / 2 * 3;
  return room;
}

TableColumn rows_of_column(const TableColumn& column, std::span<const std::int64_t> rows) {
  TableColumn picked = column;
  const auto count = std::ssize(rows);
  if (!column.ragged()) {
    Shape shape = column.data.shape();
    const std::size_t row = shape[0] == 0 ? 0 : column.data.bytes() / static_cast<std::size_t>(shape[0]);
    shape.set_dim(0, count);
    picked.data = Tensor(column.data.dtype(), shape);
    for (std::size_t r = 0; r < rows.size(); ++r)
      std::memcpy(picked.data.raw() + r * row, column.data.raw() + static_cast<std::size_t>(rows[r]) * row,
                  row);
    return picked;
  }
  const auto from = column.offsets.data<std::int64_t>();
  picked.offsets = Tensor(DType::Int64, Shape{count + 1});
  const auto to = picked.offsets.data<std::int64_t>();
  to[0] = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto row = static_cast<std::size_t>(rows[r]);
    to[r + 1] = to[r] + from[row + 1] - from[row];
  }
  const auto copied = [&](const Tensor& values) {
    Tensor made(values.dtype(), Shape{to[rows.size()]});
    const std::size_t item = dtype_size(values.dtype());
    for (std::size_t r = 0; r < rows.size(); ++r)
      std::memcpy(made.raw() + static_cast<std::size_t>(to[r]) * item,
                  values.raw() + static_cast<std::size_t>(from[static_cast<std::size_t>(rows[r])]) * item,
                  static_cast<std::size_t>(to[r + 1] - to[r]) * item);
    return made;
  };
  picked.data = copied(column.data);
  if (column.weights.defined()) picked.weights = copied(column.weights);
  return picked;
}

}  // namespace braid
