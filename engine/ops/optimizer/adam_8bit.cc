// braid.ApplyAdam8Bit(handle, m, v, m_scale, v_scale, gradient): a step of Adam (base/optim.h, with what may
// surround it) whose moments are kept as codes of 8 bits (adam_codes.h). m and v are uint8 variables of the
// variable's shape, the scales float32 [ceil(elements / 256)]: the largest magnitude of each block of 256
// elements, in their order. A step computes with
//   m = scale * value(code), and v likewise, in float32
// updates weights with the new moments as they are, and then rounds these to codes. Blocks are independent,
// so neither their order nor threads change a bit. Learning rate, gradient scale and step number come from
// StepParams.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/optim.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/adam_codes.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

using adam_codes::kBlock;
using adam_codes::Table;

constexpr int kGradient = 5;

void infer(InferContext& c) {
  for (int i = 0; i < kGradient; ++i) require_handle(c, i);
  require_dtype(c, kGradient, {DType::Float32});
  for (const int i : {1, 2, kGradient}) merged_shape(c, 0, i);
  if (!c.shape(0).has_rank() || !c.shape(0).is_static()) return;
  const std::int64_t blocks = (c.shape(0).elements() + kBlock - 1) / kBlock;
  for (const int i : {3, 4}) {
    Shape merged;
    if (!merge_shapes({blocks}, c.shape(i), merged))
      c.fail(
          fmt::format("input {} of shape {} are no scales of {} blocks", i, c.shape(i).to_string(), blocks));
  }
}

Cost cost_of(const InferContext& c, std::span<const OutputInfo>) {
  const double elements = known_elements(c.shape(kGradient));
  return {40 * elements, 16 * elements};
}

void check_types(const PrepareContext& c) {
  constexpr std::array kTypes{DType::Float32, DType::UInt8, DType::UInt8, DType::Float32, DType::Float32};
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (c.inputs[i].dtype != kTypes[i])
      c.fail(fmt::format("input {} must hold {}, got {}", i, dtype_name(kTypes[i]),
                         dtype_name(c.inputs[i].dtype)));
}

void decode(const Table& table, const std::uint8_t* codes, float scale, float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) values[i] = scale * adam_codes::value_of(table, codes[i]);
}

/// Gives the scale.
float encode(const Table& table, const float* values, std::uint8_t* codes, std::int64_t n) {
  float scale = 0;
  for (std::int64_t i = 0; i < n; ++i) scale = std::max(scale, std::abs(values[i]));
  for (std::int64_t i = 0; i < n; ++i)
    codes[i] = scale > 0 ? adam_codes::code_of(table, values[i] / scale) : std::uint8_t{0};
  return scale;
}

void update_block(const PreparedUpdate& update, const KernelArgs& a, std::int64_t block,
                  std::int64_t elements) {
  const std::int64_t first = block * kBlock, n = std::min(kBlock, elements - first);
  std::array<float, kBlock> m, v;
  auto* const m_codes = a.var<std::uint8_t>(1) + first;
  auto* const v_codes = a.var<std::uint8_t>(2) + first;
  float &m_scale = a.var<float>(3)[block], &v_scale = a.var<float>(4)[block];
  decode(adam_codes::kSigned, m_codes, m_scale, m.data(), n);
  decode(adam_codes::kUnsigned, v_codes, v_scale, v.data(), n);
  const auto count = static_cast<std::size_t>(n);
  const std::array<float*, 2> slots{m.data(), v.data()};
  apply_update(update, {a.var<float>(0) + first, count}, {a.in<float>(kGradient) + first, count}, slots);
  m_scale = encode(adam_codes::kSigned, m.data(), m_codes, n);
  v_scale = encode(adam_codes::kUnsigned, v.data(), v_codes, n);
}

PreparedKernel prepare(const PrepareContext& c) {
  check_types(c);
  const std::int64_t elements = c.inputs[0].shape.elements(), blocks = (elements + kBlock - 1) / kBlock;
  return serial_kernel([=, spec = optimizer_spec(c.node.attrs), pool = &c.pool](const KernelArgs& a) {
    const PreparedUpdate update = step_update(spec, *a.params);
    pool->parallel_range(blocks, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) update_block(update, a, block, elements);
    });
  });
}

}  // namespace

void register_adam_8bit(OpRegistry& registry) {
  OpDef def = writing_op("braid.ApplyAdam8Bit", kGradient + 1, kGradient + 1, prepare);
  def.infer = infer;
  def.cost = cost_of;
  registry.add(std::move(def));
}

}  // namespace braid
