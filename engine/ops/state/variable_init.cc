#include "engine/ops/state/variable_init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

std::string variable_name(const Node& var_handle) {
  const std::string shared = var_handle.attrs.get("shared_name", std::string());
  return shared.empty() ? var_handle.name : shared;
}

}  // namespace

InitSpec variable_init_spec(const Node& var_handle) {
  const std::int64_t kind = var_handle.attrs.get("_init_kind", std::int64_t{0});
  if (kind < static_cast<int>(InitKind::Zeros) || kind > static_cast<int>(InitKind::TruncatedNormal))
    throw InvalidArgument(fmt::format("{}: attribute _init_kind is {}, which names no initialiser",
                                      place_of(var_handle), kind));
  return {static_cast<InitKind>(kind), static_cast<float>(var_handle.attrs.get("_init_a", 0.0)),
          static_cast<float>(var_handle.attrs.get("_init_b", 0.0))};
}

RngKey variable_init_key(const Node& var_handle, std::uint64_t seed) {
  return make_rng_key(seed, variable_name(var_handle));
}

void initialize_variable(const Node& var_handle, std::uint64_t seed, Tensor& out) {
  const InitSpec spec = variable_init_spec(var_handle);
  if (out.dtype() == DType::Float32)
    return fill_initial(spec, variable_init_key(var_handle, seed), 0, out.data<float>());
  if (spec.kind == InitKind::Zeros) {
    std::memset(out.raw(), 0, out.bytes());
    return;
  }
  if (spec.kind == InitKind::Uniform && out.dtype() == DType::Int64) {
    std::vector<float> uniform(static_cast<std::size_t>(out.elements()));
    fill_initial(spec, variable_init_key(var_handle, seed), 0, uniform);
    std::ranges::transform(uniform, out.data<std::int64_t>().begin(),
                           [](float x) { return static_cast<std::int64_t>(std::floor(x)); });
    return;
  }
  if (spec.kind != InitKind::Constant)
    throw InvalidArgument(fmt::format("{}: {} variables start as zeros or a constant, _init_kind is {}",
                                      place_of(var_handle), dtype_name(out.dtype()),
                                      static_cast<int>(spec.kind)));
  with_number_or_bool("VarHandleOp", out.dtype(),
                      [&]<class T>() { std::ranges::fill(out.data<T>(), static_cast<T>(spec.a)); });
}

}  // namespace braid
