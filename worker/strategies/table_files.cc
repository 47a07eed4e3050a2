#include "worker/strategies/table_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "base/checkpoint_values.h"
#include "base/error.h"
#include "base/init.h"
#include "comm/communicator.h"
#include "engine/exec/initial_variables.h"
#include "worker/strategies/hot_rows.h"

namespace braid::worker {
namespace {

/// Some rows of a table, whole ones.
struct Rows {
  std::vector<std::int64_t> keys;
  std::vector<float> values;  // [keys, dim], of a row-wise slot [keys]
};

std::string slot_name(const std::string& table, const std::string& slot) { return table + "/" + slot; }

/// The values, then the slots of a table, by the names of their variables.
std::vector<std::string> variables_of(const TableShard& table, const std::string& name) {
  std::vector<std::string> names{name};
  for (const std::string& slot : table.slots) names.push_back(slot_name(name, slot));
  return names;
}

/// Numbers of a row of the table's values, or of a slot.
std::int64_t width_of(const TableShard& table, bool is_slot) {
  return is_slot ? table.slot_dim() : table.dim;
}

/// Rows [rows r / world, rows (r + 1) / world): rank r's, when a table by columns becomes one by rows.
std::int64_t first_row(const TableShard& table, int rank) { return table.rows * rank / table.world; }

std::vector<float> rows_from_columns(const TableShard& table, std::span<const float> own,
                                     comm::Communicator& communicator, const WaitContext& wait) {
  const std::int64_t dim = table.local_dim(), begin = first_row(table, table.rank),
                     count = first_row(table, table.rank + 1) - begin;
  std::vector<std::int64_t> sends, receives;
  for (int rank = 0; rank < table.world; ++rank) {
    sends.push_back((first_row(table, rank + 1) - first_row(table, rank)) * dim);
    receives.push_back(count * dim);
  }
  std::vector<float> blocks(static_cast<std::size_t>(count * table.dim)), rows(blocks.size());
  communicator.all_to_all(own.data(), sends, blocks.data(), receives, DType::Float32, StreamRef::host(),
                          wait);
  for (std::int64_t k = 0; k < count; ++k)
    for (int rank = 0; rank < table.world; ++rank)
      std::copy_n(blocks.data() + (rank * count + k) * dim, dim, rows.data() + k * table.dim + rank * dim);
  return rows;
}

/// Those of this rank, of the values or of a slot.
Rows rows_of(const TableShard& table, const std::string& variable, std::int64_t width, VariableStore& store,
             comm::Communicator& communicator, const WaitContext& wait) {
  const Tensor tensor = *store.read(variable);
  const std::span<const float> own = tensor.data<float>();
  Rows rows;
  if (table.plan == TablePlan::Column) {
    for (std::int64_t row = first_row(table, table.rank); row < first_row(table, table.rank + 1); ++row)
      rows.keys.push_back(row);
    rows.values = rows_from_columns(table, own, communicator, wait);
    return rows;
  }
  std::optional<Tensor> hot;
  if (!table.hot.empty()) hot = store.read(hot_variable(table, variable));
  table.for_each_row([&](std::int64_t row, std::int64_t local) {
    rows.keys.push_back(row);
    const std::int64_t place = table.hot_place(row);
    const auto values = (place < 0 ? own : hot->data<float>())
                            .subspan(static_cast<std::size_t>((place < 0 ? local : place) * width),
                                     static_cast<std::size_t>(width));
    rows.values.insert(rows.values.end(), values.begin(), values.end());
  });
  return rows;
}

}  // namespace

std::string tables_file(int rank) { return fmt::format("tables-{}.shard", rank); }

ShardInfo write_tables(const std::vector<TableShard>& tables, VariableStore& store,
                       comm::Communicator& communicator, const std::filesystem::path& directory,
                       const WaitContext& wait) {
  ShardWriter out(directory / tables_file(communicator.rank()));
  for (const TableShard& table : tables) {
    if (!table.sharded()) continue;
    for (const std::string& name : variables_of(table, table.name)) {
      const bool is_slot = name != table.name;
      const Rows rows = rows_of(table, name, width_of(table, is_slot), store, communicator, wait);
      const auto count = std::ssize(rows.keys);
      if (!is_slot)
        out.add({name + "@keys", DType::Int64, {count}, rows.keys.size() * sizeof(std::int64_t)},
                std::as_bytes(std::span(rows.keys)));
      std::vector<std::int64_t> shape{count, table.dim};
      if (is_slot && table.row_wise) shape.pop_back();
      out.add({name + "@rows", DType::Float32, std::move(shape), rows.values.size() * sizeof(float)},
              std::as_bytes(std::span(rows.values)));
    }
  }
  return out.finish();
}

namespace {

/// To be filled and written: of a variable on the host its own memory. What a device has is not read.
Tensor memory_of(VariableStore& store, const std::string& name, const Shape& shape) {
  return store.domain(name) == Domain::Host ? *store.read(name) : Tensor(DType::Float32, shape);
}

/// Of a table that does not begin as its initialiser says.
void copy_own_rows(const TableShard& table, const Tensor& whole, VariableStore& store) {
  Tensor values = memory_of(store, table.name, table.local_shape());
  const std::span<float> own = values.data<float>();
  std::ranges::fill(own, 0.0F);
  const std::int64_t dim = table.local_dim();
  table.for_each_row([&](std::int64_t row, std::int64_t local) {
    std::copy_n(whole.data<float>().data() + row * table.dim + table.first_column(), dim,
                own.data() + local * dim);
  });
  store.write(table.name, values);
}

/// `whole`: of the table, where it does not begin as its initialiser says.
void initialize_hot_rows(const TableShard& table, const Tensor* whole, const RngKey& key,
                         VariableStore& store) {
  const std::string name = hot_variable(table, table.name);
  Tensor values = memory_of(store, name, Shape{std::ssize(table.hot), table.dim});
  const std::span<float> own = values.data<float>();
  std::ranges::fill(own, 0.0F);
  for (std::size_t place = 0; place < table.hot.size(); ++place) {
    const std::int64_t first = table.hot[place] * table.dim;
    const auto row =
        own.subspan(place * static_cast<std::size_t>(table.dim), static_cast<std::size_t>(table.dim));
    if (whole)
      std::copy_n(whole->data<float>().data() + first, table.dim, row.data());
    else
      fill_initial(table.init, key, static_cast<std::uint64_t>(first), row);
  }
  store.write(name, values);
}

}  // namespace

void initialize_tables(const std::vector<TableShard>& tables, const std::map<std::string, Tensor>& given,
                       std::uint64_t seed, Runtime& runtime) {
  VariableStore& store = runtime.variables();
  for (const TableShard& table : tables) {
    if (!table.sharded()) continue;
    const RngKey key = make_rng_key(seed, table.name);
    const auto whole = given.find(table.name);
    if (whole != given.end())
      copy_own_rows(table, whole->second, store);
    else
      fill_variable(runtime, table.name, table.local_shape(), table.initial_rows(key));
    std::vector<std::string> owners{table.name};
    if (!table.hot.empty()) {
      owners.push_back(hot_variable(table, table.name));
      initialize_hot_rows(table, whole == given.end() ? nullptr : &whole->second, key, store);
    }
    for (const std::string& owner : owners)
      for (std::size_t s = 0; s < table.slots.size(); ++s) {
        const std::int64_t rows = owner == table.name ? table.local_rows() : std::ssize(table.hot);
        fill_variable(runtime, slot_name(owner, table.slots[s]),
                      table.row_wise ? Shape{rows} : Shape{rows, table.local_dim()}, table.slot_initials[s]);
      }
  }
}

namespace {

/// A table's values, or one of its slots, in the making.
class Target {
 public:
  Target(const TableShard& table, const std::string& variable, VariableStore& store)
      : table_(table),
        is_number_(table.row_wise && variable != table.name),
        name_(variable),
        store_(store),
        tensor_(*store.read(variable)),
        own_(tensor_.data<float>()) {
    if (!table.hot.empty()) hot_ = *store.read(hot_variable(table, variable));
  }

