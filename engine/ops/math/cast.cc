// Cast: each element converted to the type of attribute DstT as C++ converts it; a float outside an integer's
// range, or NaN, becomes the nearest value of the range, or 0, so that the result does not depend on the
// processor. To bool: not equal to zero. float16 and bfloat16 go through float32. Gradient: dy cast back,
// between floats only.
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

template <class From, class To>
BRAID_VECTOR_CLONES void cast_loop(const void* input, void* output, std::int64_t n) {
  const From* x = static_cast<const From*>(input);
  To* y = static_cast<To*>(output);
  for (std::int64_t i = 0; i < n; ++i) y[i] = formula::convert<To>(x[i]);
}

using Loop = void (*)(const void* x, void* y, std::int64_t n);

/// Of which at least one is a half.
template <class From, class To>
void half_loop(const void* input, void* output, std::int64_t n) {
  const From* x = static_cast<const From*>(input);
  To* y = static_cast<To*>(output);
  for (std::int64_t i = 0; i < n; ++i) y[i] = formula::convert_any<To>(x[i]);
}

template <class F>
Loop with_castable(DType dtype, F f) {
  if (dtype == DType::Float16) return f.template operator()<Float16>();
  if (dtype == DType::BFloat16) return f.template operator()<BFloat16>();
  return with_number_or_bool("Cast", dtype, f);
}

Loop loop_of(DType from, DType to) {
  if (is_half(from) || is_half(to))
    return with_castable(from, [&]<class From>() -> Loop {
      return with_castable(to, []<class To>() -> Loop { return half_loop<From, To>; });
    });
  return with_number_or_bool("Cast", from, [&]<class From>() -> Loop {
    return with_number_or_bool("Cast", to, []<class To>() -> Loop { return cast_loop<From, To>; });
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  const DType from = c.inputs[0].dtype, to = c.outputs[0].dtype;
  return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                         [loop = loop_of(from, to), in_size = dtype_size(from), out_size = dtype_size(to)](
                             const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           const auto at = static_cast<std::size_t>(begin);
                           loop(args.in<char>(0) + at * in_size, args.out<char>(0) + at * out_size,
                                end - begin);
                         });
}

void infer(InferContext& c) {
  const auto to = c.node().attrs.require<DType>("DstT");
  for (DType dtype : {c.dtype(0), to})
    if (dtype_size(dtype) == 0) c.fail("does not convert " + std::string(dtype_name(dtype)));
  c.output(to, c.shape(0));
}

void gradient(GradContext& c) {
  const DType from = c.input_info(0).dtype;
  if (!is_floating(from) || !is_floating(c.output_info().dtype)) return;
  c.set_grad(0, c.op("Cast", {c.grad()}, {{"DstT", from}, {"SrcT", c.output_info().dtype}}));
}

fusion::ElementLoop fused_loop(std::string_view, std::span<const DType> operands, DType dtype,
                               const fusion::Parameters&) {
  if (operands.size() != 1) return {};
  return [loop = loop_of(operands[0], dtype)](const void* const* in, void* y, std::int64_t n) {
    loop(in[0], y, n);
  };
}

bool fused_steps(fusion::StepWriter& w) {
  const DType from = w.input_info(0).dtype, to = w.output_info().dtype;
  const int x = w.input(0);
  if (x >= 0) return false;  // a constant is folded elsewhere
  // Regions have conversions between halves and float32.
  const bool by_float = (is_half(from) && to != DType::Float32) || (is_half(to) && from != DType::Float32);
  w.output(0, w.cast(by_float ? w.cast(x, DType::Float32) : x, to));
  return true;
}

}  // namespace

void register_cast(OpRegistry& registry) {
  OpDef def;
  def.name = "Cast";
  def.traits = pointwise_without_formula("it changes the type").any_type().type_attrs({});
  def.min_inputs = def.max_inputs = 1;
  def.infer = infer;
  def.gradient = gradient;
  def.cost = cost_per_output(1);
  def.cpu = prepare;
  registry.add(std::move(def));
  fusion::rules().add("Cast", {.loop = fused_loop, .steps = fused_steps});
}

}  // namespace braid
