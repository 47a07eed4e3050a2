// The helper ops of elementwise gradients, a row an op, with TensorFlow's names, argument order and
// semantics: some take (y, dy), some (dy, x) or (dy, y). Both inputs have the output's type and shape.
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/unary_grad_formulas.h"

namespace braid {
namespace {

using namespace unary_grad;
using grad::mul;
using grad::scalar;

template <class T>
using Loop = void (*)(const T* a, const T* b, T* y, std::int64_t n, double alpha);

template <class Op, class T>
BRAID_VECTOR_CLONES void loop(const T* a, const T* b, T* y, std::int64_t n, double alpha) {
  const T al = static_cast<T>(alpha);
#pragma GCC ivdep  // y is a, or b, or overlaps neither
  for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], b[i], al);
}

constexpr double kDefaultAlpha = 0.2;  // TensorFlow's

using Rule = ValueRef (*)(GradContext&);

struct Row {
  const char* name;
  Loop<float> f32;
  Loop<double> f64;
  double flops;
  const char* formula;  // of a and b, the first and the second input,
  const char *slope_a, *slope_b;
  Rule at_a, at_b;  // their products with the gradient of the output, as nodes; null: nothing flows

  template <class T>
  Loop<T> of() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else
      return f64;
  }
};

template <class Op>
constexpr Row row(const char* name, double flops, const char* formula, const char* slope_a,
                  const char* slope_b, Rule at_a, Rule at_b) {
  return {name, loop<Op, float>, loop<Op, double>, flops, formula, slope_a, slope_b, at_a, at_b};
}

/// The op is linear in one operand: its gradient there is the op of the gradient.
template <int kOperand>
ValueRef itself(GradContext& c) {
  const bool first = kOperand == 0;
  return c.op(c.node().op->name, {first ? c.grad() : c.input(0), first ? c.input(1) : c.grad()},
              c.node().attrs);
}

/// g y / a, times the power: of ops whose value is a power of a.
template <int kPower>
ValueRef by_power(GradContext& c) {
  const ValueRef by = c.op("DivNoNan", {mul(c, c.grad(), c.output()), c.input(0)});
  return mul(c, by, scalar(c, kPower));
}

ValueRef tanh_a(GradContext& c) {
  return mul(c, mul(c, mul(c, c.grad(), c.input(1)), c.input(0)), scalar(c, -2));
}

ValueRef sigmoid_a(GradContext& c) {
  const ValueRef slope = grad::sub(c, scalar(c, 1), mul(c, c.input(0), scalar(c, 2)));
  return mul(c, mul(c, c.grad(), c.input(1)), slope);
}

/// Of (dy, y), where y < 0 the value is dy (y + c).
ValueRef below_zero(GradContext& c) {
  const ValueRef product = mul(c, c.grad(), c.input(0));
  return c.op("SelectV2", {c.op("Less", {c.input(1), scalar(c, 0)}), product, scalar(c, 0)});
}

ValueRef softplus_b(GradContext& c) {
  return c.op("SigmoidGrad", {c.op("Sigmoid", {c.input(1)}), mul(c, c.grad(), c.input(0))});
}

ValueRef softsign_b(GradContext& c) {
  const ValueRef sizes = grad::add(c, scalar(c, 1), c.op("Abs", {c.input(1)}));
  const ValueRef slope = grad::div(c, c.op("Sign", {c.input(1)}), sizes);
  return mul(c, mul(c, mul(c, c.grad(), c.output()), slope), scalar(c, -2));
}

