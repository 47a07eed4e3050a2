#include "engine/input/schema/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/schema/epoch_orders.h"
#include "engine/input/schema/gather_rows.h"
#include "engine/input/schema/ragged_batch.h"
#include "engine/input/schema/ragged_room.h"
#include "engine/input/schema/shuffled_rows.h"
#include "engine/input/stream/streamed_rows.h"

namespace braid {
namespace {

/// int64 ids, all of them of fields that say that they fit int32.
bool has_narrow_ids(const TableColumn& column) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return column.data.dtype() == DType::Int64 && !column.fields.empty() &&
         std::ranges::all_of(column.fields, [](const TableField& f) { return f.ids > 0 && f.ids <= kMost; });
}

}  // namespace

const TableColumn* Table::find(const std::string& name) const {
  for (const auto& column : columns)
    if (column.name == name) return &column;
  return nullptr;
}

void check_global_batch(std::int64_t rows, int world) {
  if (rows < world)
    throw InvalidArgument("input.global_batch_size is " + std::to_string(rows) +
                          ", fewer than one row for each of the " + std::to_string(world) + " workers");
}

Batcher::Batcher(std::shared_ptr<const Table> table, std::vector<std::string> columns, BatchOptions options)
    : table_(std::move(table)), rows_(table_->rows), options_(std::move(options)) {
  find_columns(columns);
  find_work();
  if (rows_ == 0) throw InvalidArgument("input: the data set is empty");
  check_global_batch(options_.global_batch, options_.world);
  batches_per_epoch_ = rows_ / options_.global_batch;
  if (options_.keep_remainder && rows_ % options_.global_batch != 0) ++batches_per_epoch_;
  if (options_.shuffle_buffer < 0) throw InvalidArgument("input: shuffle_buffer must not be negative");
  if (batches_per_epoch_ == 0 && !options_.carry_remainder)
    throw InvalidArgument("input: " + std::to_string(rows_) + " rows are fewer than one global batch of " +
                          std::to_string(options_.global_batch));
}

Batcher::Batcher(std::shared_ptr<StreamedRows> rows, std::vector<std::string> columns, BatchOptions options)
    : table_(rows->columns()),
      streamed_(std::move(rows)),
      rows_(streamed_->rows()),
      options_(std::move(options)),
      batches_per_epoch_(streamed_->batches_per_epoch()) {
  find_columns(columns);
  find_work();
}

void Batcher::find_work() {
  for (const Delivered& column : columns_)
    if (column.part == Part::Values) work_places_.push_back(column.place);
}

Batcher::Delivered Batcher::find_column(const std::string& name) const {
  const auto delivered = [&](const TableColumn& column, Part part) {
    return Delivered{static_cast<std::size_t>(&column - table_->columns.data()), part, 0};
  };
  std::string known;
  for (const TableColumn& column : table_->columns) {
    if (column.name == name) return delivered(column, column.ragged() ? Part::Values : Part::Rows);
    if (column.ragged() && name == column.name + "/offsets") return delivered(column, Part::Offsets);
    if (column.ragged() && name == column.name + "/longest") return delivered(column, Part::Longest);
    if (column.weights.defined() && name == column.name + "/weights") return delivered(column, Part::Weights);
    known += (known.empty() ? "" : ", ") + column.name;
  }
  throw InvalidArgument("input: the model reads '" + name + "', but the data has only: " + known);
}

/// Values of a ragged column that this worker's part of a batch may have; of the largest part, so that all
/// workers that see the same rows have the same.
std::int64_t Batcher::room_for(const TableColumn& column) const {
  if (column.batch_values > 0) return column.batch_values;
  const std::int64_t rows = row_part(options_.global_batch, 0, options_.world).rows;
  std::int64_t most = INT64_MAX;
  if (!column.fields.empty() && column.fields[0].length > 0) most = column.fields[0].length * rows;
  if (streamed_) {
    const TableColumn* sample = streamed_->sample()->find(column.name);
    return rounded_room(std::min(
        most, options_.room_grows ? usual_values(*sample, rows, true) : likely_values(*sample, rows)));
  }
  const bool dealt = options_.equal_work && options_.world > 1;
  const RowOrder order = !options_.shuffle && dealt    ? RowOrder::Any
                         : !options_.shuffle           ? RowOrder::AsTheyLie
                         : options_.shuffle_buffer > 0 ? RowOrder::Any
                                                       : RowOrder::Drawn;
  most = std::min(most, most_values(column, rows, order, options_.carry_remainder));
  if (options_.room_grows && order == RowOrder::Drawn)
    most = std::min(most, usual_values(column, rows, false));
  return rounded_room(most);
}

