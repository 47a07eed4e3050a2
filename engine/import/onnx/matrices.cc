// Products of matrices and what is made of them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

/// NumPy's product: vectors are a row in front, a column behind.
Val product(Val a, Val b) {
  const bool row = a.rank() == 1, column = b.rank() == 1;
  const Val y = matmul(row ? expand_dims(a, 0) : a, column ? expand_dims(b, 1) : b);
  const int rank = y.rank();
  Ints drop;
  if (row) drop.push_back(rank - 2);
  if (column) drop.push_back(rank - 1);
  return squeeze(y, drop);
}

void matmul_op(OnnxNode& n) { n.out(0, product(n.in(0), n.in(1))); }

void gemm(OnnxNode& n) {
  const Val a = n.in(0), b = n.in(1);
  const AttrMap attrs{{"transpose_a", n.i("transA", 0) != 0}, {"transpose_b", n.i("transB", 0) != 0}};
  const double alpha = n.f("alpha", 1), beta = n.f("beta", 1);
  const auto scaled = [](Val x, double by) {
    return by == 1 ? x : cast(cast(x, DType::Float64) * by, x.dtype());
  };
  const auto times = [&](Val x, double by) {
    if (by == 1) return x;
    return x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ? x * by : scaled(x, by);
  };
  const Val y = times(tf("MatMul", {a, b}, attrs), alpha);
  if (!n.has(2)) return n.out(0, y);
  const Val c = times(n.in(2), beta);
  // A number for each column is a bias, which layers, siblings and gradients are known by.
  const bool is_bias = c.rank() == 1 && y.dim(1) != Shape::kUnknown && c.dim(0) == y.dim(1) &&
                       (c.dtype() == DType::Float32 || c.dtype() == DType::Float64);
  n.out(0, is_bias ? tf("BiasAdd", {y, c}) : y + c);
}

/// `zero` stands for the rows of the left operand (as_rows) or the columns of the right one when it is a
/// vector.
Val without_zero_point(OnnxNode& n, Val x, int i, bool as_rows) {
  const Val wide = cast(x, DType::Int32);
  if (!n.has(i)) return wide;
  Val zero = cast(n.in(i), DType::Int32);
  if (as_rows && zero.rank() == 1) zero = expand_dims(zero, 1);
  return wide - zero;
}

void matmul_integer(OnnxNode& n) {
  n.out(0, product(without_zero_point(n, n.in(0), 2, true), without_zero_point(n, n.in(1), 3, false)));
}

Val limits_of(Val x, DType dtype) {
  const auto between = [&](double low, double high) {
    return minimum(maximum(x, like(low, x)), like(high, x));
  };
  if (dtype == DType::Int8) return between(-128, 127);
  if (dtype == DType::UInt8) return between(0, 255);
  if (dtype == DType::Int16) return between(-32768, 32767);
  return between(0, 65535);
}

void qlinear_matmul(OnnxNode& n) {
  const Val y = product(without_zero_point(n, n.in(0), 2, true), without_zero_point(n, n.in(3), 5, false));
  Val a_scale = cast(n.in(1), DType::Float32);
  if (a_scale.rank() == 1 && a_scale.dim(0) != 1) a_scale = expand_dims(a_scale, 1);
  const Val scale = a_scale * cast(n.in(4), DType::Float32) / cast(n.in(6), DType::Float32);
  const Val rounded = tf("Rint", {cast(y, DType::Float32) * scale}) + cast(n.in(7), DType::Float32);
  n.out(0, cast(limits_of(rounded, n.in(7).dtype()), n.in(7).dtype()));
}

// ------------------------------------------------------------------------------------------------------
// Einsum

/// Operands and the output as texts of labels; "..." is replaced by capitals that do not occur.
struct Equation {
  std::vector<std::string> operands;
  std::string output;
};

