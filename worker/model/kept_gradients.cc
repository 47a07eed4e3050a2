#include "worker/model/kept_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engine/import/import.h"
#include "worker/model/def_graph.h"

namespace braid::worker {
namespace {

/// An optimizer's op. `inputs` are TensorFlow's names for them, but that `accumulator` is the slot whose
/// first value the optimizer has as a setting. In the form for rows the indices follow `grad`.
struct ApplyForm {
  std::string_view op;  // without "Resource" and "Sparse"
  OptimizerKind kind;
  std::string_view inputs;
  bool for_rows = true;

  /// The place of an input; -1: there is none of that name.
  int place(std::string_view name) const {
    int at = 0;
    for (const auto word : std::views::split(inputs, ' ')) {
      if (std::string_view(word.begin(), word.end()) == name) return at;
      ++at;
    }
    return -1;
  }
};

constexpr ApplyForm kForms[] = {
    {"ApplyGradientDescent", OptimizerKind::Sgd, "var lr grad", false},
    {"ApplyMomentum", OptimizerKind::Momentum, "var accum lr grad momentum"},
    {"ApplyAdagrad", OptimizerKind::Adagrad, "var accumulator lr grad"},
    {"ApplyAdagradV2", OptimizerKind::Adagrad, "var accumulator lr epsilon grad"},
    {"ApplyAdam", OptimizerKind::Adam, "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad", false},
    {"ApplyFtrl", OptimizerKind::Ftrl, "var accumulator linear grad lr l1 l2 lr_power"},
    {"ApplyFtrlV2", OptimizerKind::Ftrl, "var accumulator linear grad lr l1 l2 l2_shrinkage lr_power"},
    {"ApplyRMSProp", OptimizerKind::RmsProp, "var accumulator mom lr rho momentum epsilon grad"},
};

struct ApplyOp {
  const ApplyForm* form = nullptr;
  bool sparse = false;
};

ApplyOp apply_op(std::string_view op) {
  if (op.starts_with("Resource")) op.remove_prefix(std::string_view("Resource").size());
  const bool sparse = op.starts_with("Sparse");
  if (sparse) op.remove_prefix(std::string_view("Sparse").size());
  for (const ApplyForm& form : kForms)
    if (form.op == op && (!sparse || form.for_rows)) return {&form, sparse};
  return {};
}

bool is_scatter(std::string_view op) {
  return op == "ScatterSub" || op == "ResourceScatterSub" || op == "ResourceScatterAdd" || op == "ScatterAdd";
}

class Finder {
 public:
  Finder(const ModelFile& file, const InitialValues& initial, float rate,
         const std::function<bool(const std::string&)>& trained, Problems& problems)
      : file_(file),
        index_(file.graph),
        initial_(initial),
        rate_(rate),
        trained_(trained),
        problems_(problems) {}

  std::vector<GivenGradient> find(const std::string& train_op) {
    for (const NodeDef* node : index_.above({train_op})) {
      const ApplyOp apply = apply_op(node->op());
      const bool applies = node->op().find("Apply") != std::string::npos;
      const NodeDef* variable = variable_of(index_, *node);
      if (!variable || !trained_(variable_name(*variable))) continue;
      if (apply.form)
        take_apply(*node, apply);
      else if (is_scatter(node->op()))
        take_scatter(*node);
      else if (applies)
        refuse(*node, "this optimizer is not among those that can be kept");
      else if (node->op().starts_with("Assign"))
        refuse(*node, "it changes '" + variable_name(*variable) +
                          "', and what the gradient and the optimizer are does not follow from it");
    }
    if (found_.empty() && problems_.none())
      problems_.add(
          "'" + train_op +
          "' applies no gradient that Braid knows: Keras' optimizers of version 3 and others compute "
          "their updates from single ops: gradients: REDO");
    return std::move(found_);
  }

 private:
  void refuse(const NodeDef& node, const std::string& why) {
    problems_.add(fmt::format("[{}] node '{}': {}: gradients: REDO, with the job's optimizer", node.op(),
                              node.name(), why));
  }

  std::optional<float> number(const NodeDef& node, int input) {
    const std::string value = parse_value_name(node.input(input)).text();
    try {
      const Graph graph = import_graph(file_.graph, file_.source, {.roots = {value}});
      const Tensor* known = graph.known_value(graph.parse_value(value));
      if (known && known->elements() == 1 && known->dtype() == DType::Float32) return known->data<float>()[0];
    } catch (const InvalidArgument&) {  // not a constant, then
    }
    return std::nullopt;
  }

  /// Setting `field` from an input, where the op has it.
  bool set(const NodeDef& node, int input, const char* what, float& field) {
    if (input < 0) return true;
    if (input >= node.input_size()) return false;
    const auto value = number(node, input);
    if (value) {
      field = *value;
      return true;
    }
    refuse(node,
           fmt::format("its {} ('{}') is no constant; a placeholder may be fed with one: feeds {{ value: "
                       "\"{}\" constant: \"...\" }}",
                       what, node.input(input), node.input(input)));
    return false;
  }

