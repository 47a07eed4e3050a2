// Rows of ragged columns into batches. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/input/stream/streamed_rows.h"

namespace braid {

/// A ragged column of the rows of a batch: the place-th of their tables.
struct BatchBags {
  std::span<const StreamedRows::Picked> rows;
  std::size_t place = 0;
};

/// Of the rows of a batch those stay that deal_rows() gives to `rank`. `places`: of the ragged columns that
/// make work.
void keep_dealt_rows(std::span<StreamedRows::Picked> rows, std::span<const std::size_t> places,
                     const RowWork& work, int rank, int world);

/// [rows + 1], from 0.
void copy_offsets(const BatchBags& bags, std::int32_t* to);
std::int64_t count_values(const BatchBags& bags);
/// Values of the longest bag; 0 where there is none.
std::int64_t longest_bag(const BatchBags& bags);
/// What users call a ragged column.
const std::string& shown_name(const TableColumn& column);
/// As int64 or int32, which holds them, the values, and the last one again up to `room`; as float32 their
/// weights, and weights of 0. False where they are more than that; `to` holds anything then.
bool copy_values(const BatchBags& bags, DType dtype, std::int64_t room, std::byte* to);
/// Of such: "input: column 'tags': batch 3 has 900 ids, more than ...", with what to do. `named`: whether
/// rows are those of a table that users know.
std::string too_many_values(const BatchBags& bags, std::int64_t room, std::uint64_t ticket, bool named);

}  // namespace braid
