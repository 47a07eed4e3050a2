#include "engine/ir/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace braid {
namespace {

struct Function {
  std::string_view name;
  int arguments;
  double (*one)(double) = nullptr;
  double (*two)(double, double) = nullptr;
};

constexpr Function unary(std::string_view name, double (*function)(double)) { return {name, 1, function}; }
constexpr Function binary(std::string_view name, double (*function)(double, double)) {
  return {name, 2, nullptr, function};
}

const Function* find_function(std::string_view name) {
  using D = double;
  static constexpr auto kFunctions = std::to_array<Function>({
      unary("neg", [](D x) { return -x; }),
      unary("!", [](D x) { return D(x == 0); }),
      unary("abs", [](D x) { return std::abs(x); }),
      unary("sign", [](D x) { return x > 0   ? 1
                                     : x < 0 ? -1
                                             : x; }),
      unary("exp", [](D x) { return std::exp(x); }),
      unary("expm1", [](D x) { return std::expm1(x); }),
      unary("log", [](D x) { return std::log(x); }),
      unary("log1p", [](D x) { return std::log1p(x); }),
      unary("sqrt", [](D x) { return std::sqrt(x); }),
      unary("rsqrt", [](D x) { return 1 / std::sqrt(x); }),
      unary("sin", [](D x) { return std::sin(x); }),
      unary("cos", [](D x) { return std::cos(x); }),
      unary("tan", [](D x) { return std::tan(x); }),
      unary("asin", [](D x) { return std::asin(x); }),
      unary("acos", [](D x) { return std::acos(x); }),
      unary("atan", [](D x) { return std::atan(x); }),
      unary("sinh", [](D x) { return std::sinh(x); }),
      unary("cosh", [](D x) { return std::cosh(x); }),
      unary("tanh", [](D x) { return std::tanh(x); }),
      unary("asinh", [](D x) { return std::asinh(x); }),
      unary("acosh", [](D x) { return std::acosh(x); }),
      unary("atanh", [](D x) { return std::atanh(x); }),
      unary("sigmoid", [](D x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }),
      unary("erf", [](D x) { return std::erf(x); }),
      unary("erfc", [](D x) { return std::erfc(x); }),
      unary("lgamma", [](D x) { return std::lgamma(x); }),
      unary("floor", [](D x) { return std::floor(x); }),
      unary("ceil", [](D x) { return std::ceil(x); }),
      unary("rint", [](D x) { return std::rint(x); }),
      unary("trunc", [](D x) { return std::trunc(x); }),
      unary("isnan", [](D x) { return D(std::isnan(x)); }),
      unary("isinf", [](D x) { return D(std::isinf(x)); }),
      unary("isfinite", [](D x) { return D(std::isfinite(x)); }),
      binary("+", [](D x, D y) { return x + y; }),
      binary("-", [](D x, D y) { return x - y; }),
      binary("*", [](D x, D y) { return x * y; }),
      binary("/", [](D x, D y) { return x / y; }),
      binary("<", [](D x, D y) { return D(x < y); }),
      binary("<=", [](D x, D y) { return D(x <= y); }),
      binary(">", [](D x, D y) { return D(x > y); }),
      binary(">=", [](D x, D y) { return D(x >= y); }),
      binary("==", [](D x, D y) { return D(x == y); }),
      binary("!=", [](D x, D y) { return D(x != y); }),
      binary("&&", [](D x, D y) { return D(x != 0 && y != 0); }),
      binary("||", [](D x, D y) { return D(x != 0 || y != 0); }),
      binary("pow", [](D x, D y) { return std::pow(x, y); }),
      binary("atan2", [](D x, D y) { return std::atan2(x, y); }),
      binary("fmod", [](D x, D y) { return std::fmod(x, y); }),
      // As the ops: of a NaN first, a NaN.
      binary("max", [](D x, D y) { return x > y || std::isnan(x) ? x : y; }),
      binary("min", [](D x, D y) { return x < y || std::isnan(x) ? x : y; }),
  });
  const auto at = std::find_if(kFunctions.begin(), kFunctions.end(),
                               [&](const Function& function) { return function.name == name; });
  return at == kFunctions.end() ? nullptr : &*at;
}

}  // namespace

/// By recursive descent; each rule of the grammar is a function that gives the place of its term.
class FormulaParser {
 public:
  explicit FormulaParser(std::string_view text) : text_(text) {}

  Expression parse() {
    choice();
    if (skip_spaces(); at_ != text_.size()) fail("it should end");
    return std::move(result_);
  }

