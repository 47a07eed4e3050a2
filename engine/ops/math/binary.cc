// Elementwise ops of two inputs that broadcast, a row an op in `kRows`: types, formula, gradient.
// TensorFlow's names and semantics. Integers wrap; division of an integer by zero is an error; FloorDiv and
// FloorMod round down; Div of integers, TruncateDiv and TruncateMod (Mod) towards zero. Maximum and Minimum
// pass NaN on; of equal operands the first gets the gradient.
#include <cmath>
#include <type_traits>

#include "engine/ops/common/binary_formulas.h"
#include "engine/ops/common/binary_loop.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using namespace binary;

// -------------------------------------------------------------------------------------------------------
// gradients

using grad::div, grad::mul, grad::neg, grad::scalar, grad::set_broadcast_grad;

void grad_add(GradContext& c) {
  set_broadcast_grad(c, 0, c.grad());
  set_broadcast_grad(c, 1, c.grad());
}

void grad_sub(GradContext& c) {
  set_broadcast_grad(c, 0, c.grad());
  set_broadcast_grad(c, 1, neg(c, c.grad()));
}

void grad_mul(GradContext& c) {
  set_broadcast_grad(c, 0, mul(c, c.grad(), c.input(1)));
  set_broadcast_grad(c, 1, mul(c, c.grad(), c.input(0)));
}

/// da = dy / b, db = dy * (-a / b) / b, with the division that the op itself has.
template <const char* division>
void grad_div(GradContext& c) {
  const auto quotient = [&](ValueRef a, ValueRef b) { return c.op(division, {a, b}); };
  set_broadcast_grad(c, 0, quotient(c.grad(), c.input(1)));
  const ValueRef slope = quotient(quotient(neg(c, c.input(0)), c.input(1)), c.input(1));
  set_broadcast_grad(c, 1, mul(c, c.grad(), slope));
}
constexpr char kRealDiv[] = "RealDiv", kDivNoNan[] = "DivNoNan";

void grad_floor_mod(GradContext& c) {
  set_broadcast_grad(c, 0, c.grad());
  set_broadcast_grad(c, 1, mul(c, c.grad(), neg(c, c.op("FloorDiv", {c.input(0), c.input(1)}))));
}

/// The operand that was taken gets dy; of equal ones the first.
template <const char* comparison>
void grad_choice(GradContext& c) {
  const ValueRef first = c.op(comparison, {c.input(0), c.input(1)});
  const ValueRef zero = scalar(c, 0);
  set_broadcast_grad(c, 0, c.op("SelectV2", {first, c.grad(), zero}));
  set_broadcast_grad(c, 1, c.op("SelectV2", {first, zero, c.grad()}));
}
constexpr char kGreaterEqual[] = "GreaterEqual", kLessEqual[] = "LessEqual";

/// da = dy b a^(b-1), db = dy y log a with log a taken as 0 where a <= 0.
void grad_pow(GradContext& c) {
  const ValueRef a = c.input(0), b = c.input(1);
  const ValueRef lower = c.op("Pow", {a, grad::sub(c, b, scalar(c, 1))});
  set_broadcast_grad(c, 0, mul(c, c.grad(), mul(c, b, lower)));
  const ValueRef positive = c.op("Greater", {a, scalar(c, 0)});
  const ValueRef log_a = c.op("Log", {c.op("SelectV2", {positive, a, scalar(c, 1)})});
  set_broadcast_grad(c, 1, mul(c, c.grad(), mul(c, c.output(), log_a)));
}

void grad_squared_difference(GradContext& c) {
  const ValueRef twice = mul(c, scalar(c, 2), grad::sub(c, c.input(0), c.input(1)));
  const ValueRef g = mul(c, c.grad(), twice);
  set_broadcast_grad(c, 0, g);
  set_broadcast_grad(c, 1, neg(c, g));
}

