#include "worker/checkpoint/stored_variables.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/ops/state/variable_init.h"

namespace braid::worker {
namespace {

/// "... seed=7": the words of a cursor are those of docs/user/data.md.
std::uint64_t seed_of(const CheckpointMeta& meta) {
  constexpr std::string_view kWord = " seed=";
  for (const auto& [worker, cursor] : meta.cursors) {
    const std::size_t at = cursor.find(kWord);
    if (at == std::string::npos) continue;
    std::uint64_t seed = 0;
    std::from_chars(cursor.data() + at + kWord.size(), cursor.data() + cursor.size(), seed);
    return seed;
  }
  return 0;
}

}  // namespace

std::string former_name(const Graph& graph, const VariableInfo& variable) {
  return graph.node(variable.handle).attrs.get<std::string>("_former_name", "");
}

bool holds_former(const Shape& stored, const Shape& shape) {
  if (stored.rank() != shape.rank() || stored.rank() == 0 || stored[0] < shape[0]) return false;
  for (int axis = 1; axis < shape.rank(); ++axis)
    if (stored[axis] != shape[axis]) return false;
  return true;
}

StoredVariables::StoredVariables(const CheckpointInfo& info, std::optional<std::uint64_t> seed)
    : values_(info), seed_(seed.value_or(seed_of(info.meta))) {}

Tensor StoredVariables::value(const Graph& graph, const VariableInfo& variable) const {
  Tensor tensor(variable.dtype, variable.shape);
  const auto has = [&](const std::string& name) {
    return values_.values().contains(name) || values_.values().contains(name + "@keys");
  };
  const std::string former = former_name(graph, variable);
  const bool is_former = !has(variable.name) && !former.empty() && has(former);
  const std::string& name = is_former ? former : variable.name;
  if (values_.values().contains(name + "@keys")) {
    initialize_variable(graph.node(variable.handle), seed_, tensor);
    fill_rows(variable, name, tensor);
  } else {
    fill(name, is_former, tensor);
  }
  return tensor;
}

void StoredVariables::fill(const std::string& name, bool is_former, Tensor& tensor) const {
  const auto at = values_.values().find(name);
  if (at == values_.values().end())
    throw InvalidArgument(fmt::format("the checkpoint of step {} has no '{}'", values_.meta().step, name));
  const Shape shape(at->second.shape);
  const bool fits = shape == tensor.shape() || (is_former && holds_former(shape, tensor.shape()));
  if (at->second.dtype != tensor.dtype() || !fits)
    throw InvalidArgument(fmt::format("the checkpoint of step {}: '{}' is {}{}, the model has {}{}",
                                      values_.meta().step, name, dtype_name(at->second.dtype),
                                      shape.to_string(), dtype_name(tensor.dtype()),
                                      tensor.shape().to_string()));
  const std::vector<std::byte> bytes = values_.read(name);
  std::memcpy(tensor.as_bytes().data(), bytes.data(), tensor.bytes());
}

void StoredVariables::fill_rows(const VariableInfo& variable, const std::string& name, Tensor& tensor) const {
  const std::vector<std::byte> keys = values_.read(name + "@keys");
  const std::vector<std::byte> rows = values_.read(name + "@rows");
  const std::size_t count = keys.size() / sizeof(std::int64_t);
  const auto all = static_cast<std::size_t>(variable.shape.rank() == 0 ? 0 : variable.shape[0]);
  const std::size_t row = all == 0 ? 0 : tensor.bytes() / all;
  if (rows.size() != count * row)
    throw InvalidArgument(fmt::format("the checkpoint of step {}: rows of '{}' have {} bytes, the model's {}",
                                      values_.meta().step, name, count == 0 ? 0 : rows.size() / count, row));
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t key = 0;
    std::memcpy(&key, keys.data() + i * sizeof(key), sizeof(key));
    if (key < 0 || static_cast<std::size_t>(key) >= all)
      throw InvalidArgument(fmt::format("the checkpoint of step {}: '{}' has row {}, the model {} rows",
                                        values_.meta().step, name, key, all));
    std::memcpy(tensor.as_bytes().data() + static_cast<std::size_t>(key) * row, rows.data() + i * row, row);
  }
}

}  // namespace braid::worker
