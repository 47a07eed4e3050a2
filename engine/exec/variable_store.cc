#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/exec/runtime.h"

namespace braid {

Tensor on_host(const Tensor& tensor, Accelerator* device) {
  if (tensor.domain() == Domain::Host) return tensor;
  Tensor copy(tensor.dtype(), tensor.shape());
  device->copy_now(copy.raw(), tensor.raw(), copy.bytes());
  return copy;
}

Tensor& VariableStore::get_or_create(const std::string& name, DType dtype, const Shape& shape, Domain domain,
                                     bool pinned) {
  std::lock_guard lock(mu_);
  return get_or_create_locked(name, dtype, shape, domain, pinned);
}

Tensor& VariableStore::get_or_create_locked(const std::string& name, DType dtype, const Shape& shape,
                                            Domain domain, bool pinned) {
  const auto at = variables_.find(name);
  if (at == variables_.end()) {
    Variable made;
    const auto bytes = static_cast<std::uint64_t>(shape.elements()) * dtype_size(dtype);
    if (domain == Domain::Host && pinned && device_) {
      made.memory = Tensor(dtype, shape, device_->allocate_pinned(bytes, "variable '" + name + "'"), domain);
    } else if (domain == Domain::Host) {
      made.memory = Tensor::zeros(dtype, shape);
    } else {
      made.memory = Tensor(dtype, shape, device_->allocate(bytes, "variable '" + name + "'"), domain);
    }
    return variables_.emplace(name, std::move(made)).first->second.memory;
  }
  Variable& known = at->second;
  if (known.memory.dtype() != dtype || known.memory.shape() != shape) {
    throw InvalidArgument("variable '" + name + "' is " + std::string(dtype_name(known.memory.dtype())) +
                          " " + known.memory.shape().to_string() + ", the program needs " +
                          std::string(dtype_name(dtype)) + " " + shape.to_string());
  }
  if (known.memory.domain() != domain)
    throw InvalidArgument("variable '" + name + "' is on the " +
                          (domain == Domain::Host ? "device, the program needs it on the host"
                                                  : "host, the program needs it on the device"));
  return known.memory;
}

Tensor& VariableStore::get_or_create_slab(const std::string& name, DType dtype, const Shape& shape,
                                          const std::vector<std::string>& members, Domain domain) {
  std::lock_guard lock(mu_);
  const bool exists = variables_.contains(name);
  const auto refuse = [&](const std::string& member) {
    throw InvalidArgument("variable '" + member + "' has memory of its own, the program needs it in '" +
                          name + "': programs that share variables must batch siblings alike");
  };
  for (const std::string& member : members)
    if (variables_.contains(member) != exists) refuse(member);
  Tensor& slab = get_or_create_locked(name, dtype, shape, domain, false);
  variables_.at(name).is_slab = true;
  const Shape part(std::vector<std::int64_t>(shape.dims().begin() + 1, shape.dims().end()));
  std::byte* at = slab.raw();
  for (const std::string& member : members) {
    Variable made{Tensor(dtype, part, std::shared_ptr<std::byte[]>(slab.memory(), at), domain)};
    at += made.memory.bytes();
    const auto [known, is_new] = variables_.emplace(member, std::move(made));
    if (!is_new && known->second.memory.raw() + known->second.memory.bytes() != at) refuse(member);
  }
  return slab;
}

bool VariableStore::has_room_for_slab(const std::string& name,
                                      const std::vector<std::string>& members) const {
  std::lock_guard lock(mu_);
  const auto slab = variables_.find(name);
  if (slab == variables_.end())
    return std::none_of(members.begin(), members.end(),
                        [&](const std::string& member) { return variables_.contains(member); });
  const std::byte* at = slab->second.memory.raw();
  for (const std::string& member : members) {
    const auto part = variables_.find(member);
    if (part == variables_.end() || part->second.memory.raw() != at) return false;
    at += part->second.memory.bytes();
  }
  return at == slab->second.memory.raw() + slab->second.memory.bytes();
}

const VariableStore::Variable* VariableStore::entry(const std::string& name) const {
  std::lock_guard lock(mu_);
  const auto at = variables_.find(name);
  return at == variables_.end() ? nullptr : &at->second;
}

bool VariableStore::contains(const std::string& name) const { return entry(name) != nullptr; }

Domain VariableStore::domain(const std::string& name) const { return entry(name)->memory.domain(); }

const Tensor* VariableStore::find(const std::string& name) const {
  const Variable* variable = entry(name);
  if (!variable) return nullptr;
  if (variable->memory.domain() != Domain::Host)
    throw Internal("variable '" + name + "' is on the device and cannot be touched there");
  return &variable->memory;
}

Tensor* VariableStore::find(const std::string& name) {
  return const_cast<Tensor*>(std::as_const(*this).find(name));
}

std::optional<Tensor> VariableStore::read(const std::string& name) const {
  const Variable* variable = entry(name);
  if (!variable) return std::nullopt;
  return on_host(variable->memory, device_);
}

void VariableStore::write(const std::string& name, const Tensor& value) {
  const Variable* variable = entry(name);
  if (!variable) throw Internal("there is no variable '" + name + "' to be set");
  Tensor memory = variable->memory;  // shares it
  if (memory.dtype() != value.dtype() || memory.shape() != value.shape())
    throw Internal("variable '" + name + "' is set to a value of another type or shape");
  if (variable->memory.domain() == Domain::Device)
    device_->copy_now(memory.raw(), value.raw(), value.bytes());
  else if (memory.raw() != value.raw() && value.bytes() != 0)
    std::memcpy(memory.raw(), value.raw(), value.bytes());
}

std::vector<std::string> VariableStore::names() const {
  std::lock_guard lock(mu_);
  std::vector<std::string> names;
  for (const auto& [name, variable] : variables_)
    if (!variable.is_slab) names.push_back(name);
  return names;
}

void VariableStore::clear() {
  std::lock_guard lock(mu_);
  variables_.clear();
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
