#include "worker/step/whole_updates.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/optimizer/adafactor.h"
#include "engine/ops/optimizer/adam_codes.h"
#include "engine/ops/optimizer/optimizer_attrs.h"

namespace braid::worker {
namespace {

constexpr std::int64_t kLeastElements = 4096;  // that have moments of 8 bits, as in bitsandbytes

struct State {
  const char* name;
  Shape shape;
  DType dtype = DType::Float32;
};

std::vector<State> states_of_adam(const Shape& shape) {
  const Shape scales{(shape.elements() + adam_codes::kBlock - 1) / adam_codes::kBlock};
  return {{"m", shape, DType::UInt8}, {"v", shape, DType::UInt8}, {"m_scale", scales}, {"v_scale", scales}};
}

Shape without_axis(const Shape& shape, int axis) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.erase(dims.begin() + axis);
  return Shape(std::move(dims));
}

std::vector<State> states_of_adafactor(const OptimizerSpec& spec, const Shape& shape) {
  std::vector<State> states;
  if (spec.beta1 > 0) states.push_back({"m", shape});
  if (!adafactor_layout(spec, shape).factored) {
    states.push_back({"square", shape});
    return states;
  }
  states.push_back({"row", without_axis(shape, shape.rank() - 1)});
  states.push_back({"column", without_axis(shape, shape.rank() - 2)});
  return states;
}

}  // namespace

OptimizerSpec with_small_states(const OptimizerSpec& spec, std::int64_t elements, bool by_rows) {
  OptimizerSpec chosen = spec;
  if (spec.kind == OptimizerKind::Adam8Bit && (by_rows || elements < kLeastElements))
    chosen.kind = OptimizerKind::Adam;
  return chosen;
}

void add_whole_update(TrainingGraph& training, const VariableGradient& gradient, const OptimizerSpec& spec) {
  Graph& graph = training.graph;
  const VariableInfo& variable = gradient.variable;
  if (gradient.slices)
    throw InvalidArgument(
        "variable '" + variable.name + "' is updated by rows, and optimizer.kind " +
        std::string(optimizer_name(spec.kind)) +
        " needs all of a variable: give it an optimizer.group { match kind } of another kind, "
        "such as ADAGRAD with row_wise");
  const bool codes = spec.kind == OptimizerKind::Adam8Bit;
  OptimizerSpec formula = spec;
  if (codes) formula.kind = OptimizerKind::Adam;
  Node update;
  update.op = &OpRegistry::global().require(codes ? "braid.ApplyAdam8Bit" : "braid.ApplyAdafactor");
  update.inputs.push_back({variable.handle, 0});
  for (const State& state :
       codes ? states_of_adam(variable.shape) : states_of_adafactor(spec, variable.shape))
    update.inputs.push_back(
        add_state(graph, variable.name + "/" + state.name, state.shape, 0, 0, state.dtype));
  update.inputs.push_back(gradient.dense);
  update.attrs = optimizer_attrs(formula);
  if (training.loss_scale) update.attrs.set("skip_nan", true);
  update.name = graph.unique_name("update/" + variable.name);
  update.colocate_with = gradient.dense.node;
  training.targets.push_back(update.name);
  graph.add(std::move(update));
}

}  // namespace braid::worker
