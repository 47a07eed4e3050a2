#include "base/error.h"
#include "engine/exec/runtime.h"

namespace braid {

Tensor& VariableStore::get_or_create(const std::string& name, DType dtype, const Shape& shape) {
  std::lock_guard lock(mu_);
  const auto [at, is_new] = variables_.try_emplace(name);
  if (is_new) {
    at->second = Tensor::zeros(dtype, shape);
  } else if (at->second.dtype() != dtype || at->second.shape() != shape) {
    throw InvalidArgument("variable '" + name + "' is " + std::string(dtype_name(at->second.dtype())) + " " +
                          at->second.shape().to_string() + ", the program needs " +
                          std::string(dtype_name(dtype)) + " " + shape.to_string());
  }
  return at->second;
}

Tensor* VariableStore::find(const std::string& name) {
  std::lock_guard lock(mu_);
  const auto at = variables_.find(name);
  return at == variables_.end() ? nullptr : &at->second;
}

const Tensor* VariableStore::find(const std::string& name) const {
  std::lock_guard lock(mu_);
  const auto at = variables_.find(name);
  return at == variables_.end() ? nullptr : &at->second;
}

std::vector<std::string> VariableStore::names() const {
  std::lock_guard lock(mu_);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : variables_) names.push_back(name);
  return names;
}

void VariableStore::poison(std::string why) {
  std::lock_guard lock(mu_);
  if (poisoned_.empty()) poisoned_ = std::move(why);
}

void VariableStore::clear_poison() {
  std::lock_guard lock(mu_);
  poisoned_.clear();
}

void VariableStore::check_not_poisoned() const {
  std::lock_guard lock(mu_);
  if (!poisoned_.empty())
    throw Internal("variables are not consistent until they are restored: " + poisoned_);
}

}  // namespace braid
