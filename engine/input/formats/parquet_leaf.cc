#include "engine/input/formats/parquet_leaf.h"

#include <parquet/types.h>

#include <cmath>

#include "base/error.h"

namespace braid {
namespace {

using parquet::Type;

bool is_decimal(const parquet::ColumnDescriptor& column) {
  return column.logical_type() && column.logical_type()->is_decimal();
}

ParquetKind kind_of_leaf(const parquet::ColumnDescriptor& column) {
  switch (column.physical_type()) {
    case Type::BOOLEAN:
      return ParquetKind::Int;
    case Type::INT32:
    case Type::INT64:
      return is_decimal(column) ? ParquetKind::Float : ParquetKind::Int;
    case Type::INT96:
      return ParquetKind::Int;
    case Type::FLOAT:
    case Type::DOUBLE:
      return ParquetKind::Float;
    case Type::BYTE_ARRAY:
      return is_decimal(column) ? ParquetKind::Float : ParquetKind::Text;
    case Type::FIXED_LEN_BYTE_ARRAY:
      return is_decimal(column) || is_parquet_half(column) ? ParquetKind::Float : ParquetKind::Text;
    default:
      throw InvalidArgument("has a type that is not read: " + parquet::TypeToString(column.physical_type()));
  }
}

/// Of dates and timestamps; nothing of other columns.
std::optional<ParquetUnit> time_unit(const parquet::ColumnDescriptor& column) {
  constexpr double kDay = 86400;
  if (column.physical_type() == Type::INT96) return ParquetUnit{.parts = 1e9};
  const auto& type = column.logical_type();
  if (!type) return std::nullopt;
  if (type->is_date()) return ParquetUnit{.times = kDay};
  if (!type->is_timestamp()) return std::nullopt;
  switch (static_cast<const parquet::TimestampLogicalType&>(*type).time_unit()) {
    case parquet::LogicalType::TimeUnit::MILLIS:
      return ParquetUnit{.parts = 1e3};
    case parquet::LogicalType::TimeUnit::MICROS:
      return ParquetUnit{.parts = 1e6};
    case parquet::LogicalType::TimeUnit::NANOS:
      return ParquetUnit{.parts = 1e9};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool is_parquet_half(const parquet::ColumnDescriptor& column) {
  return column.logical_type() && column.logical_type()->is_float16();
}

ParquetUnit parquet_unit(const parquet::ColumnDescriptor& column, const ParquetLeaf& leaf) {
  if (leaf.as_seconds) return time_unit(column).value();
  return {.parts = is_decimal(column) ? std::pow(10.0, column.type_scale()) : 1.0};
}

std::vector<std::string> parquet_column_names(const parquet::SchemaDescriptor& schema) {
  std::vector<std::string> names;
  for (int i = 0; i < schema.group_node()->field_count(); ++i)
    names.push_back(schema.group_node()->field(i)->name());
  return names;
}

std::optional<ParquetLeaf> find_parquet_leaf(const parquet::SchemaDescriptor& schema,
                                             const std::string& name) {
  std::optional<ParquetLeaf> found;
  for (int i = 0; i < schema.num_columns(); ++i) {
    if (schema.GetColumnRoot(i)->name() != name) continue;
    const parquet::ColumnDescriptor& column = *schema.Column(i);
    if (found && schema.GetColumnRoot(found->column) != schema.GetColumnRoot(i))
      throw InvalidArgument("is there twice, and a name means one");
    // "c", or "c.list.element"; what is longer is in a struct, as one element may be, too.
    const bool is_list = column.max_repetition_level() == 1;
    const std::size_t longest = is_list ? 3 : 1;
    if (found || column.max_repetition_level() > 1 || column.path()->ToDotVector().size() > longest)
      throw InvalidArgument("is nested: only lists of one level are read");
    found = ParquetLeaf{i, kind_of_leaf(column), is_list};
  }
  return found;
}

bool is_parquet_date(const parquet::SchemaDescriptor& schema, const ParquetLeaf& leaf) {
  const auto& type = schema.Column(leaf.column)->logical_type();
  return type && type->is_date();
}

ParquetLeaf as_parquet_time(const parquet::SchemaDescriptor& schema, ParquetLeaf leaf) {
  leaf.as_seconds = time_unit(*schema.Column(leaf.column)).has_value();
  if (leaf.as_seconds) leaf.kind = ParquetKind::Float;
  return leaf;
}

}  // namespace braid