 private:
  using Kind = Expression::Kind;

  [[noreturn]] void fail(std::string_view what) const {
    throw Internal(fmt::format("formula '{}': {} at {}", text_, what, at_));
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}' is missing", token));
  }
  int add(Expression::Term term) {
    result_.terms_.push_back(std::move(term));
    return static_cast<int>(result_.terms_.size()) - 1;
  }
  int call(std::string_view name, std::vector<int> arguments) {
    return add({.kind = Kind::Call, .name = std::string(name), .arguments = std::move(arguments)});
  }

  int choice() {
    const int condition = either();
    if (!take("?")) return condition;
    const int then = choice();
    expect(":");
    return call("?:", {condition, then, choice()});
  }
  int either() {
    int left = both();
    while (take("||")) left = call("||", {left, both()});
    return left;
  }
  int both() {
    int left = comparison();
    while (take("&&")) left = call("&&", {left, comparison()});
    return left;
  }
  int comparison() {
    const int left = sum();
    for (const std::string_view op : {"<=", ">=", "==", "!=", "<", ">"})
      if (take(op)) return call(op, {left, sum()});
    return left;
  }
  int sum() {
    int left = product();
    for (;;) {
      if (take("+"))
        left = call("+", {left, product()});
      else if (take("-"))
        left = call("-", {left, product()});
      else
        return left;
    }
  }
  int product() {
    int left = signed_primary();
    for (;;) {
      if (take("*"))
        left = call("*", {left, signed_primary()});
      else if (take("/"))
        left = call("/", {left, signed_primary()});
      else
        return left;
    }
  }
  int signed_primary() {
    if (take("-")) return call("neg", {primary()});
    if (take("!")) return call("!", {primary()});
    return primary();
  }

  int primary() {
    if (take("(")) {
      const int inner = choice();
      expect(")");
      return inner;
    }
    if (at_ == text_.size()) fail("an operand is missing");
    const char first = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(first))) return number();
    if (std::isalpha(static_cast<unsigned char>(first))) return name();
    fail("an operand is missing");
  }
  int number() {
    double value = 0;
    const char* const begin = text_.data() + at_;
    const auto [stop, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("this is no number");
    at_ += static_cast<std::size_t>(stop - begin);
    return add({.kind = Kind::Number, .number = value});
  }
  int name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (take("(")) return function(name);
    if (name.size() == 1 && name[0] >= 'a' && name[0] <= 'd')
      return add({.kind = Kind::Operand, .operand = name[0] - 'a'});
    if (name == "y") return add({.kind = Kind::Result});
    return add({.kind = Kind::Attribute, .name = std::string(name)});
  }
  int function(std::string_view name) {
    const Function* const function = find_function(name);
    if (!function) fail(fmt::format("there is no function '{}'", name));
    std::vector<int> arguments{choice()};
    while (take(",")) arguments.push_back(choice());
    expect(")");
    if (static_cast<int>(arguments.size()) != function->arguments)
      fail(fmt::format("{}() takes {} arguments", name, function->arguments));
    return call(name, std::move(arguments));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Expression result_;
};

Expression Expression::parse(std::string_view text) { return FormulaParser(text).parse(); }

int Expression::operands() const {
  int count = 0;
  for (const Term& term : terms_)
    if (term.kind == Kind::Operand) count = std::max(count, term.operand + 1);
  return count;
}

double Expression::evaluate(std::span<const double> operands, const std::map<std::string, double>& attributes,
                            double result) const {
  std::vector<double> values;
  values.reserve(terms_.size());
  for (const Term& term : terms_) {
    const auto argument = [&](std::size_t i) { return values[static_cast<std::size_t>(term.arguments[i])]; };
    switch (term.kind) {
      case Kind::Number:
        values.push_back(term.number);
        break;
      case Kind::Operand:
        values.push_back(operands[static_cast<std::size_t>(term.operand)]);
        break;
      case Kind::Result:
        values.push_back(result);
        break;
      case Kind::Attribute: {
        const auto at = attributes.find(term.name);
        if (at == attributes.end()) throw Internal(fmt::format("no value for attribute '{}'", term.name));
        values.push_back(at->second);
        break;
      }
      case Kind::Call:
        if (term.name == "?:") {
          values.push_back(argument(0) != 0 ? argument(1) : argument(2));
        } else {
          const Function& function = *find_function(term.name);
          values.push_back(function.one ? function.one(argument(0)) : function.two(argument(0), argument(1)));
        }
        break;
    }
  }
  return values.back();
}

}  // namespace braid
