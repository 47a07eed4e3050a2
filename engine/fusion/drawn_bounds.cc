#include "engine/fusion/drawn_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/ir/op.h"

namespace braid::fusion {
namespace {

bool is_less(const Region::Step& step) {
  if (step.kind != Region::Kind::Apply || step.operands.size() != 2) return false;
  const OpDef* op = OpRegistry::global().find(step.op);
  return op && op->traits.formula.value == "a < b";
}

/// Of a comparison with a constant in [0, 1).
std::optional<std::uint32_t> bound_of(const Region& region, const Region::Step& less, int uniform) {
  const int other = less.operands[1];
  if (!is_less(less) || less.operands[0] != uniform || less.extent != Extent::Full || region.is_input(other))
    return std::nullopt;
  const Region::Step& constant = region.step(other);
  if (constant.kind != Region::Kind::Constant || constant.dtype != DType::Float32) return std::nullopt;
  const auto limit = std::bit_cast<float>(static_cast<std::uint32_t>(constant.bits));
  if (!(limit >= 0 && limit < 1)) return std::nullopt;
  return static_cast<std::uint32_t>(std::ceil(std::ldexp(limit, 24))) << 8;
}

}  // namespace

std::optional<std::uint32_t> bound_of_uniform(const Region& region, int uniform) {
  if (region.step(uniform).extent != Extent::Full) return std::nullopt;
  std::optional<std::uint32_t> bound;
  for (int v = uniform + 1; v < region.values(); ++v) {
    const Region::Step& reader = region.step(v);
    if (std::find(reader.operands.begin(), reader.operands.end(), uniform) == reader.operands.end()) continue;
    if (bound || reader.operands.size() != 2) return std::nullopt;
    bound = bound_of(region, reader, uniform);
    if (!bound) return std::nullopt;
  }
  const bool is_output = std::any_of(region.outputs.begin(), region.outputs.end(),
                                     [&](const Region::Output& output) { return output.value == uniform; });
  return is_output ? std::nullopt : bound;
}

int compared_uniform(const Region& region, int value) {
  const Region::Step& step = region.step(value);
  if (step.operands.size() != 2 || region.is_input(step.operands[0])) return -1;
  const int uniform = step.operands[0];
  if (region.step(uniform).kind != Region::Kind::Uniform || !bound_of_uniform(region, uniform)) return -1;
  return uniform;
}

}  // namespace braid::fusion
