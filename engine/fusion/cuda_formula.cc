#include "engine/fusion/cuda_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "engine/ir/formula.h"

namespace braid::fusion {
namespace {

/// What means the same for integers and bools as for floats.
constexpr auto kOnIntegers =
    std::to_array<std::string_view>({"+", "-", "*", "neg", "!", "abs", "sign", "min", "max", "<", "<=", ">",
                                     ">=", "==", "!=", "&&", "||", "?:"});

/// Of what the formula computes with: conditions apart, all operands have one type.
DType number_type(const std::vector<DType>& operands) { return operands.back(); }

/// The float32 that a literal of cuda_constant() stands for.
std::optional<float> literal(std::string_view text) {
  constexpr std::string_view kBegin = "__uint_as_float(0x", kEnd = "u)";
  if (!text.starts_with(kBegin) || !text.ends_with(kEnd)) return std::nullopt;
  text = text.substr(kBegin.size(), text.size() - kBegin.size() - kEnd.size());
  std::uint32_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return std::bit_cast<float>(bits);
}

/// A quotient by a number that is known while the kernel is compiled: a product with its reciprocal,
/// corrected to the bits of a division.
std::optional<std::string> quotient(const std::vector<std::string>& arguments) {
  constexpr float kLeast = 1e-10F, kMost = 1e10F;
  const std::optional<float> divisor = literal(arguments[1]);
  if (!divisor || !(std::abs(*divisor) >= kLeast && std::abs(*divisor) <= kMost)) return std::nullopt;
  const std::string reciprocal = cuda_constant(std::bit_cast<std::uint32_t>(1.0F / *divisor), DType::Float32);
  return fmt::format("fn::quotient({}, {}, {})", arguments[0], arguments[1], reciprocal);
}

std::string call(std::string_view name, const std::vector<std::string>& arguments, std::string_view type) {
  if (name == "/" && type == "float")
    if (const auto text = quotient(arguments)) return *text;
  if (name == "?:") return fmt::format("({} ? {} : {})", arguments[0], arguments[1], arguments[2]);
  if (name == "!") return fmt::format("!({})", arguments[0]);
  if (name == "&&" || name == "||" || name == "/" || name == "==" || name == "!=" || name[0] == '<' ||
      name[0] == '>')
    return fmt::format("({} {} {})", arguments[0], name, arguments[1]);
  if (name == "+") name = "add";
  if (name == "-") name = "sub";
  if (name == "*") name = "mul";
  if (arguments.size() == 2) return fmt::format("fn::{}<{}>({}, {})", name, type, arguments[0], arguments[1]);
  return fmt::format("fn::{}<{}>({})", name, type, arguments[0]);
}

}  // namespace

std::string_view cuda_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return "float";
    case DType::Float64:
      return "double";
    case DType::Int32:
      return "int";
    case DType::Int64:
      return "long long";
    case DType::Bool:
      return "bool";
    case DType::UInt8:
      return "unsigned char";
    case DType::Int8:
      return "signed char";
    case DType::UInt16:
      return "unsigned short";
    case DType::Int16:
      return "short";
    case DType::UInt32:
      return "unsigned";
    case DType::UInt64:
      return "unsigned long long";
    case DType::Float16:
      return "Float16";
    case DType::BFloat16:
      return "BFloat16";
    default:
      return {};
  }
}

std::string cuda_constant(std::uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return fmt::format("__uint_as_float(0x{:x}u)", bits);
    case DType::Float64:
      return fmt::format("__longlong_as_double(0x{:x}ll)", bits);
    default:
      return fmt::format("static_cast<{}>(0x{:x}ull)", cuda_type(dtype), bits);
  }
}

bool is_expressible(const Formula& formula, const std::vector<DType>& operands) {
  if (formula.value.empty() || operands.empty()) return false;
  for (const DType dtype : operands)
    if (dtype != DType::Float32 && dtype != DType::Float64 && dtype != DType::Int32 &&
        dtype != DType::Int64 && dtype != DType::Bool)
      return false;
  const Expression expression = Expression::parse(formula.value);
  if (expression.operands() > static_cast<int>(operands.size())) return false;
  if (is_floating(number_type(operands))) return true;
  return std::all_of(expression.terms().begin(), expression.terms().end(), [](const Expression::Term& term) {
    return term.kind != Expression::Kind::Call ||
           std::find(kOnIntegers.begin(), kOnIntegers.end(), term.name) != kOnIntegers.end();
  });
}

std::string cuda_expression(const Formula& formula, const std::vector<DType>& operands,
                            const std::vector<std::string>& names, const Parameters& parameters) {
  const DType dtype = number_type(operands);
  const Expression expression = Expression::parse(formula.value);
  std::vector<std::string> code;
  for (const Expression::Term& term : expression.terms()) {
    switch (term.kind) {
      case Expression::Kind::Number:
        code.push_back(cuda_constant(bits_of(term.number, dtype), dtype));
        break;
      case Expression::Kind::Operand:
        code.push_back(names.at(static_cast<std::size_t>(term.operand)));
        break;
      case Expression::Kind::Attribute: {
        const auto at = parameters.find(term.name);
        if (at == parameters.end())
          throw Internal(fmt::format("formula '{}': no '{}'", formula.value, term.name));
        code.push_back(cuda_constant(bits_of(at->second, dtype), dtype));
        break;
      }
      case Expression::Kind::Result:
        throw Internal(fmt::format("formula '{}': a value does not name its result", formula.value));
      case Expression::Kind::Call: {
        std::vector<std::string> arguments;
        for (const int argument : term.arguments)
          arguments.push_back(code[static_cast<std::size_t>(argument)]);
        code.push_back(call(term.name, arguments, cuda_type(dtype)));
        break;
      }
    }
  }
  return code.back();
}

}  // namespace braid::fusion
