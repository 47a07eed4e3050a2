#include "tests/engine/fusion/random_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kMostElements = 100000;

struct Value {
  Output output;
  DType dtype;
  Shape shape;
};

class Maker {
 public:
  Maker(std::uint64_t seed, Numbers numbers) : random_(seed), smooth_(numbers == Numbers::Smooth) {}

  RandomRegions make() {
    const std::int64_t dims[] = {1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 100, 257, 1030};
    std::vector<std::int64_t> shape;
    const int rank = 1 + pick(3);
    std::int64_t elements = 1;
    for (int d = 0; d < rank; ++d) {
      std::int64_t size = dims[pick(std::size(dims))];
      if (elements * size > 40000) size = 2;
      shape.push_back(size);
      elements *= size;
    }
    grid_ = Shape(shape);
    feed(DType::Float32, grid_);
    for (int i = pick(4) + 1; i > 0; --i) feed(pick(6) == 0 ? some_type() : DType::Float32, smaller());
    for (int i = pick(24) + 4; i > 0; --i) add();
    RandomRegions made{import_graph(b_.graph()), std::move(feeds_), {}};
    for (const Value& value : values_)
      if (pick(4) == 0) made.fetches.push_back(value.output.name());
    made.fetches.push_back(values_.back().output.name());
    return made;
  }

 private:
  int pick(std::size_t count) { return static_cast<int>(random_() % count); }

  DType some_type() {
    constexpr DType kTypes[] = {DType::Float32, DType::Float64, DType::Int32, DType::Int64, DType::Bool};
    return kTypes[pick(std::size(kTypes))];
  }

  /// A shape that broadcasts to the grid's.
  Shape smaller() {
    std::vector<std::int64_t> dims(grid_.dims().begin(), grid_.dims().end());
    if (pick(2) == 0) return grid_;
    for (std::int64_t& dim : dims)
      if (pick(2) == 0) dim = 1;
    while (!dims.empty() && dims[0] == 1 && pick(2) == 0) dims.erase(dims.begin());
    return Shape(dims);
  }

  double number() {
    if (!smooth_ && pick(40) == 0) {
      constexpr double kSpecial[] = {std::numeric_limits<double>::quiet_NaN(),
                                     std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity(),
                                     0.0,
                                     -0.0,
                                     1e-42,
                                     3e38,
                                     -90};
      return kSpecial[pick(std::size(kSpecial))];
    }
    return std::uniform_real_distribution<double>(-2, 2)(random_);
  }

  void feed(DType dtype, const Shape& shape) {
    Tensor tensor(dtype, shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      switch (dtype) {
        case DType::Float32:
          tensor.data<float>()[at] = static_cast<float>(number());
          break;
        case DType::Float64:
          tensor.data<double>()[at] = number();
          break;
        case DType::Int32:
          tensor.data<std::int32_t>()[at] = static_cast<std::int32_t>(random_()) >> pick(32);
          break;
        case DType::Int64:
          tensor.data<std::int64_t>()[at] = static_cast<std::int64_t>(random_()) >> pick(64);
          break;
        default:
          tensor.data<bool>()[at] = pick(2) == 0;
      }
    }
    const std::string name = "x" + std::to_string(feeds_.size());
    values_.push_back({b_.placeholder(name, dtype, shape), dtype, shape});
    feeds_.emplace_back(name, tensor);
  }

  const Value& some() { return values_[static_cast<std::size_t>(pick(values_.size()))]; }
  /// One of that type, the last ones rather than the first; null where there is none.
  const Value* some_of(DType dtype) {
    for (int tries = 0; tries < 30; ++tries) {
      const auto back = static_cast<std::size_t>(pick(std::min<std::size_t>(values_.size(), 8)));
      const Value& value = tries < 15 ? values_[values_.size() - 1 - back] : some();
      if (value.dtype == dtype) return &value;
    }
    return nullptr;
  }

  void keep(const Output& output, DType dtype, Shape shape) {
    values_.push_back({output, dtype, std::move(shape)});
  }

  void add() {
    switch (pick(17)) {
      case 0:
      case 1:
      case 2:
        return add_unary();
      case 3:
      case 4:
      case 5:
        return add_binary();
      case 6:
        return add_reduction();
      case 7:
        return add_rows();
      case 8:
        return add_choice();
      case 9:
        return add_cast();
      case 10:
        return add_view();
      case 11:
        return add_parts();
      case 12:
      case 13:
        return add_join();
      case 14:
        return add_scan();
      case 15:
        return add_turn();
      default:
        return add_barrier();
    }
  }

