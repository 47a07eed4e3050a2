// What passes, importers and generators of kernels know of an op. The op says it itself (OpDef::traits), so
// that they ask and never compare names. An op starts from a family, which says everything, and changes what
// differs:
//
//   .traits = pointwise({"a * sigmoid(a)", {"..."}})          an elementwise op and its formula
//   .traits = moves().type_attrs({{"T", 0}, {"Tperm", 1}})     only moves elements
//   .traits = computes().batched(Batching::MatMul)            everything else
//   .traits = updates()                                       has no outputs
//
// missing_traits() names what an op leaves unsaid; the registry walk fails for it. Thread rule: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace braid {

/// How siblings of an op, independent nodes with equal attributes and shapes, become one node over operands
/// with a leading axis, the lanes (engine/rewrite/horizontal_fusion.h).
enum class Batching {
  Unsaid,
  Never,
  Elementwise,   // the same op; all operands have the output's shape
  Broadcasting,  // the same op; an operand that all lanes share may have a smaller shape
  MatMul,        // BatchMatMulV2
  BatchMatMul,   // BatchMatMulV2, of one rank more
  Reshape,       // Reshape; all inputs but the first only say the shape
  Reduce,        // the same op, its axes shifted by one
  BiasAdd,       // AddV2
  BiasAddGrad,   // Sum over all axes but the first and the last
  Update,        // the same op; all inputs but the last are handles
};

/// What an op does with elements.
enum class Elements {
  Unsaid,
  Pointwise,  // an output's element is a formula of the operands' elements at its place, which may broadcast
  Moves,      // an output's element is an element of an input, or a filler; nothing is computed
  Computes,   // anything else
};

/// What an importer does for types that the op has no kernels for (engine/import/place.h).
struct Widening {
  enum class Rule {
    Unsaid,
    None,  // the op takes every type as it is
    Wide,  // Casts around it: it computes in compute_type, and each result is rounded
  };
  Rule rule = Rule::Unsaid;
  /// The type to compute in, nothing where there are kernels; null: wide_type().
  std::optional<DType> (*compute_type)(DType) = nullptr;
  /// How many outputs, the first ones, have the type of the data (others are indices, or statistics kept in
  /// float32); -1: all.
  int data_outputs = -1;
  /// Results of integers lie in their own type's range, also those of no elements (largest, smallest).
  bool keeps_range = false;
};

/// The type that stands for one without kernels: float32 for float16 and bfloat16, int32 for small integers,
/// int64 for uint32, whose low bits they keep. Nothing for types that have kernels, or cannot be widened.
std::optional<DType> wide_type(DType dtype);
// The same, for ops with fewer kernels:
std::optional<DType> doubles_as_floats(DType dtype);    // float64 in float32, too
std::optional<DType> integers_as_doubles(DType dtype);  // int32 and int64 in float64, too
std::optional<DType> bools_as_integers(DType dtype);    // bool in int32, too

/// An output by its name in TensorFlow's signature, by which bodies of functions refer to it.
struct OutputName {
  std::string_view name = {};  // empty: any
  /// Empty: one output. "*": the rest are a list. Else the attribute, a list of types, that has an element
  /// for each output of this list.
  std::string_view list = {};
};

/// Attribute `attr` is the type of input `input`; -1 is the last input.
struct TypeAttr {
  std::string_view attr;
  int input = 0;
};

/// An elementwise op's value and slopes in the language of engine/ir/formula.h: operands a, b, c are inputs
/// 0, 1, 2; y is the output.
struct Formula {
  std::string_view value = {};
  /// d value / d operand, in the order of the operands; none: not differentiable.
  std::vector<std::string_view> slopes = {};
  /// Float attributes that the formulas read, with what they are where a node does not say.
  struct Parameter {
    std::string_view attr;
    double fallback;
  };
  std::vector<Parameter> parameters = {};
};

struct OpTraits {
  Batching batching = Batching::Unsaid;
  Elements elements = Elements::Unsaid;
  Widening widening = {};
  std::optional<std::vector<OutputName>> outputs = {};        // nothing: unsaid
  std::optional<std::vector<TypeAttr>> type_attributes = {};  // nothing: unsaid
  Formula formula = {};                                       // of Pointwise ops,
  std::string_view no_formula = {};                           //   or why there is none
  /// The kernel of int64 does for numbers that stand for strings (engine/ir/string_ids.h).
  bool runs_on_string_ids = false;

  // Each gives a copy that says something else.
  OpTraits batched(Batching how) const;
  OpTraits any_type() const;  // Widening::Rule::None
  OpTraits computes_in(std::optional<DType> (*type)(DType)) const;
  OpTraits data_outputs(int count) const;
  OpTraits keeps_range() const;
  OpTraits names(std::vector<std::string_view> of_outputs) const;
  OpTraits output_list() const;  // all outputs are one list
  OpTraits output_lists(std::vector<OutputName> lists) const;
  OpTraits type_attrs(std::vector<TypeAttr> attrs) const;
  OpTraits on_string_ids() const;
};

// Families. All: one output, attribute T is the type of input 0, types without kernels are widened, siblings
// stay apart, except where it says otherwise.

/// Elementwise, operands of one shape; batched as such.
OpTraits pointwise(Formula formula);
/// Elementwise, operands broadcast; batched as such.
OpTraits broadcasts(Formula formula);
/// Elementwise, without a formula; `why` says so.
OpTraits pointwise_without_formula(std::string_view why);
OpTraits moves();
OpTraits computes();
/// Computes, and has no outputs (updates, pushes, saves).
OpTraits updates();

struct OpDef;
/// What the op leaves unsaid, e.g. "batching, type attributes"; empty: nothing.
std::string missing_traits(const OpDef& op);

}  // namespace braid