  void put(std::int64_t row, const float* values) {
    const std::int64_t dim = is_number_ ? 1 : table_.local_dim();
    if (const std::int64_t place = table_.hot_place(row); place >= 0)
      std::copy_n(values, dim, hot_.data<float>().data() + place * dim);
    if (!table_.holds(row)) return;
    std::copy_n(values + table_.first_column(), dim, own_.data() + table_.local_row(row) * dim);
  }
  /// Numbers of a row in checkpoints.
  std::int64_t width() const { return is_number_ ? 1 : table_.dim; }
  void keep() {
    store_.write(name_, tensor_);
    if (!table_.hot.empty()) store_.write(hot_variable(table_, name_), hot_);
  }

 private:
  const TableShard& table_;
  const bool is_number_;  // a row's
  const std::string name_;
  VariableStore& store_;
  Tensor tensor_;
  std::span<float> own_;
  Tensor hot_;  // empty: there are none
};

class Restore {
 public:
  Restore(const CheckpointInfo& info, VariableStore& store) : info_(info), values_(info), store_(store) {
    for (const ShardInfo& shard : info.shards)
      readers_.push_back(std::make_unique<ShardReader>(info.directory / shard.file));
  }

  void table(const TableShard& table) {
    const std::vector<std::string> to = variables_of(table, table.name);
    for (const std::string& name : {table.name, table.former_name}) {
      if (name.empty()) continue;
      const bool by_rows = std::ranges::any_of(
          readers_, [&](const auto& reader) { return reader->find(name + "@keys") != nullptr; });
      if (!by_rows && !values_.values().contains(name)) continue;
      const std::vector<std::string> from = variables_of(table, name);
      for (std::size_t v = 0; v < to.size(); ++v) {
        Target target(table, to[v], store_);
        if (by_rows)
          rows(table, name, from[v], target);
        else if (v == 0 || values_.values().contains(from[v]))
          whole(table, from[v], target);
        target.keep();
      }
      return;
    }
    throw InvalidArgument(
        fmt::format("the checkpoint of step {} has no table '{}'", info_.meta.step, table.name));
  }

