// Elementwise ops of one input, a row an op in `kRows`: types, formula, gradient. TensorFlow's names and
// semantics; NaN goes through (also through Relu and Sign). Gradients of Floor, Ceil, Round, Rint and Sign
// stop the flow, as TensorFlow's do: they are zero almost everywhere.
#include <array>

#include "engine/fusion/rules.h"
#include "engine/ops/common/by_dtype.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/unary_formulas.h"

namespace braid {
namespace {

using namespace unary;

// -----------------------------------------------------------------------------------------------------------
// loops

using Loop = void (*)(const void* x, void* y, std::int64_t n, double alpha);

template <class Op, class T>
BRAID_VECTOR_CLONES void loop(const void* input, void* output, std::int64_t n, double alpha) {
  using R = decltype(Op::apply(T(), T()));
  const T* x = static_cast<const T*>(input);
  R* y = static_cast<R*>(output);
  const T a = static_cast<T>(alpha);
#pragma GCC ivdep  // y is x or does not overlap it
  for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(x[i], a);
}

/// An op's loop for each type.
using Loops = ByDtype<Loop>;

template <class Op>
constexpr Loops floats() {
  return {.f32 = loop<Op, float>, .f64 = loop<Op, double>};
}
template <class Op>
constexpr Loops integers() {
  return {.i32 = loop<Op, std::int32_t>, .i64 = loop<Op, std::int64_t>};
}
template <class Op>
constexpr Loops numbers() {
  return {.f32 = loop<Op, float>,
          .f64 = loop<Op, double>,
          .i32 = loop<Op, std::int32_t>,
          .i64 = loop<Op, std::int64_t>};
}

// -------------------------------------------------------------------------------------------------------
// gradients

using grad::mul, grad::neg, grad::scalar;

/// dx = dy * factor.
template <ValueRef (*factor)(GradContext&)>
void times(GradContext& c) {
  c.set_grad(0, mul(c, c.grad(), factor(c)));
}
ValueRef output_of(GradContext& c) { return c.output(); }
ValueRef sign_of(GradContext& c) { return c.op("Sign", {c.input(0)}); }
ValueRef twice(GradContext& c) { return mul(c, scalar(c, 2), c.input(0)); }
ValueRef cos_of(GradContext& c) { return c.op("Cos", {c.input(0)}); }
ValueRef minus_sin_of(GradContext& c) { return neg(c, c.op("Sin", {c.input(0)})); }
ValueRef output_plus_one(GradContext& c) { return grad::add(c, c.output(), scalar(c, 1)); }
ValueRef gauss(GradContext& c) {
  const ValueRef e = c.op("Exp", {neg(c, c.op("Square", {c.input(0)}))});
  return mul(c, scalar(c, 1.1283791670955126), e);  // 2 / sqrt(pi)
}

ValueRef digamma_of(GradContext& c) { return c.op("Digamma", {c.input(0)}); }
ValueRef cosh_of(GradContext& c) { return c.op("Cosh", {c.input(0)}); }
ValueRef sinh_of(GradContext& c) { return c.op("Sinh", {c.input(0)}); }
ValueRef one_plus_squared_output(GradContext& c) {
  return grad::add(c, scalar(c, 1), c.op("Square", {c.output()}));
}
ValueRef one_plus_square(GradContext& c) { return grad::add(c, scalar(c, 1), c.op("Square", {c.input(0)})); }
ValueRef one_minus_square(GradContext& c) { return grad::sub(c, scalar(c, 1), c.op("Square", {c.input(0)})); }
ValueRef root_of_one_minus_square(GradContext& c) { return c.op("Sqrt", {one_minus_square(c)}); }
ValueRef minus_root_of_one_minus_square(GradContext& c) { return neg(c, root_of_one_minus_square(c)); }
ValueRef cosh_of_output(GradContext& c) { return c.op("Cosh", {c.output()}); }
ValueRef sinh_of_output(GradContext& c) { return c.op("Sinh", {c.output()}); }
ValueRef minus_gauss(GradContext& c) { return neg(c, gauss(c)); }

/// dx = dy / divisor.
template <ValueRef (*divisor)(GradContext&)>
void over(GradContext& c) {
  c.set_grad(0, grad::div(c, c.grad(), divisor(c)));
}

void negate_grad(GradContext& c) { c.set_grad(0, neg(c, c.grad())); }
void over_input(GradContext& c) { c.set_grad(0, grad::div(c, c.grad(), c.input(0))); }
void over_one_plus_input(GradContext& c) {
  c.set_grad(0, grad::div(c, c.grad(), grad::add(c, scalar(c, 1), c.input(0))));
}
void stops(GradContext&) {}

// The helper ops take (y, dy) or (dy, x or y), as TensorFlow has them.
template <const char* helper>
void helper_of_output(GradContext& c) {
  c.set_grad(0, c.op(helper, {c.output(), c.grad()}));
}
template <const char* helper>
void grad_and_output(GradContext& c) {
  c.set_grad(0, c.op(helper, {c.grad(), c.output()}));
}
template <const char* helper>
void grad_and_input(GradContext& c) {
  AttrMap attrs;
  if (const Attr* alpha = c.node().attrs.find("alpha")) attrs.set("alpha", *alpha);
  c.set_grad(0, c.op(helper, {c.grad(), c.input(0)}, std::move(attrs)));
}
constexpr char kSqrtGrad[] = "SqrtGrad", kRsqrtGrad[] = "RsqrtGrad", kReciprocalGrad[] = "ReciprocalGrad",
               kTanhGrad[] = "TanhGrad", kSigmoidGrad[] = "SigmoidGrad", kReluGrad[] = "ReluGrad",
               kRelu6Grad[] = "Relu6Grad", kEluGrad[] = "EluGrad", kSeluGrad[] = "SeluGrad",
               kLeakyReluGrad[] = "LeakyReluGrad", kSoftplusGrad[] = "SoftplusGrad",
               kSoftsignGrad[] = "SoftsignGrad";

// -----------------------------------------------------------------------------------------------------------
// table

constexpr double kDefaultAlpha = 0.2;  // TensorFlow's, of LeakyRelu

struct Row {
  const char* name;
  Loops loops;
  double flops;                         // an element, as the cost model counts
  void (*gradient)(GradContext&);       // null: the output is bool
  const char *value = "", *slope = "";  // Formula in engine/ir/op_traits.h; without: not of C's functions

