// The language in which elementwise ops say what they compute (Formula in op_traits.h), for whoever needs it
// apart from a kernel: tests, and generators of fused kernels. Values are of the operands' type; a comparison
// gives a bool, which is 0 or 1.
//
//   choice     = either [ "?" choice ":" choice ]              the condition is not 0
//   either     = both { "||" both }
//   both       = comparison { "&&" comparison }
//   comparison = sum [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum ]
//   sum        = product { ( "+" | "-" ) product }             of integers it wraps
//   product    = signed { ( "*" | "/" ) signed }
//   signed     = [ "-" | "!" ] primary
//   primary    = number | name [ "(" choice { "," choice } ")" ] | "(" choice ")"
//
// A name is an operand (a, b, c, d: inputs 0 to 3), y (the result, in slopes only), an attribute, or a
// function: those of C's <math.h>, with abs, sign, rsqrt, sigmoid, isnan, isinf, isfinite, min, max. Only the
// branch that is chosen counts: what the other gives (a NaN, an infinity) does not.
//
// Thread rule: immutable once parsed.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class Expression {
 public:
  enum class Kind { Number, Operand, Result, Attribute, Call };
  struct Term {
    Kind kind;
    double number = 0;      // of Number
    int operand = 0;        // of Operand
    std::string name = {};  // of Attribute and Call: a function, or an operator ("+", "?:", "neg", "<=")
    std::vector<int> arguments = {};  // of Call: terms before this one
  };

  /// Throws: Internal with the place and what is wrong there, e.g. "formula 'a +': an operand is missing at
  /// 3".
  static Expression parse(std::string_view text);

  /// In an order of evaluation; the last is the expression.
  std::span<const Term> terms() const { return terms_; }
  /// How many operands it has: one more than the last that it names.
  int operands() const;

  /// In float64. `operands` has at least operands() values; `attributes` all that the formula names.
  double evaluate(std::span<const double> operands, const std::map<std::string, double>& attributes = {},
                  double result = 0) const;

 private:
  friend class FormulaParser;
  std::vector<Term> terms_;
};

}  // namespace braid
