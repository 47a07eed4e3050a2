#include "engine/fusion/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace braid::fusion {

DType Region::dtype_of(int value) const {
  return is_input(value) ? inputs[static_cast<std::size_t>(value)].dtype : step(value).dtype;
}

Extent Region::extent_of(int value) const {
  return is_input(value) ? inputs[static_cast<std::size_t>(value)].extent : step(value).extent;
}

bool Region::reduces() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.kind == Kind::Reduce; });
}

bool Region::sums_columns() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.kind == Kind::Columns; });
}

const Region::Step* Region::scan() const {
  const Step* found = nullptr;
  for (const Step& step : steps)
    if (step.kind == Kind::Scan && (!found || (found->last && !step.last))) found = &step;
  return found;
}

bool Region::touches_halves() const {
  const auto is_half = [](DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; };
  return std::any_of(inputs.begin(), inputs.end(), [&](const Input& in) { return is_half(in.dtype); }) ||
         std::any_of(outputs.begin(), outputs.end(),
                     [&](const Output& output) { return is_half(dtype_of(output.value)); });
}

bool Region::gathers() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const Input& input) { return input.by >= 0; });
}

std::vector<int> Region::uniforms() const {
  std::vector<int> found;
  for (int v = static_cast<int>(inputs.size()); v < values(); ++v)
    if (step(v).kind == Kind::Uniform) found.push_back(v);
  return found;
}

std::vector<int> Region::tensors() const {
  std::vector<int> made;
  for (const Output& output : outputs)
    made.push_back(made.empty() ? 0 : made.back() + (output.is_of_previous ? 0 : 1));
  return made;
}

std::uint64_t bits_of(const void* element, DType dtype) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, dtype_size(dtype));
  return bits;
}

std::uint64_t bits_of(double number, DType dtype) {
  const auto of = [&](auto value) { return bits_of(&value, dtype); };
  switch (dtype) {
    case DType::Float32:
      return of(static_cast<float>(number));
    case DType::Float64:
      return of(number);
    case DType::Int32:
      return of(static_cast<std::int32_t>(number));
    case DType::Int64:
      return of(static_cast<std::int64_t>(number));
    case DType::Bool:
      return of(number != 0);
    default:
      throw Internal(fmt::format("a constant of type {} in a fused region", dtype_name(dtype)));
  }
}

}  // namespace braid::fusion