  void take_apply(const NodeDef& node, const ApplyOp& apply) {
    const ApplyForm& form = *apply.form;
    GivenGradient given;
    given.variable = variable_name(*variable_of(index_, node));
    OptimizerSpec& spec = given.optimizer;
    spec = {.kind = form.kind};
    const int gradient = form.place("grad");
    const auto at = [&](std::string_view name) {
      const int input = form.place(name);
      return apply.sparse && input > gradient ? input + 1 : input;
    };
    float rate = 0;
    spec.momentum = form.kind == OptimizerKind::RmsProp ? 0.0F : spec.momentum;
    bool good = set(node, at("lr"), "learning rate", rate);
    for (const auto& [name, field] : {std::pair{"momentum", &spec.momentum},
                                      {"beta1", &spec.beta1},
                                      {"beta2", &spec.beta2},
                                      {"epsilon", &spec.epsilon},
                                      {"rho", &spec.rho},
                                      {"l1", &spec.l1},
                                      {"l2", &spec.l2},
                                      {"l2_shrinkage", &spec.l2_shrinkage},
                                      {"lr_power", &spec.learning_rate_power}})
      good = good && set(node, at(name), name, *field);
    if (!good) return;
    spec.learning_rate_factor = rate / rate_;
    if (form.op == "ApplyAdagradV2" && spec.epsilon != 0)
      return refuse(node, fmt::format("its epsilon is {}, and Adagrad here has none", spec.epsilon));
    const auto nesterov = node.attr().find("use_nesterov");
    spec.nesterov = nesterov != node.attr().end() && nesterov->second.b();
    if (spec.nesterov && form.kind == OptimizerKind::Adam)
      return refuse(node, "use_nesterov of Adam is not there");
    const int accumulator = form.place("accumulator");
    if (accumulator >= 0 && !take_accumulator(node, accumulator, spec)) return;
    given.values = parse_value_name(node.input(gradient)).text();
    if (apply.sparse) {
      given.indices = parse_value_name(node.input(gradient + 1)).text();
      take_duplicates(given);
    }
    add(node, std::move(given));
  }

  bool take_accumulator(const NodeDef& node, int input, OptimizerSpec& spec) {
    const NodeDef* slot = index_.input(node, input);
    while (slot && slot->op() == "Identity") slot = index_.input(*slot, 0);
    const auto first = slot ? initial_.constant_of(variable_name(*slot)) : std::nullopt;
    if (first)
      spec.initial_accumulator = *first;
    else
      refuse(node, "what its accumulator begins with is not known");
    return first.has_value();
  }

  /// w[indices] -= updates, which are the gradient times the rate already.
  void take_scatter(const NodeDef& node) {
    GivenGradient given;
    given.variable = variable_name(*variable_of(index_, node));
    given.optimizer.kind = OptimizerKind::Sgd;
    given.optimizer.learning_rate_factor = 1.0F / rate_;
    given.indices = parse_value_name(node.input(1)).text();
    given.values = parse_value_name(node.input(2)).text();
    if (node.op().ends_with("Add")) given.optimizer.learning_rate_factor *= -1;
    add(node, std::move(given));
  }

  /// indices: Unique(x), values: UnsortedSegmentSum(v, Unique(x):1, n).
  void take_duplicates(GivenGradient& given) const {
    const NodeDef* unique = index_.find(parse_value_name(given.indices).node);
    const NodeDef* sum = index_.find(parse_value_name(given.values).node);
    if (!unique || !sum || !unique->op().starts_with("Unique") || sum->op() != "UnsortedSegmentSum") return;
    const ValueName places = parse_value_name(sum->input(1));
    if (places.node != unique->name() || places.output != 1) return;
    given.values = parse_value_name(sum->input(0)).text();
    given.indices = parse_value_name(unique->input(0)).text();
  }

  void add(const NodeDef& node, GivenGradient given) {
    for (const GivenGradient& other : found_)
      if (other.variable == given.variable) return refuse(node, "'" + given.variable + "' is updated twice");
    found_.push_back(std::move(given));
  }

  const ModelFile& file_;
  const NodeIndex index_;
  const InitialValues& initial_;
  const float rate_;
  const std::function<bool(const std::string&)>& trained_;
  Problems& problems_;
  std::vector<GivenGradient> found_;
};

}  // namespace

std::vector<GivenGradient> find_kept_gradients(const ModelFile& file, const std::string& train_op,
                                               const InitialValues& initial, float learning_rate,
                                               const std::function<bool(const std::string&)>& trained,
                                               Problems& problems) {
  return Finder(file, initial, learning_rate, trained, problems).find(train_op);
}

}  // namespace braid::worker
