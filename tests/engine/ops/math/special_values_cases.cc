// NaN, infinities and signed zeros in the ops that compare, normalise or exponentiate: what becomes of them
// is part of an op's meaning, and a kernel for another processor loses it first. Rows are short, longer than
// a warp, and longer than what a warp takes.
#include <limits>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Placed {
  std::int64_t at;
  double value;
};

Tensor with(Tensor x, std::initializer_list<Placed> placed) {
  for (const Placed& p : placed) x.data<double>()[static_cast<std::size_t>(p.at)] = p.value;
  return x;
}

/// Four rows of n: one NaN among numbers, nothing but NaN, both infinities, -infinity alone but for the end.
Tensor rows_of(std::int64_t n) {
  Tensor x = with(random_f64({4, n}, 1), {{n / 2, kNan}, {2 * n, kInf}, {3 * n - 1, -kInf}});
  const auto values = x.data<double>();
  std::fill_n(values.begin() + n, n, kNan);
  std::fill_n(values.begin() + 3 * n, n - 1, -kInf);
  return x;
}

/// Masked rows of logits: some -infinity, nothing else, with NaN, with infinity.
Tensor logits_of(std::int64_t n) {
  Tensor x = with(random_f64({4, n}, 1), {{0, -kInf}, {n - 1, -kInf}, {2 * n + 1, kNan}, {4 * n - 2, kInf}});
  std::fill_n(x.data<double>().begin() + n, n, -kInf);
  return x;
}

// There are no differences of such values.
OpCase of(std::string label, std::vector<Tensor> inputs, AttrMap attrs = {}) {
  return {.label = std::move(label),
          .inputs = std::move(inputs),
          .attrs = std::move(attrs),
          .numeric_gradient = false};
}

void add_rows(OpCaseTable& table) {
  for (const std::int64_t n : {5, 300, 1500}) {
    const std::string label = "special values, rows of " + std::to_string(n);
    for (const char* op : {"ArgMax", "ArgMin"}) table.add(op, of(label, {rows_of(n), i32({}, {1})}));
    for (const char* op : {"Max", "Min", "Sum", "Prod"}) {
      // Where a long product comes to 0 before an infinity is a matter of the order.
      if (n == 5 || op != std::string("Prod")) table.add(op, of(label, {rows_of(n), axes({1})}));
      table.add(op, of(label + ", across", {rows_of(n), axes({0})}));
    }
    for (const char* op : {"Softmax", "LogSoftmax"}) table.add(op, of(label, {logits_of(n)}));
    table.add("SoftmaxCrossEntropyWithLogits", of(label, {logits_of(n), random_f64({4, n}, 2, 0, 1)}));
    table.add("SparseSoftmaxCrossEntropyWithLogits", of(label, {logits_of(n), axes({1, 0, 2, 3})}));
    table.add("TopKV2", of(label, {rows_of(n), i32({}, {4})}));
    for (const char* op : {"Cumsum", "Cumprod"})
      for (const std::int32_t axis : {0, 1}) table.add(op, of(label, {rows_of(n), i32({}, {axis})}));
    table.add("InTopKV2",
              of(label, {converted(rows_of(n), DType::Float32), axes({0, 0, 0, 1}), i32({}, {2})}));
  }
  const Tensor tall =
      with(random_f64({300, 9}, 3), {{0, kNan}, {1, kInf}, {9 * 299 + 2, kNan}, {9 * 150 + 3, -kInf}});
  for (const char* op : {"Max", "Min", "Sum"})
    table.add(op, of("special values, columns", {tall, axes({0})}));
}

