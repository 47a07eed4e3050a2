#include "engine/fusion/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/fusion/cuda_formula.h"

namespace braid::fusion {
namespace {

bool takes(const Region::Step& step, const std::vector<DType>& operands) {
  if (step.kind == Region::Kind::Cast) return true;
  if (step.kind != Region::Kind::Apply) return true;
  const FusionRule* rule = rules().find(step.op);
  const OpDef* op = OpRegistry::global().find(step.op);
  return rule && rule->loop && op && rule->loop(step.op, operands, step.dtype, step.parameters) &&
         is_expressible(op->traits.formula, operands);
}

DType dtype_of(const NodeSteps& made, int value) {
  return value < 0 ? made.inputs[static_cast<std::size_t>(~value)].dtype
                   : made.steps[static_cast<std::size_t>(value)].dtype;
}

bool all_take(const NodeSteps& made) {
  return std::all_of(made.steps.begin(), made.steps.end(), [&](const Region::Step& step) {
    std::vector<DType> operands;
    for (const int operand : step.operands) operands.push_back(dtype_of(made, operand));
    return takes(step, operands);
  });
}

/// The op itself over all of its inputs.
void write_one_step(StepWriter& writer) {
  const Node& node = writer.node();
  std::vector<int> operands;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) operands.push_back(writer.input(static_cast<int>(i)));
  Parameters parameters;
  for (const Formula::Parameter& parameter : node.op->traits.formula.parameters)
    if (node.op->traits.formula.value.find(parameter.attr) != std::string_view::npos)
      parameters[std::string(parameter.attr)] =
          node.attrs.get<double>(parameter.attr, double{parameter.fallback});
  writer.output(0, writer.apply_full(node.op->name, std::move(operands), writer.output_info().dtype,
                                     std::move(parameters)));
}

}  // namespace

StepWriter::StepWriter(const Node& node, std::span<const OutputInfo> inputs,
                       std::span<const Tensor* const> values)
    : node_(node), infos_(inputs), values_(values) {
  made_.outputs.assign(node.outputs.size(), -1);
  over(node.outputs[0].shape);
}

void StepWriter::over(const Shape& domain, std::int64_t columns) {
  domain_ = domain;
  made_.elements = domain.elements();
  made_.columns = columns;
}

int StepWriter::input_as(int i, const Shape& shape) {
  const OutputInfo& info = input_info(i);
  const Tensor* value = known(i);
  if (value && value->elements() == 1 && info.dtype != DType::String)
    return add({.kind = Region::Kind::Constant,
                .dtype = info.dtype,
                .extent = Extent::One,
                .bits = bits_of(value->raw(), info.dtype)});
  made_.inputs.push_back({i, info.dtype, broadcast_axes(shape, domain_)});
  return ~static_cast<int>(made_.inputs.size() - 1);
}

int StepWriter::constant(double number, DType dtype) {
  return add({.kind = Region::Kind::Constant,
              .dtype = dtype,
              .extent = Extent::One,
              .bits = bits_of(number, dtype)});
}

Extent StepWriter::extent_of(int value) const {
  return value < 0 ? Extent::Full : made_.steps[static_cast<std::size_t>(value)].extent;
}

DType StepWriter::dtype_of(int value) const { return fusion::dtype_of(made_, value); }

int StepWriter::add(Region::Step step) {
  made_.steps.push_back(std::move(step));
  return static_cast<int>(made_.steps.size()) - 1;
}

int StepWriter::apply(std::string_view op, std::vector<int> operands, Parameters parameters) {
  Extent extent = Extent::One;
  for (const int operand : operands) extent = std::max(extent, extent_of(operand));
  const DType dtype = dtype_of(operands.at(0));
  return add({.kind = Region::Kind::Apply,
              .dtype = dtype,
              .extent = extent,
              .operands = std::move(operands),
              .op = std::string(op),
              .parameters = std::move(parameters)});
}

int StepWriter::apply_full(std::string_view op, std::vector<int> operands, DType dtype,
                           Parameters parameters) {
  const int made = apply(op, std::move(operands), std::move(parameters));
  made_.steps.back().extent = Extent::Full;
  made_.steps.back().dtype = dtype;
  return made;
}

