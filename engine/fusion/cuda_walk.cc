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
      text +=
          fmt::format("{} sum{} = {};\n", cuda_type(step.dtype), v, neutral_of(step.reduction, step.dtype));
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
  if (step.last) return fmt::format("_Pragma(\"unroll\") for (int e = 0; e < E; ++e) if (here[e]) {}\n", sum);
  const std::string keep = fmt::format("v{}[e] = sum{};", value, value);
  return fmt::format("{} v{}[E]; _Pragma(\"unroll\") for (int e = 0; e < E; ++e) {{ {} {} }}\n", t, value,
                     step.exclusive ? keep : sum, step.exclusive ? sum : keep);
}

std::string end_walk(const Region& region, const std::vector<int>& tensors) {
  std::string text = "}\n";
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    if (const int value = region.outputs[o].value; region.extent_of(value) == Extent::Piece)
      text += fmt::format("out{}[walk] = sum{};\n", tensors[o], value);
  return text;
}

std::string neutral_of(RowReduction reduction, DType dtype) {
  const std::string_view t = cuda_type(dtype);
  if (reduction == RowReduction::Sum) return fmt::format("static_cast<{}>(0)", t);
  if (reduction == RowReduction::Prod) return fmt::format("static_cast<{}>(1)", t);
  const bool is_max = reduction == RowReduction::Max;
  switch (dtype) {
    case DType::Float32:
      return is_max ? "__uint_as_float(0xff800000u)" : "__uint_as_float(0x7f800000u)";
    case DType::Float64:
      return is_max ? "__longlong_as_double(0xfff0000000000000ll)"
                    : "__longlong_as_double(0x7ff0000000000000ll)";
    default:
      return fmt::format("Range<{}>::{}", t, is_max ? "kLowest" : "kHighest");
  }
}

}  // namespace braid::fusion
