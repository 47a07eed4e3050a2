#include "engine/fusion/cuda_offset.h"

#include <fmt/format.h>

namespace braid::fusion {
namespace {

std::string offset(const Axes& axes, const std::string& index) {
  if (axes.empty()) return "0";
  std::string sum;
  std::int64_t inner = 1;
  for (std::size_t a = axes.size(); a-- > 0; inner *= axes[a].size) {
    if (axes[a].stride == 0) continue;
    std::string position = inner == 1 ? index : fmt::format("({} / I({}))", index, inner);
    if (a > 0) position = fmt::format("({} % I({}))", position, axes[a].size);
    if (axes[a].stride != 1) position = fmt::format("{} * I({})", position, axes[a].stride);
    sum += sum.empty() ? position : " + " + position;
  }
  return sum.empty() ? "0" : sum;
}

}  // namespace

std::string cuda_offset(const Region::Input& input, const std::string& index) {
  const std::string sum = offset(input.axes, index);
  return input.offset == 0 ? sum : fmt::format("I({}) + {}", input.offset, sum);
}

std::int64_t last_element(const Region::Input& input) {
  std::int64_t last = input.offset;
  for (const Axis& axis : input.axes) last += (axis.size - 1) * axis.stride;
  return last;
}

}  // namespace braid::fusion
