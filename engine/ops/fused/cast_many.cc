// braid.CastMany(x...) -> y...: any number of float32 tensors as float16 or bfloat16, attribute DstT, or the
// other way. Mixed precision makes it of the casts of a step's weights (engine/rewrite/mixed_precision.cc),
// strategies of gradients that travel as halves.
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  const auto to = c.node().attrs.require<DType>("DstT");
  if (is_half(to) == is_half(c.dtype(0)) || (to != DType::Float32 && c.dtype(0) != DType::Float32))
    c.fail("casts between float32 and a half, not from " + std::string(dtype_name(c.dtype(0))) + " to " +
           std::string(dtype_name(to)));
  for (int i = 0; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    c.output(to, c.shape(i));
  }
}

template <class From, class To>
PreparedKernel prepare_of(const PrepareContext& c) {
  std::vector<std::int64_t> elements;
  for (const OutputInfo& output : c.outputs) elements.push_back(output.shape.elements());
  return serial_kernel([elements = std::move(elements), pool = &c.pool](const KernelArgs& a) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto* const x = static_cast<const From*>(a.inputs[i]);
      To* const y = static_cast<To*>(a.outputs[i]);
      pool->parallel_range(elements[i], kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t e = begin; e < end; ++e) y[e] = static_cast<To>(x[e]);
      });
    }
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  if (c.outputs[0].dtype == DType::Float32)
    return c.inputs[0].dtype == DType::Float16 ? prepare_of<Float16, float>(c)
                                               : prepare_of<BFloat16, float>(c);
  return c.outputs[0].dtype == DType::Float16 ? prepare_of<float, Float16>(c)
                                              : prepare_of<float, BFloat16>(c);
}

}  // namespace

void register_cast_many(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.CastMany";
  def.traits = computes().output_list().type_attrs({});
  def.min_inputs = 1;
  def.max_inputs = -1;
  def.infer = infer;
  def.no_gradient_reason = "mixed precision makes it after differentiation";
  def.cpu = prepare;
  registry.add(std::move(def));
}

}  // namespace braid
