#include "engine/ir/op_traits.h"

#include <utility>

#include "engine/ir/op.h"

namespace braid {
namespace {

OpTraits family(Elements elements, Batching batching) {
  OpTraits traits;
  traits.batching = batching;
  traits.elements = elements;
  traits.widening.rule = Widening::Rule::Wide;
  traits.outputs = {OutputName{}};
  traits.type_attributes = {TypeAttr{"T", 0}};
  return traits;
}

template <class Change>
OpTraits changed(OpTraits traits, Change change) {
  change(traits);
  return traits;
}

}  // namespace

std::optional<DType> wide_type(DType dtype) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
      return DType::Float32;
    case DType::Int8:
    case DType::UInt8:
    case DType::Int16:
    case DType::UInt16:
      return DType::Int32;
    case DType::UInt32:
      return DType::Int64;
    default:
      return std::nullopt;
  }
}

std::optional<DType> doubles_as_floats(DType dtype) {
  return dtype == DType::Float64 ? DType::Float32 : wide_type(dtype);
}

std::optional<DType> integers_as_doubles(DType dtype) {
  const bool is_integer =
      dtype == DType::Int32 || dtype == DType::Int64 || wide_type(dtype) == std::optional(DType::Int32);
  return is_integer ? DType::Float64 : wide_type(dtype);
}

std::optional<DType> bools_as_integers(DType dtype) {
  return dtype == DType::Bool ? DType::Int32 : wide_type(dtype);
}

OpTraits OpTraits::batched(Batching how) const {
  return changed(*this, [&](OpTraits& t) { t.batching = how; });
}
OpTraits OpTraits::any_type() const {
  return changed(*this, [](OpTraits& t) { t.widening.rule = Widening::Rule::None; });
}
OpTraits OpTraits::computes_in(std::optional<DType> (*type)(DType)) const {
  return changed(*this, [&](OpTraits& t) { t.widening.compute_type = type; });
}
OpTraits OpTraits::data_outputs(int count) const {
  return changed(*this, [&](OpTraits& t) { t.widening.data_outputs = count; });
}
OpTraits OpTraits::keeps_range() const {
  return changed(*this, [](OpTraits& t) { t.widening.keeps_range = true; });
}
OpTraits OpTraits::names(std::vector<std::string_view> of_outputs) const {
  std::vector<OutputName> names;
  for (const std::string_view name : of_outputs) names.push_back({name, {}});
  return output_lists(std::move(names));
}
OpTraits OpTraits::output_list() const { return output_lists({{{}, "*"}}); }
OpTraits OpTraits::output_lists(std::vector<OutputName> lists) const {
  return changed(*this, [&](OpTraits& t) { t.outputs = std::move(lists); });
}
OpTraits OpTraits::type_attrs(std::vector<TypeAttr> attrs) const {
  return changed(*this, [&](OpTraits& t) { t.type_attributes = std::move(attrs); });
}
OpTraits OpTraits::on_string_ids() const {
  return changed(*this, [](OpTraits& t) { t.runs_on_string_ids = true; });
}

OpTraits pointwise(Formula formula) {
  OpTraits traits = family(Elements::Pointwise, Batching::Elementwise);
  traits.formula = std::move(formula);
  return traits;
}
OpTraits broadcasts(Formula formula) { return pointwise(std::move(formula)).batched(Batching::Broadcasting); }
OpTraits pointwise_without_formula(std::string_view why) {
  OpTraits traits = family(Elements::Pointwise, Batching::Never);
  traits.no_formula = why;
  return traits;
}
OpTraits moves() { return family(Elements::Moves, Batching::Never); }
OpTraits computes() { return family(Elements::Computes, Batching::Never); }
OpTraits updates() {
  OpTraits traits = computes();
  traits.outputs = std::vector<OutputName>{};
  return traits;
}

std::string missing_traits(const OpDef& op) {
  const OpTraits& traits = op.traits;
  std::string missing;
  const auto say = [&](const char* what) { missing += (missing.empty() ? "" : ", ") + std::string(what); };
  if (traits.batching == Batching::Unsaid) say("batching");
  if (traits.elements == Elements::Unsaid) say("elements");
  if (traits.widening.rule == Widening::Rule::Unsaid) say("widening");
  if (!traits.outputs) say("names of outputs");
  if (!traits.type_attributes) say("type attributes");
  if (traits.elements == Elements::Pointwise && traits.formula.value.empty() == traits.no_formula.empty())
    say("a formula, or why there is none");
  if (traits.elements == Elements::Pointwise && op.gradient && traits.no_formula.empty() &&
      traits.formula.slopes.empty())
    say("the formula's slopes");
  return missing;
}

}  // namespace braid
