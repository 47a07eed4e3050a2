#include "base/dtype.h"

#include <array>

namespace braid {
namespace {

struct Row {
  DType dtype;
  std::size_t size;
  std::string_view name;
  std::string_view alias;
};

constexpr std::array kRows = {
    Row{DType::Float32, 4, "float32", "float"},
    Row{DType::Float64, 8, "float64", "double"},
    Row{DType::Int32, 4, "int32", ""},
    Row{DType::UInt8, 1, "uint8", ""},
    Row{DType::Int16, 2, "int16", ""},
    Row{DType::Int8, 1, "int8", ""},
    Row{DType::String, 0, "string", ""},
    Row{DType::Int64, 8, "int64", ""},
    Row{DType::Bool, 1, "bool", ""},
    Row{DType::BFloat16, 2, "bfloat16", ""},
    Row{DType::UInt16, 2, "uint16", ""},
    Row{DType::Float16, 2, "float16", "half"},
    Row{DType::Resource, 0, "resource", ""},
    Row{DType::UInt32, 4, "uint32", ""},
    Row{DType::UInt64, 8, "uint64", ""},
};

const Row* find(DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

}  // namespace

std::size_t dtype_size(DType dtype) {
  const Row* row = find(dtype);
  return row ? row->size : 0;
}

std::string_view dtype_name(DType dtype) {
  const Row* row = find(dtype);
  return row ? row->name : "invalid";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows)
    if (name == row.name || (!row.alias.empty() && name == row.alias)) return row.dtype;
  return std::nullopt;
}

bool is_floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 ||
         dtype == DType::BFloat16;
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
      return true;
    default:
      return false;
  }
}

}  // namespace braid