/// a = q b + r, so dr/db = -q = (r - a) / b.
void grad_truncate_mod(GradContext& c) {
  set_broadcast_grad(c, 0, c.grad());
  const ValueRef slope = div(c, grad::sub(c, c.output(), c.input(0)), c.input(1));
  set_broadcast_grad(c, 1, mul(c, c.grad(), slope));
}

void grad_mul_no_nan(GradContext& c) {
  set_broadcast_grad(c, 0, c.op("MulNoNan", {c.grad(), c.input(1)}));
  set_broadcast_grad(c, 1, c.op("MulNoNan", {c.input(0), c.grad()}));
}

/// 1 where a != 0, else 0: what the X ops multiply their slopes by.
ValueRef is_nonzero(GradContext& c) {
  return c.op("Cast", {c.op("NotEqual", {c.input(0), scalar(c, 0)})},
              {{"DstT", c.input_info(0).dtype}, {"SrcT", DType::Bool}});
}

void grad_xdivy(GradContext& c) {
  set_broadcast_grad(c, 0, mul(c, c.grad(), c.op("Xdivy", {is_nonzero(c), c.input(1)})));
  const ValueRef slope = c.op("Xdivy", {neg(c, c.input(0)), c.op("Square", {c.input(1)})});
  set_broadcast_grad(c, 1, mul(c, c.grad(), slope));
}

void grad_xlogy(GradContext& c) {
  set_broadcast_grad(c, 0, mul(c, c.grad(), c.op("Xlogy", {is_nonzero(c), c.input(1)})));
  set_broadcast_grad(c, 1, mul(c, c.grad(), c.op("Xdivy", {c.input(0), c.input(1)})));
}

void grad_xlog1py(GradContext& c) {
  set_broadcast_grad(c, 0, mul(c, c.grad(), c.op("Xlog1py", {is_nonzero(c), c.input(1)})));
  const ValueRef slope = c.op("Xdivy", {c.input(0), grad::add(c, c.input(1), scalar(c, 1))});
  set_broadcast_grad(c, 1, mul(c, c.grad(), slope));
}

void grad_atan2(GradContext& c) {
  const ValueRef squares = grad::add(c, c.op("Square", {c.input(0)}), c.op("Square", {c.input(1)}));
  const ValueRef scaled = div(c, c.grad(), squares);
  set_broadcast_grad(c, 0, mul(c, c.input(1), scaled));
  set_broadcast_grad(c, 1, mul(c, neg(c, c.input(0)), scaled));
}

void stops(GradContext&) {}  // a step function: TensorFlow gives no gradient either

// -----------------------------------------------------------------------------------------------------------
// table

struct Row {
  const char* name;
  BinaryLoops loops;
  double flops;
  void (*gradient)(GradContext&);
  const char *value = "", *slope_a = "", *slope_b = "";  // of floats; without: the operands are bits
};