Equation parse_equation(std::string text, const std::vector<Val>& inputs) {
  std::erase(text, ' ');
  Equation e;
  const std::size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  for (std::size_t at = 0; at != std::string::npos;) {
    const std::size_t comma = left.find(',', at);
    e.operands.push_back(left.substr(at, comma == std::string::npos ? comma : comma - at));
    at = comma == std::string::npos ? comma : comma + 1;
  }
  if (e.operands.size() != inputs.size())
    throw InvalidArgument("the equation has another number of operands");
  std::string dots;  // labels of the widest "...", others have the last of them
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (e.operands[i].find("...") != std::string::npos) {
      const auto rank = static_cast<std::size_t>(inputs[i].rank());
      if (e.operands[i].size() > rank + 3) throw InvalidArgument("an operand has another rank");
      const std::size_t count = rank + 3 - e.operands[i].size();
      while (dots.size() < count) dots.insert(dots.begin(), static_cast<char>(1 + dots.size()));
    }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::string& labels = e.operands[i];
    if (const std::size_t at = labels.find("..."); at != std::string::npos)
      labels.replace(
          at, 3, dots.substr(dots.size() - (static_cast<std::size_t>(inputs[i].rank()) + 3 - labels.size())));
    if (static_cast<int>(labels.size()) != inputs[i].rank())
      throw InvalidArgument("an operand has another rank");
  }
  if (arrow != std::string::npos) {
    e.output = text.substr(arrow + 2);
    if (const std::size_t at = e.output.find("..."); at != std::string::npos) e.output.replace(at, 3, dots);
    return e;
  }
  std::multiset<char> all;
  for (const std::string& labels : e.operands) all.insert(labels.begin(), labels.end());
  e.output = dots;
  for (auto it = all.begin(); it != all.end(); it = all.upper_bound(*it))
    if (all.count(*it) == 1 && dots.find(*it) == std::string::npos) e.output += *it;
  return e;
}

/// Equal labels of one operand: the elements where their indices agree.
Val take_diagonals(Val x, std::string& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    for (std::size_t j = labels.size(); --j > i;) {
      if (labels[i] != labels[j]) continue;
      Ints line_i(labels.size(), 1), line_j(labels.size(), 1);
      line_i[i] = line_j[j] = -1;
      const Val places = range(size_of(x, static_cast<int>(i)));
      const Val is_equal = tf("Equal", {reshape(places, line_i), reshape(places, line_j)});
      x = reduce("Sum", where(is_equal, x, like(0, x)), {static_cast<std::int64_t>(j)});
      labels.erase(j, 1);
    }
  return x;
}

/// Of two operands or one, with labels of their own.
struct Labelled {
  Val value;
  std::string labels;
};

bool has_label(const std::string& labels, char c) { return labels.find(c) != std::string::npos; }
bool has_labels(const std::string& labels, const std::string& all) {
  return std::all_of(all.begin(), all.end(), [&](char c) { return has_label(labels, c); });
}

/// As a broadcast product: each operand with an axis for every label, output labels first, the rest summed.
Val broadcast_product(const std::vector<Labelled>& operands, const std::string& output) {
  std::string labels = output;
  for (const Labelled& operand : operands)
    for (const char c : operand.labels)
      if (!has_label(labels, c)) labels += c;
  Val result;
  for (const Labelled& operand : operands) {
    Ints order;
    Val x = operand.value;
    for (const char c : labels)
      if (const std::size_t at = operand.labels.find(c); at != std::string::npos)
        order.push_back(static_cast<std::int64_t>(at));
    x = transpose(x, order);
    for (std::size_t at = 0; at < labels.size(); ++at)
      if (!has_label(operand.labels, labels[at])) x = expand_dims(x, static_cast<int>(at));
    result = result ? result * x : x;
  }
  Ints summed;
  for (std::size_t at = output.size(); at < labels.size(); ++at)
    summed.push_back(static_cast<std::int64_t>(at));
  return summed.empty() ? result : reduce("Sum", result, summed);
}

/// A batched matrix product where it is one, which goes without the large intermediate.
Val product_of_two(const Labelled& a, const Labelled& b, const std::string& output) {
  const auto text = [](std::string labels) {
    for (char& c : labels)
      if (c < ' ') c = static_cast<char>('Q' + c);
    return labels;
  };
  // Nothing is summed: an elementwise product is best beside what makes its inputs.
  if (has_labels(output, a.labels) && has_labels(output, b.labels)) return broadcast_product({a, b}, output);
  try {
    return tf(
        "Einsum", {a.value, b.value},
        {{"equation", text(a.labels) + "," + text(b.labels) + "->" + text(output)}, {"N", std::int64_t{2}}});
  } catch (const InvalidArgument&) {
    return broadcast_product({a, b}, output);
  }
}

