#include "engine/fusion/cuda_walk.h"

#include <fmt/format.h>

#include "engine/fusion/cuda_formula.h"

namespace braid::fusion {

std::string begin_walk(const Region& region, const CudaLayout& layout) {
  const std::int64_t length = region.scan()->length;
  std::string text = fmt::format(
      "const I walk = I(blockIdx.x) * {} + threadIdx.x;\n"
      "if (walk >= I({})) return;\n"
      "const I column = walk % I({}), first = walk / I({}) * {} * I({}) + column;\n",
      layout.threads, region.rows / length * region.columns, region.columns, region.columns, length,
      region.columns);
  for (int v = static_cast<int>(region.inputs.size()); v < region.values(); ++v)
    if (const Region::Step& step = region.step(v); step.kind == Region::Kind::Scan)
      text += fmt::format("{} sum{} = static_cast<{}>({});\n", cuda_type(step.dtype), v,
                          cuda_type(step.dtype), step.reduction == RowReduction::Prod ? 1 : 0);
  return text + fmt::format("for (int part = 0; part < {}; part += {}) {{\n", length, layout.places);
}

std::string walk_places(const Region& region) {
  const Region::Step& scan = *region.scan();
  const std::string row = scan.reverse ? fmt::format("({} - part - e)", scan.length - 1) : "(part + e)";
  return fmt::format(
      "_Pragma(\"unroll\") for (int e = 0; e < E; ++e) {{ here[e] = part + e < {}; "
      "place[e] = first + {} * I({}); }}\n",
      scan.length, row, region.columns);
}

std::string scan_places(const Region& region, int value) {
  const Region::Step& step = region.step(value);
  const std::string_view t = cuda_type(step.dtype);
  const std::string sum = fmt::format("sum{} = rows::{}<{}>::of(sum{}, v{}[e]);", value,
                                      reduction_name(step.reduction), t, value, step.operands[0]);
  const std::string keep = fmt::format("v{}[e] = sum{};", value, value);
  return fmt::format("{} v{}[E]; _Pragma(\"unroll\") for (int e = 0; e < E; ++e) {{ {} {} }}\n", t, value,
                     step.exclusive ? keep : sum, step.exclusive ? sum : keep);
}

}  // namespace braid::fusion