void Batcher::find_columns(const std::vector<std::string>& names) {
  check_global_batch(options_.global_batch, options_.world);
  std::map<std::size_t, std::int64_t> rooms;
  for (const auto& name : names) {
    Delivered found = find_column(name);
    if (found.part == Part::Values || found.part == Part::Weights) {
      const auto [room, fresh] = rooms.try_emplace(found.place);
      if (fresh) room->second = room_for(table_->columns[found.place]);
      found.room = room->second;
    }
    columns_.push_back(found);
  }
  needs_longest_ = std::ranges::any_of(columns_, [](const Delivered& c) { return c.part == Part::Longest; });
  set_block_bytes();
}

void Batcher::keep_columns(const std::vector<std::string>& names) {
  columns_.clear();
  find_columns(names);
}

void Batcher::set_block_bytes() {
  block_bytes_ = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    block_bytes_ += BlockPool::aligned(
        static_cast<std::size_t>(shape(c, part_of(options_.global_batch).rows).elements()) *
        dtype_size(dtype(c)));
  pool_ = BlockPool::make(options_.allocate);
}

bool Batcher::outgrown() const {
  std::lock_guard lock(mu_);
  return !wanted_.empty();
}

std::string Batcher::grow() {
  std::map<std::size_t, std::int64_t> wanted;
  {
    std::lock_guard lock(mu_);
    wanted = std::exchange(wanted_, {});
  }
  std::string text;
  for (Delivered& column : columns_) {
    const auto found = wanted.find(column.place);
    if (found == wanted.end() || column.room == 0) continue;
    const std::int64_t room = std::max(column.room, rounded_room(found->second));
    if (column.part == Part::Values)
      text += fmt::format("{}'{}' from {} to {}", text.empty() ? "" : ", ",
                          shown_name(table_->columns[column.place]), column.room, room);
    column.room = room;
  }
  set_block_bytes();
  return text;
}

DType Batcher::dtype(std::size_t column) const {
  if (columns_[column].part == Part::Offsets || columns_[column].part == Part::Longest) return DType::Int32;
  if (columns_[column].part == Part::Weights) return DType::Float32;
  const DType stored = column_of(*table_, column).data.dtype();
  if (options_.as_stored && has_narrow_ids(column_of(*table_, column))) return DType::Int32;
  return stored == DType::UInt8 && !options_.as_stored ? DType::Float32 : stored;
}

Shape Batcher::shape(std::size_t column, std::int64_t rows) const {
  if (columns_[column].part == Part::Offsets) return Shape{rows + 1};
  if (columns_[column].part == Part::Longest) return Shape{2};
  if (columns_[column].part != Part::Rows) return Shape{columns_[column].room};
  Shape shape = column_of(*table_, column).data.shape();
  shape.set_dim(0, rows);
  return shape;
}

RowPart Batcher::part_of(std::int64_t rows) const { return row_part(rows, options_.rank, options_.world); }

/// All workers' together.
std::int64_t Batcher::global_rows_of(std::uint64_t ticket) const {
  if (options_.carry_remainder) return options_.global_batch;
  const auto in_epoch = static_cast<std::int64_t>(ticket % static_cast<std::uint64_t>(batches_per_epoch_));
  const std::int64_t left = rows_ - in_epoch * options_.global_batch;
  return std::min(left, options_.global_batch);
}

std::int64_t Batcher::rows_of(std::uint64_t ticket) const { return part_of(global_rows_of(ticket)).rows; }

Batcher::Order Batcher::order_of(std::uint64_t epoch) const {
  if (options_.shuffle)
    return std::make_shared<const std::vector<std::int64_t>>(
        shuffled_rows(rows_, make_rng_key(options_.seed, "shuffle", epoch), options_.shuffle_buffer));
  auto order = std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(rows_));
  std::iota(order->begin(), order->end(), 0);
  return order;
}