  void add_unary() {
    constexpr const char* kFloats[] = {"Neg",   "Abs",       "Sign",  "Exp",   "Log",  "Tanh",  "Sigmoid",
                                       "Relu",  "Softplus",  "Elu",   "Erf",   "Sqrt", "Rsqrt", "Square",
                                       "Floor", "LeakyRelu", "Expm1", "Log1p", "Selu", "Round"};
    constexpr const char* kIntegers[] = {"Neg", "Abs", "Sign", "Square", "Relu"};
    const Value x = some();
    if (x.dtype == DType::Bool) return keep(b_.op("LogicalNot", {x.output}), x.dtype, x.shape);
    if (x.dtype == DType::Float32 && pick(8) == 0)
      return keep(b_.op("braid.Dropout", {x.output}, {{"rate", 0.3}}), x.dtype, x.shape);
    constexpr const char* kSmooth[] = {"Neg",      "Abs", "Tanh", "Sigmoid",
                                       "Softplus", "Erf", "Relu", "LeakyRelu"};
    const char* op = !is_floating(x.dtype) ? kIntegers[pick(std::size(kIntegers))]
                     : smooth_             ? kSmooth[pick(std::size(kSmooth))]
                                           : kFloats[pick(std::size(kFloats))];
    AttrMap attrs;
    if (std::string_view(op) == "LeakyRelu") attrs.set("alpha", 0.3);
    keep(b_.op(op, {x.output}, attrs), x.dtype, x.shape);
  }

  void add_binary() {
    const Value x = some();
    const Value* other = some_of(x.dtype);
    Shape out;
    if (!other || !broadcast_shapes(x.shape, other->shape, out) || out.elements() > kMostElements)
      return add_unary();
    const Value y = *other;
    if (x.dtype == DType::Bool) return keep(b_.op("LogicalAnd", {x.output, y.output}), x.dtype, out);
    constexpr const char* kFloats[] = {
        "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference", "RealDiv", "DivNoNan", "Xlogy"};
    constexpr int kSmoothOps = 5;
    constexpr const char* kCompare[] = {"Less", "GreaterEqual", "Equal", "NotEqual"};
    if (!smooth_ && pick(5) == 0)
      return keep(b_.op(kCompare[pick(std::size(kCompare))], {x.output, y.output}), DType::Bool, out);
    const char* op = kFloats[pick(!is_floating(x.dtype) ? 3 : smooth_ ? kSmoothOps : std::size(kFloats))];
    if (x.shape == y.shape && pick(4) == 0) {
      if (is_floating(x.dtype) && !smooth_ && pick(2) == 0)
        return keep(b_.op(pick(2) == 0 ? "SigmoidGrad" : "ReluGrad", {x.output, y.output}), x.dtype, x.shape);
      return keep(b_.op("AddN", {x.output, y.output, x.output}), x.dtype, x.shape);
    }
    keep(b_.op(op, {x.output, y.output}), x.dtype, out);
  }

  void add_reduction() {
    const Value x = some();
    if (x.dtype == DType::Bool || x.shape.rank() == 0) return add_binary();
    constexpr const char* kOps[] = {"Sum", "Mean", "Max", "Min", "Prod"};
    const char* op = kOps[pick(!is_floating(x.dtype) ? 1 : smooth_ ? 4 : 5)];
    const int axes = 1 + pick(static_cast<std::size_t>(std::min(2, x.shape.rank())));
    const bool keep_dims = pick(3) != 0;
    std::vector<std::int32_t> reduced;
    std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
    for (int a = 0; a < axes; ++a) {
      const int axis = pick(8) == 0 ? a : x.shape.rank() - axes + a;
      reduced.push_back(axis);
      dims[static_cast<std::size_t>(axis)] = keep_dims ? 1 : -1;
    }
    // A sum of one number is left out, and the number's zero may be negative.
    std::int64_t count = 1;
    for (const std::int32_t axis : reduced) count *= x.shape[axis];
    if (count == 1) return add_unary();
    std::erase(dims, -1);
    const Output which =
        b_.constant(Tensor::from<std::int32_t>(Shape{axes}, std::span<const std::int32_t>(reduced)), "axes");
    const Output y = b_.op(op, {x.output, which}, {{"keep_dims", keep_dims}});
    keep(y, x.dtype, Shape(dims));
    if (is_floating(x.dtype) && keep_dims && pick(2) == 0)
      keep(b_.op("Sub", {x.output, y}), x.dtype, x.shape);
  }

