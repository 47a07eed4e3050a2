#include "worker/checkpoint/restored_values.h"

#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "worker/checkpoint/stored_variables.h"

namespace braid::worker {
namespace {

/// What a variable, or a slot of one ("<variable>/<slot>"), was called before; empty: the same.
std::string former_of(const std::string& name, const std::map<std::string, std::string>& former_names) {
  for (std::size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('/', end - 1))
    if (const auto at = former_names.find(name.substr(0, end)); at != former_names.end())
      return at->second + name.substr(end);
  return {};
}

}  // namespace

bool RestoredValues::read(const std::string& name, Tensor& value) const {
  const std::string former = former_of(name, former_names_);
  for (const std::string& stored : {name, former})
    if (!stored.empty() && (fill(stored, stored == former, value) || fill_rows(stored, value))) return true;
  log_warning("the checkpoint of step {} has no '{}', which keeps its initial value", values_.meta().step,
              name);
  return false;
}

bool RestoredValues::fill(const std::string& name, bool is_former, Tensor& value) const {
  const auto at = values_.values().find(name);
  if (at == values_.values().end()) return false;
  const Shape shape(at->second.shape);
  if (at->second.dtype != value.dtype() ||
      !(shape == value.shape() || (is_former && holds_former(shape, value.shape()))))
    refuse(name, std::string(dtype_name(at->second.dtype)) + shape.to_string(), value);
  const std::vector<std::byte> bytes = values_.read(name);
  std::memcpy(value.as_bytes().data(), bytes.data(), value.bytes());
  return true;
}

/// Of a table that is stored by rows, or of a slot of one: rows that are not there keep their first values.
bool RestoredValues::fill_rows(const std::string& name, Tensor& value) const {
  if (!values_.values().contains(name + "@rows")) return false;
  std::string table = name;
  if (!values_.values().contains(table + "@keys")) table = table.substr(0, table.rfind('/'));
  if (!values_.values().contains(table + "@keys")) return false;
  const std::vector<std::byte> keys = values_.read(table + "@keys"), rows = values_.read(name + "@rows");
  const std::size_t count = keys.size() / sizeof(std::int64_t);
  const std::int64_t all = value.shape().rank() == 0 ? 0 : value.shape()[0];
  const std::size_t row = all == 0 ? 0 : value.bytes() / static_cast<std::size_t>(all);
  if (value.dtype() != DType::Float32 || rows.size() != count * row)
    refuse(name, "rows of " + std::to_string(count == 0 ? 0 : rows.size() / count) + " bytes", value);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t key = 0;
    std::memcpy(&key, keys.data() + i * sizeof(key), sizeof(key));
    if (key < 0 || key >= all) refuse(name, "a row " + std::to_string(key), value);
    std::memcpy(value.as_bytes().data() + static_cast<std::size_t>(key) * row, rows.data() + i * row, row);
  }
  return true;
}

void RestoredValues::refuse(const std::string& name, const std::string& has, const Tensor& value) const {
  throw InvalidArgument("checkpoint '" + values_.directory().string() + "': '" + name + "' is " + has +
                        ", the model has " + std::string(dtype_name(value.dtype())) +
                        value.shape().to_string());
}

}  // namespace braid::worker