/// Made by the first thread that asks; the others wait for it without the lock. In a job that goes on behind
/// its first epoch, the next ones are begun with it.
Batcher::Order Batcher::permutation(std::uint64_t epoch) {
  if (!options_.shuffle) epoch = 0;
  const std::uint64_t ahead = epochs_ahead(rows_, options_.global_batch);
  std::promise<Order> mine;
  std::shared_future<Order> found;
  {
    std::lock_guard lock(mu_);
    const bool goes_on = rows_ >= kFewRows && epoch > 0 && find_order(permutations_, epoch - 1);
    if (const auto* known = find_order(permutations_, epoch))
      found = *known;
    else
      keep_order(permutations_, epoch, mine.get_future().share(), ahead);
    for (std::uint64_t next = epoch + 1; goes_on && next <= epoch + ahead; ++next)
      if (!find_order(permutations_, next))
        keep_order(permutations_, next,
                   std::async(std::launch::async, [this, next] { return order_of(next); }).share(), ahead);
  }
  if (found.valid()) return found.get();
  try {
    Order order = order_of(epoch);
    mine.set_value(order);
    return order;
  } catch (...) {
    mine.set_exception(std::current_exception());
    throw;
  }
}

/// On a thread of its own, so that no batch waits for it.
void Batcher::prepare_permutation(std::uint64_t epoch) {
  std::lock_guard lock(mu_);
  if (rows_ >= kFewRows && !find_order(permutations_, epoch))
    keep_order(permutations_, epoch,
               std::async(std::launch::async, [this, epoch] { return order_of(epoch); }).share(),
               epochs_ahead(rows_, options_.global_batch));
}

/// The table's rows that make up a part of batch `ticket`.
void Batcher::pick_rows(std::uint64_t ticket, RowPart its, std::vector<std::int64_t>& rows) {
  const auto count = static_cast<std::uint64_t>(its.rows), part = static_cast<std::uint64_t>(its.first);
  const auto batch = static_cast<std::uint64_t>(options_.global_batch);
  rows.clear();
  if (options_.carry_remainder) {
    const auto of_epoch = static_cast<std::uint64_t>(rows_);
    for (std::uint64_t at = ticket * batch + part; rows.size() < count;) {
      const auto order = permutation(at / of_epoch);
      if (options_.shuffle && at % of_epoch >= of_epoch / 2) prepare_permutation(at / of_epoch + 1);
      for (; rows.size() < count; ++at) {
        rows.push_back((*order)[at % of_epoch]);
        if ((at + 1) % of_epoch == 0) {
          ++at;
          break;
        }
      }
    }
    return;
  }
  const auto per_epoch = static_cast<std::uint64_t>(batches_per_epoch_);
  const auto order = permutation(ticket / per_epoch);
  if (options_.shuffle && !options_.keep_remainder && ticket % per_epoch >= per_epoch / 2)
    prepare_permutation(ticket / per_epoch + 1);
  const auto first = order->begin() + static_cast<std::ptrdiff_t>(ticket % per_epoch * batch + part);
  rows.assign(first, first + static_cast<std::ptrdiff_t>(count));
}

std::string Batcher::cursor(std::uint64_t ticket) const {
  const auto rows = static_cast<std::uint64_t>(rows_);
  const auto batch = static_cast<std::uint64_t>(options_.global_batch);
  std::uint64_t epoch = 0, position = 0;
  if (const std::string place = streamed_ ? streamed_->place_of(ticket) : ""; !place.empty())
    return fmt::format("ticket={} {} batch={} seed={} {}", ticket, place, batch, options_.seed,
                       streamed_->order_id());
  if (options_.carry_remainder) {
    epoch = ticket * batch / rows;
    position = ticket * batch % rows;
  } else {
    const auto per_epoch = static_cast<std::uint64_t>(batches_per_epoch_);
    epoch = ticket / per_epoch;
    position = ticket % per_epoch * batch;
  }
  return fmt::format("ticket={} epoch={} position={} rows={} batch={} seed={}{}", ticket, epoch, position,
                     rows, batch, options_.seed, streamed_ ? " " + streamed_->order_id() : "");
}

void Batcher::copy_column(std::size_t column, const Table& table, const std::vector<std::int64_t>& rows,
                          std::byte* out) const {
  gather_rows(column_of(table, column), rows, dtype(column), out);
}

/// Of a batch.
struct Batcher::Rows {
  std::span<const StreamedRows::Picked> of_tables;
  std::span<const std::int64_t> longest;  // of each delivered column that asks for it, over all workers' rows
};

