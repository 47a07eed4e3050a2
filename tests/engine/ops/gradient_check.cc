#include "tests/engine/ops/gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// The rule's view of a CaseGraph whose output gradients are fed.
class CaseGradContext final : public GradContext {
 public:
  CaseGradContext(CaseGraph& g, const OpCase& op_case) : g_(g), slots_(g.inputs.size()) {
    const std::vector<ValueRef> outputs = g.outputs();
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const OutputInfo info = g.graph.info(outputs[o]);
      if (!is_floating(info.dtype) || contains(op_case.no_gradient_outputs, static_cast<int>(o))) {
        grads_.push_back({});
        continue;
      }
      grads_.push_back(add_input(g.graph, "dy" + std::to_string(o), info.dtype, info.shape));
      dy_.push_back(random_f64(info.shape, 1000 + o, 0.5, 1.5));
      g.execution.feeds[grads_.back().node] = converted(dy_.back(), info.dtype);
      differentiated_.push_back(outputs[o]);
    }
  }

  const Node& node() const override { return g_.graph.node(g_.node); }
  ValueRef input(int i) const override { return g_.inputs[static_cast<std::size_t>(i)]; }
  ValueRef output(int i) const override { return {g_.node, i}; }
  ValueRef grad(int i) const override { return grads_[static_cast<std::size_t>(i)]; }
  const OutputInfo& input_info(int i) const override { return g_.graph.info(input(i)); }
  const OutputInfo& output_info(int i) const override { return g_.graph.info(output(i)); }

  void set_grad(int input, ValueRef gradient) override {
    slots_[static_cast<std::size_t>(input)].dense = gradient;
  }
  void set_grad(int input, IndexedSlices gradient) override {
    slots_[static_cast<std::size_t>(input)].slices = gradient;
  }
  ValueRef op(std::string_view op, std::vector<ValueRef> inputs, AttrMap attrs) override {
    Node node;
    node.name = g_.graph.unique_name("gradients/op/" + std::string(op));
    node.op = &OpRegistry::global().require(op);
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    return {g_.graph.add(std::move(node)), 0};
  }
  ValueRef constant(Tensor value) override {
    return add_known(g_.graph, g_.graph.unique_name("gradients/op/Const"), value);
  }

  /// d(loss)/d(input i); empty when the rule gave none.
  std::optional<std::vector<double>> gradient(int i) {
    const Slot& slot = slots_[static_cast<std::size_t>(i)];
    if (slot.slices) {
      const auto parts = evaluate(g_.graph, g_.execution, {slot.slices->indices, slot.slices->values});
      return scattered(parts[0], parts[1], value_of_input(i).shape());
    }
    if (!slot.dense.valid()) return std::nullopt;
    const Tensor gradient = evaluate(g_.graph, g_.execution, {slot.dense})[0];
    if (gradient.shape() != value_of_input(i).shape())
      throw Internal(fmt::format("gradient of input {} has shape {}, the input {}", i,
                                 gradient.shape().to_string(), value_of_input(i).shape().to_string()));
    return to_doubles(gradient);
  }

  double loss() {
    const auto values = evaluate(g_.graph, g_.execution, differentiated_);
    double sum = 0;
    for (std::size_t o = 0; o < values.size(); ++o) {
      const auto y = to_doubles(values[o]);
      for (std::size_t k = 0; k < y.size(); ++k) sum += y[k] * dy_[o].data<double>()[k];
    }
    return sum;
  }

  bool has_loss() const { return !differentiated_.empty(); }
  Tensor& value_of_input(int i) {
    const NodeId id = input(i).node;
    auto feed = g_.execution.feeds.find(id);
    return feed != g_.execution.feeds.end() ? feed->second : g_.execution.variables.at(id);
  }

 private:
  struct Slot {
    ValueRef dense;
    std::optional<IndexedSlices> slices;
  };

  static std::vector<double> scattered(const Tensor& indices, const Tensor& values, const Shape& shape) {
    std::vector<double> dense(static_cast<std::size_t>(shape.elements()));
    const auto rows = tensor_to_int64s(indices);
    const auto data = to_doubles(values);
    const std::size_t width = rows.empty() ? 0 : data.size() / rows.size();
    for (std::size_t k = 0; k < data.size(); ++k)
      if (rows[k / width] >= 0)  // of padded lists, others name no row
        dense[static_cast<std::size_t>(rows[k / width]) * width + k % width] += data[k];
    return dense;
  }

  CaseGraph& g_;
  std::vector<Slot> slots_;
  std::vector<ValueRef> grads_;
  std::vector<ValueRef> differentiated_;
  std::vector<Tensor> dy_;
};

template <class T>
double central_difference(CaseGradContext& c, T& element, double step) {
  const T saved = element;
  element = static_cast<T>(saved + step);
  const double up = c.loss(), at_up = element;
  element = static_cast<T>(saved - step);
  const double down = c.loss(), at_down = element;
  element = saved;
  return (up - down) / (at_up - at_down);
}

}  // namespace

std::string check_gradient(const OpDef& def, const OpCase& op_case) {
  CaseGraph g = make_case_graph(def, op_case);
  for (auto& [id, tensor] : g.execution.feeds) tensor = tensor.clone();  // cases are shared
  CaseGradContext c(g, op_case);
  if (!c.has_loss()) return {};
  def.gradient(c);
  for (int i = 0; i < static_cast<int>(op_case.inputs.size()); ++i) {
    const DType dtype = op_case.inputs[static_cast<std::size_t>(i)].dtype();
    const bool expects_none =
        !is_floating(dtype) || contains(op_case.no_gradient_inputs, i) || contains(def.shape_values, i);
    const auto gradient = c.gradient(i);
    if (expects_none && gradient) return fmt::format("input {} must not get a gradient", i);
    if (expects_none) continue;
    if (!gradient) return fmt::format("input {} got no gradient", i);
    const bool wide = dtype == DType::Float64;
    const double step = wide ? 1e-5 : 1e-2, tolerance = wide ? op_case.tolerance : 3e-2;
    Tensor& value = c.value_of_input(i);
    for (std::size_t k = 0; k < gradient->size(); ++k) {
      const double numeric = wide ? central_difference(c, value.data<double>()[k], step)
                                  : central_difference(c, value.data<float>()[k], step);
      const double analytic = (*gradient)[k];
      if (!(std::abs(numeric - analytic) <= tolerance * (1 + std::abs(numeric))))
        return fmt::format("input {}, element {}: central difference {}, gradient {}", i, k, numeric,
                           analytic);
    }
  }
  return {};
}

}  // namespace braid::testing
