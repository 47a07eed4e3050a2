#include "engine/input/schema/ragged_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace braid {
namespace {

/// Calls visit(column, row, first value, values) for each row.
template <class Visit>
void for_each_bag(const BatchBags& bags, const Visit& visit) {
  for (const StreamedRows::Picked& part : bags.rows) {
    const TableColumn& column = part.table->columns[bags.place];
    const std::int64_t* const offsets = column.offsets.data<std::int64_t>().data();
    for (const std::int64_t row : part.rows)
      visit(column, row, offsets[row], offsets[row + 1] - offsets[row]);
  }
}

template <class From, class To>
bool copy_numbers(const BatchBags& bags, bool weights, std::int64_t room, std::byte* out) {
  To* to = reinterpret_cast<To*>(out);
  To last{};  // what is behind the values is one of them, so that no other row is looked up for it
  for_each_bag(bags, [&](const TableColumn& column, std::int64_t, std::int64_t first, std::int64_t count) {
    room -= count;
    if (room < 0 || count == 0) return;
    const From* const from = (weights ? column.weights : column.data).template data<From>().data() + first;
    to = std::transform(from, from + count, to, [](From value) { return static_cast<To>(value); });
    last = to[-1];
  });
  if (room > 0) std::fill_n(to, room, weights ? To{} : last);
  return room >= 0;
}

}  // namespace

const std::string& shown_name(const TableColumn& column) {
  return column.fields.empty() ? column.name : column.fields[0].name;
}

std::int64_t count_values(const BatchBags& bags) {
  std::int64_t all = 0;
  for_each_bag(bags,
               [&](const TableColumn&, std::int64_t, std::int64_t, std::int64_t count) { all += count; });
  return all;
}

std::int64_t longest_bag(const BatchBags& bags) {
  std::int64_t longest = 0;
  for_each_bag(bags, [&](const TableColumn&, std::int64_t, std::int64_t, std::int64_t count) {
    longest = std::max(longest, count);
  });
  return longest;
}

void keep_dealt_rows(std::span<StreamedRows::Picked> rows, std::span<const std::size_t> places,
                     const RowWork& work, int rank, int world) {
  std::size_t all = 0;
  for (const StreamedRows::Picked& part : rows) all += part.rows.size();
  std::vector<std::uint64_t> values(all, 0), longest(all, 0);
  for (const std::size_t place : places) {
    std::size_t at = 0;
    for_each_bag({rows, place}, [&](const TableColumn&, std::int64_t, std::int64_t, std::int64_t count) {
      values[at] += static_cast<std::uint64_t>(count);
      longest[at] = std::max(longest[at], static_cast<std::uint64_t>(count));
      ++at;
    });
  }
  for (std::size_t r = 0; r < all; ++r)
    values[r] = values[r] * static_cast<std::uint64_t>(work.of_value) +
                longest[r] * longest[r] * static_cast<std::uint64_t>(work.of_pair);
  const std::vector<int> workers = deal_rows(values, world);
  auto worker = workers.begin();
  for (StreamedRows::Picked& part : rows)
    std::erase_if(part.rows, [&](std::int64_t) { return *worker++ != rank; });
}

void copy_offsets(const BatchBags& bags, std::int32_t* to) {
  std::int64_t at = 0;
  *to++ = 0;
  for_each_bag(bags, [&](const TableColumn&, std::int64_t, std::int64_t, std::int64_t count) {
    at += count;
    *to++ = static_cast<std::int32_t>(at);
  });
}

bool copy_values(const BatchBags& bags, DType dtype, std::int64_t room, std::byte* to) {
  if (dtype == DType::Float32) return copy_numbers<float, float>(bags, true, room, to);
  if (dtype == DType::Int32) return copy_numbers<std::int64_t, std::int32_t>(bags, false, room, to);
  return copy_numbers<std::int64_t, std::int64_t>(bags, false, room, to);
}

std::string too_many_values(const BatchBags& bags, std::int64_t room, std::uint64_t ticket, bool named) {
  std::int64_t all = 0, longest = -1, longest_row = 0;
  std::string name;
  for_each_bag(bags, [&](const TableColumn& column, std::int64_t row, std::int64_t, std::int64_t count) {
    name = shown_name(column);
    all += count;
    if (count <= longest) return;
    longest = count;
    longest_row = row;
  });
  return fmt::format(
      "input: column '{}': batch {} has {} ids, more than the {} that a step has room for ({} alone has {}): "
      "set "
      "batch_ids of the column to {} or more, or a length to cut its lists at",
      name, ticket, all, room, named ? fmt::format("row {}", longest_row + 1) : "one row", longest, all);
}

}  // namespace braid