  void add_rows() {
    const Value x = some();
    if (!is_floating(x.dtype) || x.shape.rank() == 0) return add_binary();
    if (x.shape.rank() > 1 && pick(3) == 0)
      return keep(b_.op("BiasAddGrad", {x.output}), x.dtype, Shape{x.shape[x.shape.rank() - 1]});
    const Value* other = some_of(x.dtype);
    if (other && other->shape == x.shape && pick(2) == 0)
      return keep(b_.op("braid.SoftmaxGrad", {x.output, other->output}), x.dtype, x.shape);
    keep(b_.op(pick(2) == 0 ? "Softmax" : "LogSoftmax", {x.output}), x.dtype, x.shape);
  }

  void add_choice() {
    const Value* condition = some_of(DType::Bool);
    const Value x = some();
    const Value* y = some_of(x.dtype);
    Shape both, out;
    if (!condition || !y || !broadcast_shapes(x.shape, y->shape, both) ||
        !broadcast_shapes(condition->shape, both, out) || out.elements() > kMostElements)
      return add_binary();
    keep(b_.op("SelectV2", {condition->output, x.output, y->output}), x.dtype, out);
  }

  void add_cast() {
    // A rounding error would become one of a half: where numbers are smooth, only exact ones are halved.
    const Value x = smooth_ ? values_[static_cast<std::size_t>(pick(feeds_.size()))] : some();
    if (x.dtype == DType::Float32 && pick(3) == 0) {
      const DType half = pick(2) == 0 ? DType::BFloat16 : DType::Float16;
      const Output y = b_.op("Cast", {x.output}, {{"SrcT", x.dtype}, {"DstT", half}});
      return keep(b_.op("Cast", {y}, {{"SrcT", half}, {"DstT", x.dtype}}), x.dtype, x.shape);
    }
    const DType to = smooth_ ? DType::Float32 : some_type();
    if (to == x.dtype) return add_unary();
    keep(b_.op("Cast", {x.output}, {{"SrcT", x.dtype}, {"DstT", to}}), to, x.shape);
  }

  void add_view() {
    const Value x = some();
    std::vector<std::int32_t> to{static_cast<std::int32_t>(x.shape.elements())};
    if (x.shape.rank() > 0 && pick(2) == 0) {
      const std::int64_t last = x.shape[x.shape.rank() - 1];
      to = {static_cast<std::int32_t>(x.shape.elements() / last), static_cast<std::int32_t>(last)};
    }
    const Output shape = b_.constant(Tensor::from<std::int32_t>(Shape{static_cast<std::int64_t>(to.size())},
                                                                std::span<const std::int32_t>(to)),
                                     "shape");
    keep(b_.op("Reshape", {x.output, shape}), x.dtype,
         Shape(std::vector<std::int64_t>(to.begin(), to.end())));
  }