constexpr Row kRows[] = {
    row<SqrtGrad>("SqrtGrad", 5, "b == 0 ? 0 : 0.5 * b / a", "b == 0 ? 0 : -0.5 * b / (a * a)", "0.5 / a",
                  by_power<-1>, itself<1>),
    row<RsqrtGrad>("RsqrtGrad", 4, "b == 0 ? 0 : -0.5 * b * a * a * a", "-1.5 * b * a * a",
                   "-0.5 * a * a * a", by_power<3>, itself<1>),
    row<ReciprocalGrad>("ReciprocalGrad", 3, "b == 0 ? 0 : -b * a * a", "-2 * b * a", "-a * a", by_power<2>,
                        itself<1>),
    row<ReciprocalGrad>("InvGrad", 3, "b == 0 ? 0 : -b * a * a", "-2 * b * a", "-a * a", by_power<2>,
                        itself<1>),
    row<TanhGrad>("TanhGrad", 3, "b * (1 - a * a)", "-2 * a * b", "1 - a * a", tanh_a, itself<1>),
    row<SigmoidGrad>("SigmoidGrad", 3, "b * a * (1 - a)", "b * (1 - 2 * a)", "a * (1 - a)", sigmoid_a,
                     itself<1>),
    row<ReluGrad>("ReluGrad", 1, "b > 0 ? a : 0", "b > 0 ? 1 : 0", "0", itself<0>, nullptr),
    row<Relu6Grad>("Relu6Grad", 2, "b > 0 && b < 6 ? a : 0", "b > 0 && b < 6 ? 1 : 0", "0", itself<0>,
                   nullptr),
    row<EluGrad>("EluGrad", 3, "b < 0 ? a * (b + 1) : a", "b < 0 ? b + 1 : 1", "b < 0 ? a : 0", itself<0>,
                 below_zero),
    row<SeluGrad>("SeluGrad", 3, "a * (b < 0 ? b + 1.7580993408473768599 : 1.0507009873554804935)",
                  "b < 0 ? b + 1.7580993408473768599 : 1.0507009873554804935", "b < 0 ? a : 0", itself<0>,
                  below_zero),
    row<LeakyReluGrad>("LeakyReluGrad", 2, "b > 0 ? a : alpha * a", "b > 0 ? 1 : alpha", "0", itself<0>,
                       nullptr),
    row<SoftplusGrad>("SoftplusGrad", 26, "a * sigmoid(b)", "sigmoid(b)", "a * sigmoid(b) * (1 - sigmoid(b))",
                      itself<0>, softplus_b),
    row<SoftsignGrad>(
        "SoftsignGrad", 8, "a / ((1 + abs(b)) * (1 + abs(b)))", "1 / ((1 + abs(b)) * (1 + abs(b)))",
        "-2 * a * sign(b) / ((1 + abs(b)) * (1 + abs(b)) * (1 + abs(b)))", itself<0>, softsign_b),
};

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  const auto alpha = c.attr<double>("alpha", kDefaultAlpha);  // LeakyReluGrad's
  return with_float(row.name, c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, c.outputs[0].shape.elements(), kElementGrain,
        [loop = row.of<T>(), alpha](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
          loop(args.in<T>(0) + begin, args.in<T>(1) + begin, args.out<T>(0) + begin, end - begin, alpha);
        });
  });
}

template <class T>
fusion::ElementLoop fused_loop_of(const Row& row, double alpha) {
  return [loop = row.of<T>(), alpha](const void* const* in, void* y, std::int64_t n) {
    loop(static_cast<const T*>(in[0]), static_cast<const T*>(in[1]), static_cast<T*>(y), n, alpha);
  };
}

fusion::ElementLoop fused_loop(std::string_view op, std::span<const DType> operands, DType dtype,
                               const fusion::Parameters& parameters) {
  const auto* const row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == op; });
  if (row == std::end(kRows) || operands.size() != 2 || operands[0] != dtype || operands[1] != dtype)
    return {};
  const auto at = parameters.find("alpha");
  const double alpha = at == parameters.end() ? kDefaultAlpha : at->second;
  if (dtype == DType::Float32) return fused_loop_of<float>(*row, alpha);
  if (dtype == DType::Float64) return fused_loop_of<double>(*row, alpha);
  return {};
}

}  // namespace

void register_unary_grad(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.traits = pointwise({row.formula, {row.slope_a, row.slope_b}, {{"alpha", kDefaultAlpha}}});
    def.min_inputs = def.max_inputs = 2;
    def.infer = [](InferContext& c) {
      require_floating(c, 0);
      infer_same_shapes(c);
    };
    def.gradient = [&row](GradContext& c) {
      if (row.at_a) c.set_grad(0, row.at_a(c));
      if (row.at_b) c.set_grad(1, row.at_b(c));
    };
    def.cost = cost_per_output(row.flops);
    def.cpu = [&row](const PrepareContext& c) { return prepare(c, row); };
    def.in_place = {{0, 0}, {0, 1}};
    registry.add(std::move(def));
    fusion::rules().add(row.name, {.loop = fused_loop});
  }
}

}  // namespace braid