  constexpr bool gives_bool() const { return !gradient; }
};

constexpr Row kRows[] = {
    {"Neg", numbers<Neg>(), 1, negate_grad, "-a", "-1"},
    {"Abs", numbers<Abs>(), 1, times<sign_of>, "abs(a)", "sign(a)"},
    {"Sign", numbers<Sign>(), 1, stops, "sign(a)", "0"},
    {"Exp", floats<Exp>(), 20, times<output_of>, "exp(a)", "y"},
    {"Expm1", floats<Expm1>(), 20, times<output_plus_one>, "expm1(a)", "y + 1"},
    {"Log", floats<Log>(), 25, over_input, "log(a)", "1 / a"},
    {"Log1p", floats<Log1p>(), 30, over_one_plus_input, "log1p(a)", "1 / (1 + a)"},
    {"Sqrt", floats<Sqrt>(), 4, helper_of_output<kSqrtGrad>, "sqrt(a)", "0.5 / y"},
    {"Rsqrt", floats<Rsqrt>(), 8, helper_of_output<kRsqrtGrad>, "rsqrt(a)", "-0.5 * y * y * y"},
    {"Square", numbers<Square>(), 1, times<twice>, "a * a", "2 * a"},
    {"Reciprocal", floats<Reciprocal>(), 4, helper_of_output<kReciprocalGrad>, "1 / a", "-y * y"},
    {"Inv", floats<Reciprocal>(), 4, helper_of_output<kReciprocalGrad>, "1 / a", "-y * y"},
    {"Sin", floats<Sin>(), 40, times<cos_of>, "sin(a)", "cos(a)"},
    {"Cos", floats<Cos>(), 40, times<minus_sin_of>, "cos(a)", "-sin(a)"},
    {"Tan", floats<Tan>(), 60, times<one_plus_squared_output>, "tan(a)", "1 + y * y"},
    {"Asin", floats<Asin>(), 40, over<root_of_one_minus_square>, "asin(a)", "rsqrt(1 - a * a)"},
    {"Acos", floats<Acos>(), 40, over<minus_root_of_one_minus_square>, "acos(a)", "-rsqrt(1 - a * a)"},
    {"Atan", floats<Atan>(), 40, over<one_plus_square>, "atan(a)", "1 / (1 + a * a)"},
    {"Sinh", floats<Sinh>(), 40, times<cosh_of>, "sinh(a)", "cosh(a)"},
    {"Cosh", floats<Cosh>(), 40, times<sinh_of>, "cosh(a)", "sinh(a)"},
    {"Asinh", floats<Asinh>(), 60, over<cosh_of_output>, "asinh(a)", "1 / cosh(y)"},
    {"Acosh", floats<Acosh>(), 60, over<sinh_of_output>, "acosh(a)", "1 / sinh(y)"},
    {"Atanh", floats<Atanh>(), 60, over<one_minus_square>, "atanh(a)", "1 / (1 - a * a)"},
    {"Tanh", floats<Tanh>(), 25, helper_of_output<kTanhGrad>, "tanh(a)", "1 - y * y"},
    {"Sigmoid", floats<Sigmoid>(), 25, helper_of_output<kSigmoidGrad>, "sigmoid(a)", "y * (1 - y)"},
    {"Relu", numbers<Relu>(), 1, grad_and_output<kReluGrad>, "a < 0 ? 0 : a", "y > 0 ? 1 : 0"},
    {"Relu6", numbers<Relu6>(), 2, grad_and_output<kRelu6Grad>, "a < 0 ? 0 : a > 6 ? 6 : a",
     "y > 0 && y < 6 ? 1 : 0"},
    {"Elu", floats<Elu>(), 20, grad_and_output<kEluGrad>, "a < 0 ? expm1(a) : a", "y < 0 ? y + 1 : 1"},
    {"Selu", floats<Selu>(), 20, grad_and_output<kSeluGrad>,
     "a < 0 ? 1.7580993408473768599 * expm1(a) : 1.0507009873554804935 * a",
     "y < 0 ? y + 1.7580993408473768599 : 1.0507009873554804935"},
    {"LeakyRelu", floats<LeakyRelu>(), 2, grad_and_input<kLeakyReluGrad>, "a < 0 ? alpha * a : a",
     "a > 0 ? 1 : alpha"},
    {"Softplus", floats<Softplus>(), 50, grad_and_input<kSoftplusGrad>, "max(a, 0) + log1p(exp(-abs(a)))",
     "sigmoid(a)"},
    {"Softsign", floats<Softsign>(), 6, grad_and_input<kSoftsignGrad>, "a / (1 + abs(a))",
     "1 / ((1 + abs(a)) * (1 + abs(a)))"},
    {"Erf", floats<Erf>(), 40, times<gauss>, "erf(a)", "1.1283791670955126 * exp(-(a * a))"},
    {"Erfc", floats<Erfc>(), 60, times<minus_gauss>, "erfc(a)", "-1.1283791670955126 * exp(-(a * a))"},
    {"Lgamma", floats<Lgamma>(), 80, times<digamma_of>},
    {"Floor", floats<Floor>(), 1, stops, "floor(a)", "0"},
    {"Ceil", floats<Ceil>(), 1, stops, "ceil(a)", "0"},
    {"Round", numbers<Round>(), 1, stops, "rint(a)", "0"},
    {"Rint", floats<Rint>(), 1, stops, "rint(a)", "0"},
    {"IsNan", floats<IsNan>(), 1, nullptr, "isnan(a)"},
    {"IsInf", floats<IsInf>(), 1, nullptr, "isinf(a)"},
    {"IsFinite", floats<IsFinite>(), 1, nullptr, "isfinite(a)"},
    {"LogicalNot", {.boolean = loop<LogicalNot, bool>}, 1, nullptr, "!a"},
    {"Invert", integers<Invert>(), 1, stops},
};

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  const DType dtype = c.inputs[0].dtype;
  const Loop loop = row.loops.of(dtype);
  if (!loop) throw_no_kernel(row.name, dtype);
  const auto alpha = c.attr<double>("alpha", kDefaultAlpha);  // nobody but LeakyRelu reads it
  const std::size_t in_size = dtype_size(dtype), out_size = dtype_size(c.outputs[0].dtype);
  return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                         [=](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           const auto at = static_cast<std::size_t>(begin);
                           loop(args.in<char>(0) + at * in_size, args.out<char>(0) + at * out_size,
                                end - begin, alpha);
                         });
}

