// Columns from arrays: tensors in memory, and .npy files.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "engine/input/formats/parquet_numbers.h"
#include "engine/input/formats/readers.h"

namespace braid {
namespace {

template <class From, class To>
Tensor cast(const Tensor& from) {
  Tensor to(dtype_of<To>, from.shape());
  const auto in = from.data<From>();
  const auto out = to.data<To>();
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = static_cast<To>(in[i]);
  return to;
}

Tensor of_halves(const Tensor& from) {
  Tensor to(DType::Float32, from.shape());
  const auto* in = reinterpret_cast<const std::uint8_t*>(from.raw());
  for (float& value : to.data<float>()) value = half_to_float(in), in += 2;
  return to;
}

/// Throws: InvalidArgument, where int64 does not hold one of them.
Tensor of_uint64(const std::string& name, const Tensor& from) {
  const auto values = from.data<std::uint64_t>();
  const auto large =
      std::ranges::find_if(values, [](std::uint64_t value) { return value > std::uint64_t{INT64_MAX}; });
  if (large != values.end())
    throw InvalidArgument("array '" + name + "': " + std::to_string(*large) + " is beyond int64");
  return cast<std::uint64_t, std::int64_t>(from);
}

/// Columns are float32 or int64, as the other readers make them; what is that already keeps its memory.
Tensor as_column(const std::string& name, const Tensor& array) {
  switch (array.dtype()) {
    case DType::Float32:
    case DType::Int64:
      return array;
    case DType::Float64:
      return cast<double, float>(array);
    case DType::Int32:
      return cast<std::int32_t, std::int64_t>(array);
    case DType::Int16:
      return cast<std::int16_t, std::int64_t>(array);
    case DType::Int8:
      return cast<std::int8_t, std::int64_t>(array);
    case DType::UInt8:
      return cast<std::uint8_t, std::int64_t>(array);
    case DType::UInt16:
      return cast<std::uint16_t, std::int64_t>(array);
    case DType::UInt32:
      return cast<std::uint32_t, std::int64_t>(array);
    case DType::UInt64:
      return of_uint64(name, array);
    case DType::Float16:
      return of_halves(array);
    case DType::Bool:
      return cast<bool, std::int64_t>(array);
    default:
      throw InvalidArgument("array '" + name +
                            "': columns are integers, bool, float16, float32 or float64, got " +
                            std::string(dtype_name(array.dtype())));
  }
}

Tensor read_array(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  const NpyArray array = parse_npy(std::as_bytes(std::span(bytes)), file.string());
  if (array.dtype == DType::String)
    throw InvalidArgument(file.string() + ": columns are numbers, got strings");
  Tensor tensor(array.dtype, Shape(array.shape));
  std::memcpy(tensor.raw(), array.data.data(), tensor.bytes());
  return tensor;
}

/// The rows of a table that is there, some at a time.
class TableRows : public RowStream {
 public:
  TableRows(std::shared_ptr<Table> table, const ReadOptions& read) : table_(std::move(table)), read_(read) {}

  std::shared_ptr<Table> next(std::int64_t most) override {
    std::vector<std::int64_t> rows;
    for (; next_ < table_->rows && static_cast<std::int64_t>(rows.size()) < most; ++next_)
      if (next_ % read_.world == read_.rank) rows.push_back(next_);
    auto part = std::make_shared<Table>();
    part->rows = static_cast<std::int64_t>(rows.size());
    part->rows_of_all = next_;
    for (const TableColumn& column : table_->columns)
      part->columns.push_back({column.name, picked(column, rows)});
    if (read_.progress) read_.progress(next_);
    return part;
  }

 private:
  Tensor picked(const TableColumn& column, const std::vector<std::int64_t>& rows) const {
    Shape shape = column.data.shape();
    shape.set_dim(0, static_cast<std::int64_t>(rows.size()));
    if (static_cast<std::int64_t>(rows.size()) == table_->rows) return column.data;
    Tensor part(column.data.dtype(), shape);
    const std::size_t width = column.data.bytes() / static_cast<std::size_t>(table_->rows);
    for (std::size_t r = 0; r < rows.size(); ++r)
      std::memcpy(part.raw() + r * width, column.data.raw() + static_cast<std::size_t>(rows[r]) * width,
                  width);
    return part;
  }

  const std::shared_ptr<Table> table_;
  const ReadOptions read_;
  std::int64_t next_ = 0;
};

}  // namespace

std::shared_ptr<Table> table_of_arrays(std::vector<std::pair<std::string, Tensor>> arrays) {
  auto table = std::make_shared<Table>();
  if (arrays.empty()) throw InvalidArgument("there are no arrays to make columns of");
  std::set<std::string> names;
  for (auto& [name, array] : arrays) {
    if (!names.insert(name).second) throw InvalidArgument("two arrays are called '" + name + "'");
    if (array.shape().rank() == 0 || array.shape()[0] == 0)
      throw InvalidArgument("array '" + name + "' has no rows: its shape is " + array.shape().to_string());
    if (table->columns.empty()) table->rows = array.shape()[0];
    if (array.shape()[0] != table->rows)
      throw InvalidArgument("array '" + name + "' has " + std::to_string(array.shape()[0]) + " rows, '" +
                            table->columns[0].name + "' " + std::to_string(table->rows));
    table->columns.push_back({name, as_column(name, array)});
  }
  table->rows_of_all = table->rows;
  return table;
}

std::unique_ptr<RowStream> stream_npy(const std::vector<std::filesystem::path>& files,
                                      const ReadOptions& read) {
  if (!read.key_column.empty() || !read.group_column.empty())
    throw InvalidArgument(".npy files have no columns for keys or groups");
  std::vector<std::pair<std::string, Tensor>> arrays;
  for (const std::filesystem::path& file : files) arrays.emplace_back(file.stem().string(), read_array(file));
  return std::make_unique<TableRows>(table_of_arrays(std::move(arrays)), read);
}

}  // namespace braid