  /// The axes in any order.
  void add_turn() {
    const Value x = some();
    if (x.shape.rank() < 2) return add_unary();
    std::vector<std::int32_t> order(static_cast<std::size_t>(x.shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::int64_t> dims;
    for (const std::int32_t axis : order) dims.push_back(x.shape[axis]);
    keep(b_.op("Transpose", {x.output, numbers(order)}), x.dtype, Shape(std::move(dims)));
  }

  Output number(std::int32_t value) { return b_.constant(Tensor::scalar(value), "number"); }
  Output numbers(const std::vector<std::int32_t>& values) {
    return b_.constant(Tensor::from<std::int32_t>(Shape{std::ssize(values)}, values), "numbers");
  }

  /// Equal parts, or one part, along any axis.
  void add_parts() {
    const Value x = some();
    if (x.shape.rank() == 0) return add_unary();
    const int axis = pick(3) != 0 ? x.shape.rank() - 1 : pick(static_cast<std::size_t>(x.shape.rank()));
    std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
    std::int64_t& size = dims[static_cast<std::size_t>(axis)];
    const std::int64_t count = 2 + pick(3);
    if (size % count == 0 && pick(4) != 0) {
      size /= count;
      const Output parts = b_.op("Split", {number(axis), x.output}, {{"num_split", count}});
      for (int part = 0; part < count; ++part) keep({parts.node, part}, x.dtype, Shape(dims));
      return;
    }
    std::vector<std::int32_t> begin(dims.size(), 0);
    const int first = pick(static_cast<std::size_t>(size));
    begin[static_cast<std::size_t>(axis)] = first;
    size = 1 + pick(static_cast<std::size_t>(size - first));
    const Output part = b_.op(
        "Slice", {x.output, numbers(begin), numbers(std::vector<std::int32_t>(dims.begin(), dims.end()))});
    keep(part, x.dtype, Shape(dims));
  }

  /// What is often made of one value, side by side.
  void add_join() {
    const Value x = some();
    if (x.shape.rank() == 0 || x.shape.elements() * 3 > kMostElements) return add_unary();
    std::vector<Output> parts{x.output};
    for (int more = 1 + pick(2); more > 0; --more) {
      const Value* other = some_of(x.dtype);
      if (other && other->shape == x.shape && pick(3) != 0)
        parts.push_back(other->output);
      else if (x.dtype == DType::Bool)
        parts.push_back(b_.op("LogicalNot", {x.output}));
      else
        parts.push_back(b_.op(pick(2) == 0 ? "Neg" : "Square", {x.output}));
    }
    const int axis = pick(3) != 0 ? x.shape.rank() - 1 : pick(static_cast<std::size_t>(x.shape.rank()));
    std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
    dims[static_cast<std::size_t>(axis)] *= std::ssize(parts);
    parts.push_back(number(axis));
    keep(b_.op("ConcatV2", parts), x.dtype, Shape(dims));
  }

  /// Running sums and products along any axis but the last.
  void add_scan() {
    const Value x = some();
    if (!is_floating(x.dtype) || x.shape.rank() < 2) return add_unary();
    const int axis = pick(static_cast<std::size_t>(x.shape.rank() - 1));
    const bool product = !smooth_ && pick(3) == 0;
    keep(b_.op(product ? "Cumprod" : "Cumsum", {x.output, number(axis)},
               {{"reverse", pick(2) == 0}, {"exclusive", pick(3) == 0}}),
         x.dtype, x.shape);
  }

  /// What no region takes.
  void add_barrier() {
    const Value x = some();
    if (!is_floating(x.dtype) || x.shape.rank() == 0) return add_unary();
    const Output axis = b_.constant(Tensor::scalar<std::int32_t>(x.shape.rank() - 1), "axis");
    keep(b_.op("Cumsum", {x.output, axis}), x.dtype, x.shape);
  }

  std::mt19937_64 random_;
  bool smooth_;
  GraphBuilder b_;
  Shape grid_;
  std::vector<Value> values_;
  std::vector<std::pair<std::string, Tensor>> feeds_;
};

template <class T>
std::string float_difference(const Tensor& expected, const Tensor& got, double tolerance) {
  double largest = 0.01;  // sums of numbers around one may cancel
  for (const T e : expected.data<T>())
    if (std::isfinite(e)) largest = std::max(largest, std::abs(static_cast<double>(e)));
  for (std::size_t i = 0; i < expected.data<T>().size(); ++i) {
    const T e = expected.data<T>()[i], g = got.data<T>()[i];
    if (std::isnan(e) && std::isnan(g)) continue;
    if (std::memcmp(&e, &g, sizeof e) == 0) continue;
    if (tolerance > 0 && std::abs(static_cast<double>(e) - static_cast<double>(g)) <= tolerance * largest)
      continue;
    return fmt::format("element {}: expected {}, got {}", i, e, g);
  }
  return {};
}

}  // namespace

std::vector<Tensor> RandomRegions::interpreted(const StepParams& params) const {
  Interpreter interpreter(graph);
  interpreter.params() = params;
  return interpreter.run({feeds.begin(), feeds.end()}, fetches);
}

CompileRequest RandomRegions::request() const {
  CompileRequest request;
  for (const auto& [name, tensor] : feeds) request.feeds.push_back({name, tensor.dtype(), tensor.shape()});
  request.fetches = fetches;
  return request;
}

RandomRegions make_random_regions(std::uint64_t seed, Numbers numbers) { return Maker(seed, numbers).make(); }

std::string difference(const Tensor& expected, const Tensor& got, double tolerance) {
  if (expected.dtype() != got.dtype() || expected.shape() != got.shape()) return "another type or shape";
  if (expected.dtype() == DType::Float32) return float_difference<float>(expected, got, tolerance);
  if (expected.dtype() == DType::Float64) return float_difference<double>(expected, got, tolerance);
  return std::memcmp(expected.raw(), got.raw(), expected.bytes()) == 0 ? "" : "other elements";
}

}  // namespace braid::testing
