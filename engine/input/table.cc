#include "engine/input/table.h"

#include <charconv>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

constexpr std::size_t kAlign = 64;
std::size_t align_up(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// Elements of one row of a column.
std::int64_t row_elements(const TableColumn& column) {
  std::int64_t n = 1;
  for (int axis = 1; axis < column.data.shape().rank(); ++axis) n *= column.data.shape()[axis];
  return n;
}

}  // namespace

const TableColumn* Table::find(const std::string& name) const {
  for (const auto& column : columns)
    if (column.name == name) return &column;
  return nullptr;
}

// Blocks of one size that come back when their batch is dropped.
struct Batcher::BlockPool : std::enable_shared_from_this<Batcher::BlockPool> {
  explicit BlockPool(std::size_t bytes) : block_bytes(bytes) {}
  std::shared_ptr<std::byte[]> take() {
    std::shared_ptr<std::byte[]> memory;
    {
      std::lock_guard lock(mu);
      if (!free.empty()) {
        memory = std::move(free.back());
        free.pop_back();
      }
    }
    if (!memory) memory = allocate_aligned(block_bytes);
    std::byte* raw = memory.get();
    return {raw, [pool = shared_from_this(), memory = std::move(memory)](std::byte*) mutable {
              std::lock_guard lock(pool->mu);
              pool->free.push_back(std::move(memory));
            }};
  }
  const std::size_t block_bytes;
  std::mutex mu;
  std::vector<std::shared_ptr<std::byte[]>> free;  // guarded by mu
};

Batcher::Batcher(std::shared_ptr<const Table> table, std::vector<std::string> columns, BatchOptions options)
    : table_(std::move(table)), options_(options) {
  for (const auto& name : columns) {
    const TableColumn* column = table_->find(name);
    if (!column) {
      std::string known;
      for (const auto& c : table_->columns) known += (known.empty() ? "" : ", ") + c.name;
      throw InvalidArgument("input: the model reads '" + name + "', but the data has only: " + known);
    }
    columns_.push_back(column);
  }
  if (table_->rows == 0) throw InvalidArgument("input: the data set is empty");
  if (options_.global_batch < 1 || options_.global_batch % options_.world != 0)
    throw InvalidArgument("input: global_batch_size " + std::to_string(options_.global_batch) +
                          " is not a positive multiple of the " + std::to_string(options_.world) +
                          " workers");
  batches_per_epoch_ = table_->rows / options_.global_batch;
  if (options_.keep_remainder && table_->rows % options_.global_batch != 0) ++batches_per_epoch_;
  if (batches_per_epoch_ == 0)
    throw InvalidArgument("input: " + std::to_string(table_->rows) +
                          " rows are fewer than one global batch of " +
                          std::to_string(options_.global_batch));
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    bytes += align_up(static_cast<std::size_t>(shape(c, options_.global_batch / options_.world).elements()) *
                      dtype_size(dtype(c)));
  pool_ = std::make_shared<BlockPool>(bytes);
}

DType Batcher::dtype(std::size_t column) const {
  DType stored = columns_[column]->data.dtype();
  return stored == DType::UInt8 ? DType::Float32 : stored;
}

Shape Batcher::shape(std::size_t column, std::int64_t rows) const {
  Shape shape = columns_[column]->data.shape();
  shape.set_dim(0, rows);
  return shape;
}

std::int64_t Batcher::rows_of(std::uint64_t ticket) const {
  const auto in_epoch = static_cast<std::int64_t>(ticket % static_cast<std::uint64_t>(batches_per_epoch_));
  const std::int64_t left = table_->rows - in_epoch * options_.global_batch;
  return std::min(left, options_.global_batch) / options_.world;
}

std::shared_ptr<const std::vector<std::int64_t>> Batcher::permutation(std::uint64_t epoch) {
  std::lock_guard lock(mu_);
  for (const auto& [e, order] : permutations_)
    if (e == epoch) return order;
  auto order = std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(table_->rows));
  std::iota(order->begin(), order->end(), 0);
  if (options_.shuffle) {  // Fisher-Yates with counter-based bits
    const RngKey key = make_rng_key(options_.seed, "shuffle", epoch);
    std::vector<std::uint32_t> bits(order->size() * 2);
    fill_bits(key, 0, bits);
    for (std::size_t i = order->size(); i > 1; --i) {
      const std::uint64_t r = (std::uint64_t{bits[2 * i - 2]} << 32) | bits[2 * i - 1];
      std::swap((*order)[i - 1], (*order)[r % i]);
    }
  }
  if (permutations_.size() >= 2) permutations_.erase(permutations_.begin());
  permutations_.emplace_back(epoch, order);
  return order;
}

Batch Batcher::make(std::uint64_t ticket) {
  const auto per_epoch = static_cast<std::uint64_t>(batches_per_epoch_);
  const std::uint64_t epoch = ticket / per_epoch;
  if (options_.keep_remainder && epoch > 0) throw OutOfRange("input: end of the data set");
  const auto order = permutation(epoch);
  Batch batch;
  batch.ticket = ticket;
  batch.rows = rows_of(ticket);
  batch.cursor = "ticket=" + std::to_string(ticket + 1);
  const std::int64_t first =
      static_cast<std::int64_t>(ticket % per_epoch) * options_.global_batch + options_.rank * batch.rows;
  auto block = pool_->take();
  batch.block = block;
  std::size_t offset = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const TableColumn& column = *columns_[c];
    const std::int64_t n = row_elements(column);
    std::byte* out = block.get() + offset;
    if (column.data.dtype() == DType::UInt8) {
      auto* to = reinterpret_cast<float*>(out);
      const auto* from = reinterpret_cast<const std::uint8_t*>(column.data.raw());
      for (std::int64_t r = 0; r < batch.rows; ++r) {
        const std::uint8_t* row = from + (*order)[static_cast<std::size_t>(first + r)] * n;
        for (std::int64_t i = 0; i < n; ++i) to[r * n + i] = static_cast<float>(row[i]) * column.scale;
      }
    } else {
      const std::size_t row_bytes = static_cast<std::size_t>(n) * dtype_size(column.data.dtype());
      for (std::int64_t r = 0; r < batch.rows; ++r)
        std::memcpy(out + static_cast<std::size_t>(r) * row_bytes,
                    column.data.raw() +
                        static_cast<std::size_t>((*order)[static_cast<std::size_t>(first + r)]) * row_bytes,
                    row_bytes);
    }
    batch.tensors.emplace_back(dtype(c), shape(c, batch.rows), std::shared_ptr<std::byte[]>(block, out));
    offset += align_up(batch.tensors.back().bytes());
  }
  return batch;
}

std::uint64_t Batcher::ticket_of(const std::string& cursor) {
  constexpr std::string_view prefix = "ticket=";
  std::uint64_t ticket = 0;
  const char* end = cursor.data() + cursor.size();
  if (!cursor.starts_with(prefix) || std::from_chars(cursor.data() + prefix.size(), end, ticket).ptr != end)
    throw DataLoss("input cursor '" + cursor + "' in the checkpoint is not of the form ticket=<number>");
  return ticket;
}

}  // namespace braid