constexpr Row kRows[] = {
    {"Add", binary_numbers<Add>(), 1, grad_add, "a + b", "1", "1"},
    {"AddV2", binary_numbers<Add>(), 1, grad_add, "a + b", "1", "1"},
    {"Sub", binary_numbers<Sub>(), 1, grad_sub, "a - b", "1", "-1"},
    {"Mul", binary_numbers<Mul>(), 1, grad_mul, "a * b", "b", "a"},
    {"Div", binary_numbers<Div>(), 4, grad_div<kRealDiv>, "a / b", "1 / b", "-a / b / b"},
    {"RealDiv", binary_floats<Div>(), 4, grad_div<kRealDiv>, "a / b", "1 / b", "-a / b / b"},
    {"FloorDiv", binary_numbers<FloorDiv>(), 5, stops, "floor(a / b)", "0", "0"},
    {"FloorMod", binary_numbers<FloorMod>(), 20, grad_floor_mod,
     "fmod(a, b) != 0 && (fmod(a, b) < 0) != (b < 0) ? fmod(a, b) + b : fmod(a, b)", "1", "-floor(a / b)"},
    {"Maximum", binary_numbers<Maximum>(), 1, grad_choice<kGreaterEqual>, "max(a, b)", "a >= b ? 1 : 0",
     "a >= b ? 0 : 1"},
    {"Minimum", binary_numbers<Minimum>(), 1, grad_choice<kLessEqual>, "min(a, b)", "a <= b ? 1 : 0",
     "a <= b ? 0 : 1"},
    {"Pow", binary_numbers<Pow>(), 60, grad_pow, "pow(a, b)", "b * pow(a, b - 1)", "a > 0 ? y * log(a) : 0"},
    {"SquaredDifference", binary_numbers<SquaredDifference>(), 2, grad_squared_difference,
     "(a - b) * (a - b)", "2 * (a - b)", "-2 * (a - b)"},
    {"DivNoNan", binary_floats<DivNoNan>(), 5, grad_div<kDivNoNan>, "b == 0 ? 0 : a / b",
     "b == 0 ? 0 : 1 / b", "b == 0 ? 0 : -a / b / b"},
    {"MulNoNan", binary_floats<MulNoNan>(), 2, grad_mul_no_nan, "b == 0 ? 0 : a * b", "b", "b == 0 ? 0 : a"},
    {"TruncateDiv", binary_numbers<TruncateDiv>(), 4, stops, "trunc(a / b)", "0", "0"},
    {"TruncateMod", binary_numbers<TruncateMod>(), 20, grad_truncate_mod, "fmod(a, b)", "1", "(y - a) / b"},
    {"Mod", binary_numbers<TruncateMod>(), 20, grad_truncate_mod, "fmod(a, b)", "1", "(y - a) / b"},
    {"Xdivy", binary_floats<Xdivy>(), 5, grad_xdivy, "a == 0 ? 0 : a / b", "a == 0 ? 0 : 1 / b",
     "a == 0 ? 0 : -a / (b * b)"},
    {"Xlogy", binary_floats<Xlogy>(), 25, grad_xlogy, "a == 0 ? 0 : a * log(b)", "a == 0 ? 0 : log(b)",
     "a == 0 ? 0 : a / b"},
    {"Xlog1py", binary_floats<Xlog1py>(), 30, grad_xlog1py, "a == 0 ? 0 : a * log1p(b)",
     "a == 0 ? 0 : log1p(b)", "a == 0 ? 0 : a / (1 + b)"},
    {"Atan2", binary_floats<Atan2>(), 60, grad_atan2, "atan2(a, b)", "b / (a * a + b * b)",
     "-a / (a * a + b * b)"},
    {"BitwiseAnd", binary_integers<BitwiseAnd>(), 1, stops},
    {"BitwiseOr", binary_integers<BitwiseOr>(), 1, stops},
    {"BitwiseXor", binary_integers<BitwiseXor>(), 1, stops},
    {"LeftShift", binary_integers<LeftShift>(), 1, stops},
    {"RightShift", binary_integers<RightShift>(), 1, stops},
};

void infer(InferContext& c, const Row& row) {
  if (!row.loops.of(c.dtype(0))) c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  infer_broadcast(c);
}

fusion::ElementLoop fused_loop(std::string_view op, std::span<const DType> operands, DType,
                               const fusion::Parameters&) {
  const auto* const row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == op; });
  return row == std::end(kRows) ? fusion::ElementLoop{} : fused_binary_loop(row->loops, operands);
}

}  // namespace

void register_binary(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.traits = *row.value == 0 ? pointwise_without_formula("its operands are bits")
                                 : broadcasts({row.value, {row.slope_a, row.slope_b}});
    def.min_inputs = def.max_inputs = 2;
    def.infer = [&row](InferContext& c) { infer(c, row); };
    def.gradient = row.gradient;
    def.cost = cost_per_output(row.flops);
    def.cpu = [&row](const PrepareContext& c) { return prepare_binary(c, row.loops); };
    def.in_place = {{0, 0}, {0, 1}};
    registry.add(std::move(def));
    if (*row.value != 0) fusion::rules().add(row.name, {.loop = fused_loop});
  }
}

}  // namespace braid