void add_elementwise(OpCaseTable& table) {
  const Tensor values = f64({8}, {kNan, kInf, -kInf, 0, -0.0, 1, -1, 2.5});
  for (const char* op :
       {"Neg",   "Abs",  "Sign",    "Exp",  "Expm1", "Log",  "Log1p",     "Sqrt",      "Rsqrt",    "Square",
        "Sin",   "Cos",  "Tan",     "Asin", "Acos",  "Atan", "Sinh",      "Cosh",      "Asinh",    "Acosh",
        "Atanh", "Tanh", "Sigmoid", "Relu", "Relu6", "Elu",  "Selu",      "LeakyRelu", "Softplus", "Softsign",
        "Erf",   "Erfc", "Floor",   "Ceil", "Round", "Rint", "Reciprocal"})
    table.add(op, of("special values", {values}));
  const Tensor column = f64({8, 1}, {kNan, kInf, -kInf, 0, -0.0, 1, -1, 2.5});
  for (const char* op :
       {"Add",         "Sub",         "Mul",     "Div",       "FloorDiv", "FloorMod",
        "TruncateDiv", "TruncateMod", "Maximum", "Minimum",   "Pow",      "SquaredDifference",
        "DivNoNan",    "MulNoNan",    "Xdivy",   "Xlogy",     "Xlog1py",  "Atan2",
        "Equal",       "NotEqual",    "Less",    "LessEqual", "Greater",  "GreaterEqual"})
    table.add(op, of("special values", {column, values}));
  table.add("ClipByValue", of("special values", {values, f64({}, {-2}), f64({}, {2})}));
  table.add("ClipByValue", of("infinite bounds", {values, f64({}, {-kInf}), f64({}, {kInf})}));
  for (const char* op : {"ReluGrad", "Relu6Grad", "LeakyReluGrad", "SigmoidGrad", "TanhGrad"})
    table.add(op, of("special values", {random_f64({8}, 1), values}));
  const Tensor beyond = f64({7}, {kNan, kInf, -kInf, 1e300, -1e300, -0.5, 127.9});
  for (const DType to : {DType::Int8, DType::UInt8, DType::Int32, DType::Int64, DType::Bool}) {
    OpCase c = of("special values to " + std::string(dtype_name(to)), {beyond}, {{"DstT", to}});
    c.float32_tolerance = 0;  // of which 1e300 is none
    table.add("Cast", std::move(c));
    table.add("Cast", of("special float32 to " + std::string(dtype_name(to)),
                         {converted(values, DType::Float32)}, {{"DstT", to}}));
  }
  table.add("Bucketize", of("special values", {values}, {{"boundaries", std::vector<double>{-1, 0, 2}}}));
}

/// Updates of one row that several chunks of updates share.
void add_scatters(OpCaseTable& table) {
  const Tensor data =
      with(random_f64({40, 3}, 1), {{0, kNan}, {3 * 17 + 1, kNan}, {3 * 39 + 2, kInf}, {3 * 20 + 2, -kInf}});
  Tensor rows(DType::Int32, Shape{40});
  for (std::size_t k = 0; k < 40; ++k) rows.data<std::int32_t>()[k] = k % 5 == 4 ? 0 : 1;
  for (const char* op : {"UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentSum"})
    table.add(op, of("special values", {data, rows, i32({}, {2})}));
  for (const char* op : {"ResourceScatterMin", "ResourceScatterMax"}) {
    OpCase c = of("special values", {random_f64({2, 3}, 2), rows, data});
    c.variables = {0};
    table.add(op, std::move(c));
  }
}

}  // namespace

BRAID_OP_CASES(special_values) {
  add_rows(table);
  add_elementwise(table);
  add_scatters(table);
  const Tensor a = with(random_f64({3, 5}, 1), {{1, kNan}, {7, kInf}});
  for (const bool relu : {false, true})
    table.add("braid.FusedMatMul", of(relu ? "special values, relu" : "special values",
                                      {a, random_f64({5, 4}, 2), random_f64({4}, 3)}, {{"relu", relu}}));
  table.add("MatMul", of("special values", {a, random_f64({5, 4}, 2)}));

  for (const std::int64_t stride : {1, 2}) {
    const AttrMap attrs{{"ksize", std::vector<std::int64_t>{1, 2, 2, 1}},
                        {"strides", std::vector<std::int64_t>{1, stride, stride, 1}},
                        {"padding", "VALID"}};
    const Tensor x = f64({1, 2, 6, 1}, {kNan, 1, 5, kNan, kNan, -kInf, 2, 3, kNan, 4, -kInf, kNan});
    const Tensor y = stride == 2 ? f64({1, 1, 3, 1}, {3, 5, -kInf}) : f64({1, 1, 5, 1}, {3, 5, 5, 4, -kInf});
    const Tensor dy = random_f64(y.shape(), 4);
    const std::string label = "special values, stride " + std::to_string(stride);
    OpCase wide = of(label, {x}, attrs);
    wide.float32_tolerance = 0;  // the lowest numbers of the types are others
    table.add("MaxPool", std::move(wide));
    table.add("MaxPool", of(label + ", float32", {converted(x, DType::Float32)}, attrs));
    table.add("MaxPoolGrad", of(label, {x, y, dy}, attrs));
  }

  const Tensor x = with(random_f64({4, 1, 1, 3}, 1), {{3, kNan}, {7, kInf}});
  const Tensor scale = random_f64({3}, 2), offset = random_f64({3}, 3), none(DType::Float64, Shape{0});
  table.add("FusedBatchNormV3", of("special values", {x, scale, offset, none, none}));
}

}  // namespace braid::testing
