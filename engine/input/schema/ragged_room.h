// Ragged columns: how much room a batch of rows needs, and rows of columns by their numbers.
//
// A step has room for a number of values of a column that is fixed before the first batch. With rows of mean
// length m, deviation d and most M values, n rows drawn without replacement have more than
//     n m + t,  t = L M / 3 + sqrt((L M / 3)^2 + 2 L n d^2),  L = ln(10^12)
// values with a probability of 10^-12 at most (Bernstein), and never more than the n longest ones.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "engine/input/schema/table.h"

namespace braid {

enum class RowOrder {
  AsTheyLie,  // neighbours, the first one behind the last
  Drawn,      // any rows are as likely
  Any,
};

/// Values that any `rows` rows have at most, of a ragged column; for Drawn all but surely. `carries`: rows
/// may be the last ones of an epoch and the first ones of the next, and so come twice. REQUIRES:
/// column.ragged().
std::int64_t most_values(const TableColumn& column, std::int64_t rows, RowOrder order, bool carries = false);
/// The same where the column is a sample of the rows that will come: a guess, with room for rows twice as
/// long.
std::int64_t likely_values(const TableColumn& sample, std::int64_t rows);
/// Values that nearly all batches of `rows` drawn rows have at most, where a rare one with more costs a new
/// program: n m + 4.5 sqrt(n) d + M, and three deviations of m where `sampled`: the column is a sample.
std::int64_t usual_values(const TableColumn& column, std::int64_t rows, bool sampled);
/// The next of 64, 96, 128, 192, ..., 1024 and then of sixteenths of the power of two below: data that differ
/// little have one room, and one program.
std::int64_t rounded_room(std::int64_t values);

/// Those rows of the column, one after another.
TableColumn rows_of_column(const TableColumn& column, std::span<const std::int64_t> rows);

}  // namespace braid