 private:
  void rows(const TableShard& table, const std::string& name, const std::string& variable, Target& target) {
    for (const auto& reader : readers_) {
      if (!reader->find(name + "@keys") || !reader->find(variable + "@rows")) continue;
      const std::vector<std::byte> keys = reader->read(name + "@keys"),
                                   rows = reader->read(variable + "@rows");
      const std::size_t count = keys.size() / sizeof(std::int64_t);
      const auto width = static_cast<std::size_t>(target.width());
      if (rows.size() != count * width * sizeof(float))
        refuse(variable, fmt::format("rows of {} bytes", count == 0 ? 0 : rows.size() / count), table);
      std::vector<float> row(width);
      for (std::size_t i = 0; i < count; ++i) {
        std::int64_t key = 0;
        std::memcpy(&key, keys.data() + i * sizeof(key), sizeof(key));
        if (key < 0 || key >= table.rows) refuse(variable, fmt::format("a row {}", key), table);
        std::memcpy(row.data(), rows.data() + i * row.size() * sizeof(float), row.size() * sizeof(float));
        target.put(key, row.data());
      }
    }
  }

  void whole(const TableShard& table, const std::string& variable, Target& target) {
    const std::vector<std::byte> bytes = values_.read(variable);
    const auto row = static_cast<std::size_t>(target.width()) * sizeof(float);
    const std::size_t expected = static_cast<std::size_t>(table.rows) * row;
    const bool is_former = !variable.starts_with(table.name);  // it may have had more rows
    if (is_former ? bytes.size() < expected : bytes.size() != expected)
      refuse(variable, fmt::format("{} bytes", bytes.size()), table);
    for (std::int64_t i = 0; i < table.rows; ++i)
      target.put(i, reinterpret_cast<const float*>(bytes.data() + static_cast<std::size_t>(i) * row));
  }

  [[noreturn]] void refuse(const std::string& variable, const std::string& has,
                           const TableShard& table) const {
    throw InvalidArgument(fmt::format("the checkpoint of step {}: '{}' has {}, the model's table is [{},{}]",
                                      info_.meta.step, variable, has, table.rows, table.dim));
  }

  const CheckpointInfo& info_;
  const CheckpointValues values_;
  VariableStore& store_;
  std::vector<std::unique_ptr<ShardReader>> readers_;
};

}  // namespace

void restore_tables(const std::vector<TableShard>& tables, const CheckpointInfo& info, VariableStore& store) {
  Restore restore(info, store);
  for (const TableShard& table : tables)
    if (table.sharded()) restore.table(table);
}

}  // namespace braid::worker