int StepWriter::cast(int value, DType dtype) {
  return add({.kind = Region::Kind::Cast, .dtype = dtype, .extent = extent_of(value), .operands = {value}});
}

int StepWriter::uniform(std::uint64_t name_hash, std::uint64_t salt) {
  return add({.kind = Region::Kind::Uniform,
              .dtype = DType::Float32,
              .extent = Extent::Full,
              .bits = name_hash,
              .salt = salt});
}

int StepWriter::reduce(RowReduction reduction, int value) {
  return add({.kind = Region::Kind::Reduce,
              .dtype = dtype_of(value),
              .extent = Extent::Row,
              .operands = {value},
              .reduction = reduction});
}

int StepWriter::sum_columns(int value) {
  // What is summed is a step.
  const DType dtype = dtype_of(value);
  if (value < 0) value = cast(value, dtype);
  return add({.kind = Region::Kind::Columns, .dtype = dtype, .extent = Extent::Column, .operands = {value}});
}

int StepWriter::scan(RowReduction reduction, int value, std::int64_t length, bool reverse, bool exclusive) {
  const DType dtype = dtype_of(value);
  if (value < 0) value = cast(value, dtype);  // what is scanned is a step
  return add({.kind = Region::Kind::Scan,
              .dtype = dtype,
              .extent = Extent::Full,
              .operands = {value},
              .reduction = reduction,
              .length = length,
              .reverse = reverse,
              .exclusive = exclusive});
}

int StepWriter::fold(RowReduction reduction, int value, std::int64_t length) {
  const int made = scan(reduction, value, length, false, false);
  made_.steps.back().extent = Extent::Piece;
  made_.steps.back().last = true;
  return made;
}

void StepWriter::output(int i, int value) { made_.outputs[static_cast<std::size_t>(i)] = value; }

void FusionRules::add(std::string_view op, FusionRule rule) {
  if (!rules_.emplace(op, rule).second) throw Internal(fmt::format("op '{}' has two rules of fusion", op));
}

const FusionRule* FusionRules::find(std::string_view op) const {
  const auto at = rules_.find(op);
  return at == rules_.end() ? nullptr : &at->second;
}

FusionRules& rules() {
  static FusionRules* rules = new FusionRules;  // as the registry of ops, it lives as long as the process
  return *rules;
}

bool has_no_state(const OpDef& op) {
  const FusionRule* rule = rules().find(op.name);
  return !op.side_effect && (!op.stateful || (rule && rule->draws));
}

std::optional<NodeSteps> steps_of(const Node& node, std::span<const OutputInfo> inputs,
                                  std::span<const Tensor* const> values) {
  const FusionRule* rule = rules().find(node.op->name);
  if (!rule || node.outputs.empty()) return std::nullopt;
  const auto usable = [](const OutputInfo& info) {
    return dtype_size(info.dtype) != 0 && info.shape.is_static() && info.shape.elements() > 0;
  };
  if (!std::all_of(inputs.begin(), inputs.end(), usable) ||
      !std::all_of(node.outputs.begin(), node.outputs.end(), usable))
    return std::nullopt;
  StepWriter writer(node, inputs, values);
  if (rule->steps) {
    if (!rule->steps(writer)) return std::nullopt;
  } else {
    write_one_step(writer);
  }
  NodeSteps made = writer.take();
  // A row, or column, of one element is left to the kernel that knows it.
  if (made.columns == 1 || !all_take(made)) return std::nullopt;
  return made;
}

ElementLoop loop_of(const Region& region, const Region::Step& step) {
  std::vector<DType> operands;
  for (const int operand : step.operands) operands.push_back(region.dtype_of(operand));
  const std::string_view op = step.kind == Region::Kind::Cast ? std::string_view("Cast") : step.op;
  const FusionRule* rule = rules().find(op);
  ElementLoop loop =
      rule && rule->loop ? rule->loop(op, operands, step.dtype, step.parameters) : ElementLoop{};
  if (!loop)
    throw InvalidArgument(fmt::format("fused region: '{}' of {} operands has no loop that gives {}", op,
                                      operands.size(), dtype_name(step.dtype)));
  return loop;
}

}  // namespace braid::fusion