void Batcher::copy_part(std::size_t column, const Rows& rows, std::uint64_t ticket, std::size_t row_bytes,
                        std::byte* to) {
  const Delivered& part = columns_[column];
  const BatchBags bags{rows.of_tables, part.place};
  switch (part.part) {
    case Part::Offsets:
      return copy_offsets(bags, reinterpret_cast<std::int32_t*>(to));
    case Part::Longest: {
      const std::int64_t own = longest_bag(bags);
      auto* const both = reinterpret_cast<std::int32_t*>(to);
      both[0] = static_cast<std::int32_t>(own);
      both[1] = static_cast<std::int32_t>(rows.longest.empty() ? own : rows.longest[column]);
      return;
    }
    case Part::Values:
    case Part::Weights:
      if (copy_values(bags, dtype(column), part.room, to)) return;
      if (table_->columns[part.place].batch_values == 0) {
        std::lock_guard lock(mu_);
        std::int64_t& wanted = wanted_[part.place];
        wanted = std::max(wanted, count_values(bags));
      }
      throw InvalidArgument(too_many_values(bags, part.room, ticket, !streamed_));
    case Part::Rows:
      for (const StreamedRows::Picked& each : rows.of_tables) {
        copy_column(column, *each.table, each.rows, to);
        to += row_bytes * each.rows.size();
      }
  }
}

Batch Batcher::make(std::uint64_t ticket, const std::stop_token& stop) {
  if (options_.keep_remainder && ticket >= static_cast<std::uint64_t>(batches_per_epoch_))
    throw OutOfRange("input: end of the data set");
  thread_local std::vector<StreamedRows::Picked> picked;
  std::size_t parts = 1;
  if (streamed_) {
    parts = streamed_->pick(ticket, picked, stop);
  } else {
    if (picked.empty()) picked.emplace_back();
    const std::int64_t all = global_rows_of(ticket);
    pick_rows(ticket, picks_all() ? RowPart{0, all} : part_of(all), picked[0].rows);
    picked[0].table = table_;
  }
  std::vector<std::int64_t> longest;
  if (picks_all() && needs_longest_)
    for (const Delivered& column : columns_)
      longest.push_back(
          column.part == Part::Longest ? longest_bag({std::span(picked).first(parts), column.place}) : 0);
  if (picks_all() && !deals()) {
    const RowPart part = part_of(global_rows_of(ticket));
    std::vector<std::int64_t>& rows = picked[0].rows;
    rows.erase(rows.begin() + part.first + part.rows, rows.end());
    rows.erase(rows.begin(), rows.begin() + part.first);
  }
  if (deals())
    keep_dealt_rows(std::span(picked).first(parts), work_places_, options_.work, options_.rank,
                    options_.world);
  Batch batch;
  batch.ticket = ticket;
  batch.rows = 0;
  for (std::size_t p = 0; p < parts; ++p) batch.rows += std::ssize(picked[p].rows);
  batch.cursor = "ticket=" + std::to_string(ticket + 1);  // short enough not to allocate
  auto block = pool_->take(block_bytes_);
  batch.block = block;
  std::size_t offset = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::byte* const out = block.get() + offset;
    batch.tensors.emplace_back(dtype(c), shape(c, batch.rows), std::shared_ptr<std::byte[]>(block, out));
    const std::size_t bytes = batch.tensors.back().bytes();
    const std::size_t row = batch.rows == 0 ? 0 : bytes / static_cast<std::size_t>(batch.rows);
    copy_part(c, {std::span(picked).first(parts), longest}, ticket, row, out);
    offset += BlockPool::aligned(bytes);
  }
  // What a thread keeps for its next batch are vectors, not tables.
  for (std::size_t p = 0; p < parts; ++p) picked[p].table.reset();
  return batch;
}

std::uint64_t Batcher::ticket_of(const std::string& cursor) {
  constexpr std::string_view prefix = "ticket=";
  std::uint64_t ticket = 0;
  const char* end = cursor.data() + cursor.size();
  if (cursor.starts_with(prefix))
    if (const auto read = std::from_chars(cursor.data() + prefix.size(), end, ticket);
        read.ec == std::errc() && (read.ptr == end || *read.ptr == ' '))
      return ticket;
  throw DataLoss("input cursor '" + cursor + "' in the checkpoint does not begin with ticket=<number>");
}

}  // namespace braid