/// How many numbers have these labels, by what is known of the operands' shapes.
double label_elements(const std::vector<Labelled>& operands, const std::string& labels) {
  constexpr double kUnknown = 1024;
  double all = 1;
  for (const char c : labels) {
    double size = kUnknown;
    for (const Labelled& x : operands)
      if (const std::size_t at = x.labels.find(c);
          at != std::string::npos && x.value.shape()[static_cast<int>(at)] >= 0)
        size = static_cast<double>(x.value.shape()[static_cast<int>(at)]);
    all *= size;
  }
  return all;
}

/// Multiplies two of more than two operands: first what only scales another, as gates do; else those whose
/// product takes the least room beyond theirs. What nobody else has labels of is summed.
void contract_two(std::vector<Labelled>& operands, const std::string& output) {
  std::size_t first = 0, second = 1;
  std::string kept;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t j = i + 1; j < operands.size(); ++j) {
      std::string others = output, labels;
      for (std::size_t k = 0; k < operands.size(); ++k)
        if (k != i && k != j) others += operands[k].labels;
      for (const char c : operands[i].labels + operands[j].labels)
        if (has_label(others, c) && !has_label(labels, c)) labels += c;
      const bool scales = labels.size() == std::max(operands[i].labels.size(), operands[j].labels.size()) &&
                          has_labels(labels, operands[i].labels) && has_labels(labels, operands[j].labels);
      const double more = scales ? -std::numeric_limits<double>::max()
                                 : label_elements(operands, labels) -
                                       label_elements(operands, operands[i].labels) -
                                       label_elements(operands, operands[j].labels);
      if (more >= least) continue;
      least = more;
      first = i;
      second = j;
      kept = labels;
    }
  operands[first] = {product_of_two(operands[first], operands[second], kept), kept};
  operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(second));
}

void einsum(OnnxNode& n) {
  std::vector<Val> inputs;
  for (int i = 0; i < n.inputs(); ++i) inputs.push_back(n.in(i));
  Equation e = parse_equation(n.s("equation", ""), inputs);
  std::vector<Labelled> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Val x = take_diagonals(inputs[i], e.operands[i]);
    operands.push_back({x, e.operands[i]});
  }
  while (operands.size() > 2) contract_two(operands, e.output);
  n.out(0, operands.size() == 2 ? product_of_two(operands[0], operands[1], e.output)
                                : broadcast_product(operands, e.output));
}

// ------------------------------------------------------------------------------------------- determinant

/// By the first row, as long as matrices are small.
Val determinant(Val x, std::int64_t size) {
  const int rank = x.rank();
  const auto element = [&](std::int64_t r, std::int64_t c) {
    return squeeze(slice(slice(x, rank - 2, r, r + 1), rank - 1, c, c + 1), {rank - 2, rank - 1});
  };
  if (size == 1) return element(0, 0);
  if (size == 2) return element(0, 0) * element(1, 1) - element(0, 1) * element(1, 0);
  const Val below = slice(x, rank - 2, 1, kToEnd);
  Val sum;
  for (std::int64_t c = 0; c < size; ++c) {
    const Val minor = concat({slice(below, rank - 1, 0, c), slice(below, rank - 1, c + 1, kToEnd)}, rank - 1);
    const Val term = element(0, c) * determinant(minor, size - 1);
    sum = !sum ? term : c % 2 == 0 ? sum + term : sum - term;
  }
  return sum;
}

void det(OnnxNode& n) {
  const std::int64_t size = n.in(0).static_dim(-1);
  if (size > 5) throw InvalidArgument(fmt::format("matrices of {} rows are not supported", size));
  n.out(0, determinant(n.in(0), size));
}

}  // namespace

void add_matrices(Translations& t) {
  t.add("MatMul", matmul_op);
  t.add("Gemm", gemm);
  t.add("MatMulInteger", matmul_integer);
  t.add("QLinearMatMul", qlinear_matmul);
  t.add("Einsum", einsum);
  t.add("Det", det);
}

}  // namespace braid::onnx
