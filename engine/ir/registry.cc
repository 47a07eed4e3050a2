#include <fmt/format.h>

#include <utility>

#include "engine/ir/left_out.h"
#include "engine/ir/op.h"

namespace braid {

std::string place_of(const Node& node) {
  return fmt::format("[{}] node '{}'", node.op ? node.op->name : "?", node.name);
}

void InferContext::fail(const std::string& message) const {
  throw InvalidArgument(place_of(node_) + ": " + message);
}

void InferContext::require_rank(int input, int rank) const {
  const Shape& s = shape(input);
  if (s.has_rank() && s.rank() != rank)
    fail(fmt::format("input {} must have rank {}, got {}", input, rank, s.to_string()));
}

void InferContext::require_same_dtype(int first, int second) const {
  if (dtype(first) != dtype(second))
    fail(fmt::format("inputs {} and {} must have one type, got {} and {}", first, second,
                     dtype_name(dtype(first)), dtype_name(dtype(second))));
}

void PrepareContext::fail(const std::string& message) const {
  throw InvalidArgument(place_of(node) + ": " + message);
}

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::Compute:
      return "compute";
    case Lane::Pull:
      return "pull";
    case Lane::Push:
      return "push";
    case Lane::Comm:
      return "comm";
    case Lane::HostToDevice:
      return "h2d";
    case Lane::DeviceToHost:
      return "d2h";
  }
  return "unknown";
}

void OpRegistry::add(OpDef def) {
  if (def.name.empty()) throw Internal("[OpRegistry] an op needs a name");
  if (!def.infer) throw Internal(fmt::format("[OpRegistry] op '{}' has no shape rule", def.name));
  if (!def.gradient && def.no_gradient_reason.empty())
    throw Internal(fmt::format("[OpRegistry] op '{}' has neither a gradient nor a reason", def.name));
  if (def.gradient && !def.no_gradient_reason.empty())
    throw Internal(fmt::format("[OpRegistry] op '{}' has a gradient and a reason for none", def.name));
  std::string name = def.name;
  if (!ops_.try_emplace(name, std::make_unique<OpDef>(std::move(def))).second)
    throw Internal(fmt::format("[OpRegistry] op '{}' is registered twice", name));
}

void OpRegistry::add_cuda(std::string_view name, PrepareFn prepare,
                          std::function<bool(const Node&, std::span<const OutputInfo>)> supports) {
  auto it = ops_.find(name);
  if (it == ops_.end())
    throw Internal(fmt::format("[OpRegistry] a CUDA kernel for '{}', which is no op", name));
  if (it->second->cuda) throw Internal(fmt::format("[OpRegistry] op '{}' has two CUDA kernels", name));
  it->second->cuda = std::move(prepare);
  it->second->cuda_supports = std::move(supports);
}

const OpDef* OpRegistry::find(std::string_view name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : it->second.get();
}

const OpDef& OpRegistry::require(std::string_view name) const {
  const OpDef* def = find(name);
  if (!def) throw InvalidArgument(fmt::format("op '{}' is not known{}", name, left_out_text()));
  return *def;
}

std::vector<const OpDef*> OpRegistry::all() const {
  std::vector<const OpDef*> defs;
  defs.reserve(ops_.size());
  for (const auto& [name, def] : ops_) defs.push_back(def.get());
  return defs;
}

}  // namespace braid
