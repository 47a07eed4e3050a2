#include "engine/ops/optimizer/update_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/optim_formulas.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/optimizer_attrs.h"

namespace braid {
namespace {

UpdateInputs layout_of(const Node& node, int inputs, int gradient_inputs) {
  UpdateInputs in;
  in.spec = optimizer_spec(node.attrs);
  in.slots = static_cast<int>(optimizer_slots(in.spec).size());
  in.has_indices = gradient_inputs == 2;
  in.has_bags = node.attrs.get(kHasBags, false);
  in.weighted = node.attrs.get(kWeighted, false);
  in.has_factor = node.attrs.get(kHasFactor, false);
  in.hots = node.attrs.get<std::vector<std::int64_t>>(kHots, {});
  in.offsets = node.attrs.get<std::vector<std::int64_t>>(kValueOffsets, {});
  in.gradient_inputs = gradient_inputs + (in.has_bags ? 1 : 0) + (in.weighted ? 1 : 0);
  in.variables = (inputs - (in.has_factor ? 1 : 0)) / in.stride();
  return in;
}

bool takes_many(const OpDef& op) { return op.max_inputs < 0; }

/// Of the handles of a variable and its slots; `by_rows`: a row-wise optimizer has slots of rows.
void check_handles(const InferContext& c, const UpdateInputs& in, int v, bool by_rows) {
  for (int i = in.handle(v); i < in.gradient(v); ++i) {
    require_handle(c, i);
    if (i == in.handle(v) || !(by_rows && in.spec.row_wise)) {
      merged_shape(c, in.handle(v), i);
      continue;
    }
    const Shape& variable = c.shape(in.handle(v));
    Shape merged;
    if (variable.has_rank() && variable.rank() > 0 && !merge_shapes({variable[0]}, c.shape(i), merged))
      c.fail(fmt::format("input {} of shape {} is no slot of the rows of {}", i, c.shape(i).to_string(),
                         variable.to_string()));
  }
}

/// `values` are `count` rows, of which those of the variable are a part.
void check_wider_rows(const InferContext& c, const UpdateInputs& in, int v, std::int64_t count) {
  require_dtype(c, in.values(v), {DType::Float32});
  c.require_rank(in.values(v), 2);
  const Shape &values = c.shape(in.values(v)), &variable = c.shape(in.handle(v));
  if (!values.is_static() || !variable.is_static() || variable.rank() == 0 || variable[0] == 0) return;
  const std::int64_t width = variable.elements() / variable[0];
  if (in.offset(v) + width > values[1] || (count >= 0 && values[0] != count))
    c.fail(fmt::format("values of shape {} have no {} rows of {} from column {} on", values.to_string(),
                       count < 0 ? "?" : std::to_string(count), width, in.offset(v)));
}

/// `values` are `count` rows of the variable.
void check_values(const InferContext& c, int handle, int values, std::int64_t count) {
  require_dtype(c, values, {DType::Float32});
  const Shape& variable = c.shape(handle);
  if (!variable.has_rank()) return;
  if (variable.rank() == 0) c.fail("a scalar has no rows");
  Shape expected = variable;
  expected.set_dim(0, count);
  Shape merged;
  if (!merge_shapes(expected, c.shape(values), merged))
    c.fail(fmt::format("values of shape {} are no rows of shape {} for {} indices",
                       c.shape(values).to_string(), variable.to_string(),
                       count < 0 ? "?" : std::to_string(count)));
}

/// The number of indices by input `i`, a vector; unknown ones as Shape::kUnknown.
std::int64_t vector_length(const InferContext& c, int i) {
  c.require_rank(i, 1);
  return c.shape(i).has_rank() ? c.shape(i)[0] : Shape::kUnknown;
}

/// Checks what a variable's rows consist of. `count`: of its indices, where that is known from elsewhere.
/// Returns that number.
std::int64_t check_rows(const InferContext& c, const UpdateInputs& in, int v, std::int64_t count) {
  const auto agree = [&](int input) {
    const std::int64_t n = vector_length(c, input);
    if (n >= 0 && count >= 0 && n != count)
      c.fail(fmt::format("input {} has {} elements, but there are {} indices", input, n, count));
    count = std::max(n, count);
  };
  if (in.has_bags) {
    agree(in.bags(v));
    require_dtype(c, in.bags(v), {DType::Int32});
  }
  if (in.weighted) {
    agree(in.weights(v));
    require_dtype(c, in.weights(v), {DType::Float32});
  }
  const std::int64_t hot = in.hot(v);
  if (count >= 0 && count % hot != 0) c.fail(fmt::format("{} indices are no bags of {}", count, hot));
  const bool known = count >= 0 && !in.has_bags;
  const std::int64_t value_rows = known ? count / hot : Shape::kUnknown;
  if (in.in_wider_rows(v))
    check_wider_rows(c, in, v, value_rows);
  else
    check_values(c, in.handle(v), in.values(v), value_rows);
  const Shape& values = c.shape(in.values(v));
  if (count < 0 && !in.has_bags && values.has_rank() && values[0] >= 0) count = values[0] * hot;
  return count;
}

void check_hots(const InferContext& c, const UpdateInputs& in) {
  if (!in.offsets.empty() && std::ssize(in.offsets) != in.variables)
    c.fail(fmt::format("value_offsets: expected {} numbers, one a variable", in.variables));
  if (in.hots.empty()) return;
  if (std::ssize(in.hots) != in.variables || *std::min_element(in.hots.begin(), in.hots.end()) < 1)
    c.fail(fmt::format("hots: expected {} positive numbers, one a variable", in.variables));
  if (in.has_bags) c.fail("hots and has_bags exclude each other");
}

/// Of `before` inputs and the factor, where there is one.
void check_factor(const InferContext& c, const UpdateInputs& in, int before) {
  if (!in.has_factor) return;
  require_dtype(c, before, {DType::Float32});
  c.require_rank(before, 0);
}

void infer_grouped(InferContext& c) {
  const UpdateInputs in = layout_of(c.node(), c.inputs(), 1);
  const int entries = in.entries();
  if (in.variables < 1 || c.inputs() != entries + 1 + (in.has_factor ? 1 : 0))
    c.fail(fmt::format("{} takes {} inputs for each variable and the entries{}, got {}",
                       optimizer_name(in.spec.kind), in.stride(), in.has_factor ? ", and a factor" : "",
                       c.inputs()));
  check_factor(c, in, entries + 1);
  check_hots(c, in);
  std::int64_t rows = 0;
  for (int v = 0; v < in.variables; ++v) {
    check_handles(c, in, v, true);
    const std::int64_t n = check_rows(c, in, v, Shape::kUnknown);
    rows = n < 0 || rows < 0 ? Shape::kUnknown : rows + n;
  }
  c.require_rank(entries, 1);
  require_dtype(c, entries, {DType::Int64});
  if (rows >= 0 && c.shape(entries).has_rank() && c.shape(entries)[0] >= 0 && c.shape(entries)[0] != rows)
    c.fail(fmt::format("{} rows of values, but {} entries", rows, c.shape(entries)[0]));
}

Cost cost_of(const InferContext& c, int gradient_inputs) {
  const UpdateInputs in = layout_of(c.node(), c.inputs(), gradient_inputs);
  Cost cost;
  for (int v = 0; v < in.variables; ++v) {
    // Of rows, only those that are named are touched. Handles are read and written, gradients read.
    const Shape &values = c.shape(in.values(v)), &variable = c.shape(in.handle(v));
    double elements = known_elements(values) * static_cast<double>(in.hot(v));
    if (in.in_wider_rows(v) && variable.is_static() && variable.rank() > 0 && variable[0] > 0)
      elements *= static_cast<double>(variable.elements()) / static_cast<double>(variable[0]) /
                  static_cast<double>(std::max<std::int64_t>(values[1], 1));
    if (in.has_bags && values.has_rank() && values.rank() > 0 && values[0] > 0)
      elements =
          known_elements(values) / static_cast<double>(values[0]) * known_elements(c.shape(in.bags(v)));
    cost.flops += (in.has_indices ? 9 : 8) * elements;
    cost.bytes += 4 * elements * (in.spec.row_wise ? 3 : 2 * in.slots + 3);
    if (in.has_indices) cost.bytes += grouping_cost(known_elements(c.shape(in.gradient(v)))).bytes;
  }
  return cost;
}

/// Values are added up and applied; the entries are read.
Cost cost_of_grouped(const InferContext& c, std::span<const OutputInfo>) {
  Cost cost = cost_of(c, 1);
  cost.bytes += known_bytes({DType::Int64, c.shape(layout_of(c.node(), c.inputs(), 1).entries())});
  return cost;
}

}  // namespace

UpdateInputs infer_update(const InferContext& c, int gradient_inputs) {
  const UpdateInputs in = layout_of(c.node(), c.inputs(), gradient_inputs);
  const int of_variables = in.stride() * (takes_many(*c.node().op) ? std::max(in.variables, 1) : 1);
  const int expected = of_variables + (in.has_factor ? 1 : 0);
  if (c.inputs() != expected)
    c.fail(fmt::format("{} takes {} inputs, got {}", optimizer_name(in.spec.kind),
                       takes_many(*c.node().op) ? fmt::format("{} for each variable", in.stride())
                                                : std::to_string(expected),
                       c.inputs()));
  check_factor(c, in, of_variables);
  check_hots(c, in);
  for (int v = 0; v < in.variables; ++v) {
    check_handles(c, in, v, gradient_inputs == 2);
    if (gradient_inputs == 1) {
      require_dtype(c, in.gradient(v), {DType::Float32});
      merged_shape(c, in.handle(v), in.gradient(v));
    } else {
      require_index_dtype(c, in.gradient(v));
      check_rows(c, in, v, vector_length(c, in.gradient(v)));
    }
  }
  return in;
}

UpdateInputs prepared_update_inputs(const PrepareContext& c, int gradient_inputs) {
  const UpdateInputs in = layout_of(c.node, static_cast<int>(c.inputs.size()), gradient_inputs);
  for (int v = 0; v < in.variables; ++v)
    for (int i = in.handle(v); i < in.gradient(v); ++i)
      if (const DType dtype = c.inputs[static_cast<std::size_t>(i)].dtype; dtype != DType::Float32)
        c.fail(fmt::format("input {} must hold float32, got {}", i, dtype_name(dtype)));
  return in;
}

UpdateInputs update_inputs(const Node& node, std::span<const OutputInfo> inputs, int gradient_inputs) {
  return layout_of(node, static_cast<int>(inputs.size()), gradient_inputs);
}

std::vector<int> value_inputs(const Node& node, int gradient_inputs) {
  const UpdateInputs in = layout_of(node, static_cast<int>(node.inputs.size()), gradient_inputs);
  std::vector<int> values;
  for (int v = 0; v < in.variables; ++v) values.push_back(in.values(v));
  return values;
}

bool updates_float32(const Node& node, std::span<const OutputInfo> inputs, int gradient_inputs) {
  const UpdateInputs in = layout_of(node, static_cast<int>(inputs.size()), gradient_inputs);
  for (int v = 0; v < in.variables; ++v)
    for (int i = in.handle(v); i < in.gradient(v); ++i)
      if (inputs[static_cast<std::size_t>(i)].dtype != DType::Float32) return false;
  return true;
}

PreparedUpdate step_update(const OptimizerSpec& spec, const StepParams& params, const float* factor) {
  return prepare_update(spec, {.learning_rate = params.learning_rate,
                               .grad_scale = params.grad_scale * (factor ? *factor : 1.0F),
                               .step = params.step});
}

void require_handle(const InferContext& c, int input) {
  if (c.dtype(input) != DType::Resource)
    c.fail(fmt::format("input {} must be a variable's handle, got {}", input, dtype_name(c.dtype(input))));
}

OpDef writing_op(std::string name, int min_inputs, int max_inputs, PrepareFn cpu) {
  return {.name = std::move(name),
          .traits = updates(),
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .no_gradient_reason = "it writes a variable",
          .cpu = std::move(cpu),
          .further_handles = Access::ReadWrite,
          .side_effect = true};
}

OpDef update_op(std::string name, int gradient_inputs, bool many, PrepareFn cpu) {
  const int most = 1 + optim::kMostSlots + gradient_inputs + (gradient_inputs == 2 ? 2 : 0) + 1;
  OpDef def = writing_op(std::move(name), 1 + gradient_inputs, many ? -1 : most, std::move(cpu));
  def.infer = [gradient_inputs](InferContext& c) { infer_update(c, gradient_inputs); };
  def.cost = [gradient_inputs](const InferContext& c, std::span<const OutputInfo>) {
    return cost_of(c, gradient_inputs);
  };
  return def;
}

OpDef grouped_update_op(std::string name, PrepareFn cpu) {
  OpDef def = update_op(std::move(name), 1, true, std::move(cpu));
  def.infer = infer_grouped;
  def.cost = cost_of_grouped;
  return def;
}

}  // namespace braid