void infer(InferContext& c, const Row& row) {
  if (!row.loops.of(c.dtype(0))) c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  c.output(row.gives_bool() ? DType::Bool : c.dtype(0), c.shape(0));
}

OpTraits traits_of(const Row& row) {
  if (*row.value == 0) return pointwise_without_formula("C's functions on floats do not say it");
  std::vector<std::string_view> slopes;
  if (*row.slope != 0) slopes.emplace_back(row.slope);
  const OpTraits traits = pointwise({row.value, std::move(slopes), {{"alpha", kDefaultAlpha}}});
  const bool is_logical = row.loops.of(DType::Bool) != nullptr;
  return is_logical ? traits.type_attrs({}) : traits;
}

const Row* row_of(std::string_view op) {
  const auto* const at =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == op; });
  return at == std::end(kRows) ? nullptr : at;
}

fusion::ElementLoop fused_loop(std::string_view op, std::span<const DType> operands, DType,
                               const fusion::Parameters& parameters) {
  const Row* const row = row_of(op);
  const Loop loop = row && operands.size() == 1 ? row->loops.of(operands[0]) : nullptr;
  if (!loop) return {};
  const auto alpha = parameters.find("alpha");
  return [loop, alpha = alpha == parameters.end() ? kDefaultAlpha : alpha->second](
             const void* const* in, void* y, std::int64_t n) { loop(in[0], y, n, alpha); };
}

}  // namespace

void register_unary(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.traits = traits_of(row);
    def.min_inputs = def.max_inputs = 1;
    def.infer = [&row](InferContext& c) { infer(c, row); };
    if (row.gradient)
      def.gradient = row.gradient;
    else
      def.no_gradient_reason = "the output is bool";
    def.cost = cost_per_output(row.flops);
    def.cpu = [&row](const PrepareContext& c) { return prepare(c, row); };
    if (!row.gives_bool()) def.in_place = {{0, 0}};
    registry.add(std::move(def));
    if (*row.value != 0) fusion::rules().add(row.name, {.loop = fused_loop});
  }
}

}  // namespace braid
