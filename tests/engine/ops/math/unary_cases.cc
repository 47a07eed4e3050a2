#include <cmath>
#include <limits>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

struct Domain {
  const char* op;
  double low, high;
};

// Away from kinks, so that central differences are defined: none of these ops has one inside its interval.
constexpr Domain kSmooth[] = {
    {"Neg", -2, 2},      {"Abs", 0.1, 2},        {"Exp", -2, 2},     {"Expm1", -1, 1},
    {"Log", 0.2, 3},     {"Log1p", -0.5, 2},     {"Sqrt", 0.2, 3},   {"Rsqrt", 0.2, 3},
    {"Square", -2, 2},   {"Reciprocal", 0.3, 2}, {"Inv", 0.3, 2},    {"Sin", -3, 3},
    {"Cos", -3, 3},      {"Tanh", -2, 2},        {"Sigmoid", -3, 3}, {"Relu", 0.1, 2},
    {"Relu6", 0.1, 5.9}, {"Elu", -2, -0.1},      {"Selu", -2, -0.1}, {"LeakyRelu", -2, -0.1},
    {"Softplus", -3, 3}, {"Softsign", 0.1, 2},   {"Erf", -1.5, 1.5}, {"Tan", -1.2, 1.2},
    {"Asin", -0.9, 0.9}, {"Acos", -0.9, 0.9},    {"Atan", -3, 3},    {"Sinh", -2, 2},
    {"Cosh", -2, 2},     {"Asinh", -3, 3},       {"Acosh", 1.2, 4},  {"Atanh", -0.9, 0.9},
    {"Erfc", -1.5, 1.5},
};
constexpr Domain kOtherSide[] = {{"Abs", -2, -0.1},     {"Relu", -2, -0.1}, {"Relu6", 6.1, 8},
                                 {"Elu", 0.1, 2},       {"Selu", 0.1, 2},   {"LeakyRelu", 0.1, 2},
                                 {"Softsign", -2, -0.1}};

void add_smooth(OpCaseTable& table, const Domain& d) {
  OpCase c{.label = "on [" + std::to_string(d.low) + ", " + std::to_string(d.high) + "]",
           .inputs = {random_f64({3, 5}, 7, d.low, d.high)}};
  table.add(d.op, c);
}

}  // namespace

BRAID_OP_CASES(unary) {
  for (const Domain& d : kSmooth) {
    add_smooth(table, d);
    table.add(d.op, {.label = "several blocks",
                     .inputs = {random_f64({301, 307}, 8, d.low, d.high)},
                     .numeric_gradient = false});  // 92,407 differences say no more than 15
    table.add(d.op, {.label = "no elements", .inputs = {random_f64({0, 4}, 1)}});
  }
  for (const Domain& d : kOtherSide) add_smooth(table, d);
  table.add("LeakyRelu",
            {.label = "alpha", .inputs = {random_f64({7}, 3, -2, -0.1)}, .attrs = {{"alpha", 0.5}}});
  table.add("Lgamma", {.label = "positive", .inputs = {random_f64({3, 5}, 7, 0.2, 6)}});
  table.add("Lgamma", {.label = "several blocks",
                       .inputs = {random_f64({301, 307}, 8, 0.2, 6)},
                       .numeric_gradient = false});  // 92,407 differences say no more than 15
  for (const char* op : {"Neg", "Abs", "Sign", "Square", "Relu", "Relu6", "Invert"}) {
    table.add(op, {.label = "int32", .inputs = {i32({5}, {-7, -1, 0, 3, 9})}});
    table.add(op, {.label = "int64", .inputs = {i64({5}, {-7, -1, 0, 3, 9})}});
  }
  const Tensor steps = f64({7}, {-2.5, -1.5, -0.3, 0.0, 0.5, 1.5, 2.7});
  for (const char* op : {"Sign", "Floor", "Ceil", "Round", "Rint"})
    table.add(op, {.label = "steps", .inputs = {steps}, .no_gradient_inputs = {0}});
  const double inf = std::numeric_limits<double>::infinity();
  for (const char* op : {"IsNan", "IsInf", "IsFinite"})
    table.add(op, {.label = "specials", .inputs = {f64({5}, {1, -inf, inf, std::nan(""), 0})}});
  table.add("LogicalNot", {.label = "both", .inputs = {bools({2}, {true, false})}});
}

BRAID_OP_CASES(unary_grad) {
  const auto add = [&](const std::string& op, const char* label, std::vector<Tensor> inputs,
                       bool differences) {
    OpCase c{.label = label, .inputs = std::move(inputs), .numeric_gradient = differences};
    if (op == "ReluGrad" || op == "Relu6Grad" || op == "LeakyReluGrad") c.no_gradient_inputs = {1};
    table.add(op, std::move(c));
  };
  for (const char* op :
       {"SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad", "TanhGrad", "SigmoidGrad", "ReluGrad",
        "Relu6Grad", "EluGrad", "SeluGrad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad"}) {
    add(op, "positive", {random_f64({4, 3}, 1, 0.5, 1), random_f64({4, 3}, 2, 0.5, 1)}, true);
    add(op, "several blocks", {random_f64({70000}, 3, 0.5, 2), random_f64({70000}, 4, 0.5, 2)}, false);
  }
  for (const char* op : {"ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "LeakyReluGrad", "SoftplusGrad",
                         "SoftsignGrad", "TanhGrad"})
    add(op, "below 0", {random_f64({4, 3}, 5, -1, 1), random_f64({4, 3}, 6, -0.9, -0.3)}, true);
}

BRAID_OP_CASES(special_functions) {
  constexpr Domain kDomains[] = {
      {"Digamma", -2.9, -2.1}, {"Digamma", 0.2, 14}, {"Erfinv", -0.95, 0.95}, {"Ndtri", 0.02, 0.98}};
  for (const Domain& d : kDomains) {
    add_smooth(table, d);
    table.add(d.op, {.label = "several blocks",
                     .inputs = {random_f64({61, 67}, 8, d.low, d.high)},
                     .numeric_gradient = false});  // 4,087 differences say no more than 15
  }
  table.add("Erfinv", {.label = "no elements", .inputs = {random_f64({0, 4}, 1)}});
}

}  // namespace braid::testing
