#include "worker/model/towers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/import/convert.h"
#include "engine/ir/device_name.h"
#include "worker/model/def_graph.h"

namespace braid::worker {
namespace {

using Attrs = google::protobuf::Map<std::string, AttrValue>;

/// Attributes that say nothing of what a node computes, and seeds, which TensorFlow counts up.
const std::set<std::string> kSaysNothing{"_class", "_output_shapes", "seed", "seed2"};

bool same_attributes(const NodeDef& a, const NodeDef& b) {
  const auto covers = [](const Attrs& all, const Attrs& others) {
    return std::all_of(all.begin(), all.end(), [&](const auto& each) {
      const auto other = others.find(each.first);
      return kSaysNothing.contains(each.first) ||
             (other != others.end() && other->second.SerializeAsString() == each.second.SerializeAsString());
    });
  };
  return covers(a.attr(), b.attr()) && covers(b.attr(), a.attr());
}

std::vector<std::string> data_inputs(const NodeDef& node) {
  std::vector<std::string> inputs;
  for (const std::string& input : node.input())
    if (!input.starts_with('^')) inputs.push_back(input);
  return inputs;
}

class Joiner {
 public:
  explicit Joiner(GraphDef& graph) : graph_(graph), index_(graph) {}

  int count() const { return count_; }
  const std::string& why_not() const { return why_not_; }

  bool needs_further_gpus(const std::string& value) const {
    const auto above = index_.above({value});
    return std::any_of(above.begin(), above.end(), [](const NodeDef* node) { return gpu_of(*node) > 0; });
  }

  /// A sum of means over the towers, and of what no further tower has a part in. Replaces these means.
  bool join_loss(std::string& value) {
    if (!needs_further_gpus(value)) return true;
    const NodeDef& node = node_of(value);
    const std::vector<std::string> inputs = data_inputs(node);
    if (const auto terms = mean_of(value)) return replace(value, *terms, value);
    if (node.op() == "Mean" && node_of(unflattened(inputs[0])).op() == "ConcatV2") {
      std::string rows = unflattened(inputs[0]);
      return join_rows(rows);
    }
    if (node.op() == "Identity") {
      std::string input = inputs[0];
      if (!join_loss(input)) return false;
      value = input;
      return true;
    }
    if (!is_sum(node))
      return fail("its loss is no mean of theirs ([" + node.op() + "] node '" + node.name() + "')");
    for (std::string input : inputs)
      if (!join_loss(input)) return false;
    return true;
  }

  /// The rows of all towers, one behind the other.
  bool join_rows(std::string& value) {
    if (!needs_further_gpus(value)) return true;
    const NodeDef& node = node_of(value);
    std::vector<std::string> inputs = data_inputs(node);
    if (node.op() == "Identity") {
      std::string input = inputs[0];
      return join_rows(input);
    }
    if (node.op() != "ConcatV2" || scalar(inputs.back()) != 0.0)
      return fail("[" + node.op() + "] node '" + node.name() + "' does not join their rows");
    inputs.pop_back();
    return replace(value, inputs, value);
  }

  /// The first tower reads all rows.
  void read_whole() {
    for (const auto& [split, output] : splits_)
      replace_value(graph_, {split, output}, node_of(split).input(1));
    for (const auto& [from, to] : replaced_) replace_value(graph_, parse_value_name(from), to);
  }

 private:
  const NodeDef& node_of(const std::string& value) const {
    const NodeDef* node = index_.find(parse_value_name(value).node);
    if (!node) throw InvalidArgument("the graph has no node '" + parse_value_name(value).node + "'");
    return *node;
  }
  static bool is_sum(const NodeDef& node) {
    return node.op() == "AddN" || node.op() == "AddV2" || node.op() == "Add";
  }
  bool fail(const std::string& why) {
    if (why_not_.empty()) why_not_ = why;
    return false;
  }

  /// Of a constant of one element.
  std::optional<double> scalar(const std::string& value) const {
    const NodeDef& node = node_of(value);
    if (node.op() == "Identity") return scalar(node.input(0));
    if (node.op() != "Const" || !node.attr().contains("value")) return std::nullopt;
    const Tensor tensor = from_proto(node.attr().at("value").tensor());
    if (tensor.elements() != 1) return std::nullopt;
    switch (tensor.dtype()) {
      case DType::Float32:
        return tensor.data<float>()[0];
      case DType::Float64:
        return tensor.data<double>()[0];
      case DType::Int32:
        return tensor.data<std::int32_t>()[0];
      case DType::Int64:
        return static_cast<double>(tensor.data<std::int64_t>()[0]);
      default:
        return std::nullopt;
    }
  }

  /// What is made one row of.
  std::string unflattened(const std::string& value) const {
    const NodeDef& node = node_of(value);
    return node.op() == "Reshape" && scalar(node.input(1)) == -1.0 ? node.input(0) : value;
  }

  /// A sum within a tower is one.
  void add_terms(const std::string& value, bool is_first, std::vector<std::string>& terms) const {
    const NodeDef& node = node_of(value);
    if (!is_sum(node) || (!is_first && gpu_of(node) >= 0)) return terms.push_back(value);
    for (const std::string& input : data_inputs(node)) add_terms(input, false, terms);
  }

  /// What the value is the mean of, as its nodes say it; nothing: it is none.
  std::optional<std::vector<std::string>> mean_of(const std::string& value) const {
    const NodeDef& node = node_of(value);
    const std::vector<std::string> inputs = data_inputs(node);
    if (node.op() == "Mean" && node_of(unflattened(inputs[0])).op() == "Pack")
      return data_inputs(node_of(unflattened(inputs[0])));
    const bool divides = node.op() == "RealDiv" || node.op() == "Div";
    if (!divides && node.op() != "Mul") return std::nullopt;
    for (const std::size_t at : {std::size_t{1}, std::size_t{0}}) {
      const std::optional<double> factor = scalar(inputs[at]);
      if (!factor || (divides && at == 0)) continue;
      std::vector<std::string> terms;
      add_terms(inputs[1 - at], true, terms);
      const double parts = divides ? *factor : 1 / *factor;
      if (std::abs(parts - static_cast<double>(terms.size())) < 1e-3) return terms;
    }
    return std::nullopt;
  }

  /// Whether b is of its tower what a is of its own, and which outputs of splits they read.
  bool match(const std::string& a, const std::string& b, int& part_of_a, int& part_of_b) {
    std::map<std::string, std::string> matched;  // nodes
    std::vector<std::pair<std::string, std::string>> open{{a, b}};
    while (!open.empty()) {
      const auto [one, other] = std::move(open.back());
      open.pop_back();
      if (one == other) continue;
      const ValueName left = parse_value_name(one), right = parse_value_name(other);
      const NodeDef &x = node_of(one), &y = node_of(other);
      if (left.node == right.node) {
        if (!note_split(x, left.output, right.output, part_of_a, part_of_b))
          return fail(fmt::format("[{}] node '{}' gives them different values", x.op(), x.name()));
        continue;
      }
      const auto [at, is_new] = matched.try_emplace(left.node, right.node);
      if (!is_new && at->second == right.node && left.output == right.output) continue;
      const std::vector<std::string> inputs = data_inputs(x), others = data_inputs(y);
      if (!is_new || left.output != right.output || x.op() != y.op() || is_variable(x) ||
          inputs.size() != others.size() || !same_attributes(x, y))
        return fail(
            fmt::format("[{}] node '{}' differs from [{}] node '{}'", x.op(), x.name(), y.op(), y.name()));
      for (std::size_t i = 0; i < inputs.size(); ++i) open.emplace_back(inputs[i], others[i]);
    }
    return part_of_a >= 0 || fail("they read the same rows");
  }

  /// Of one tower the same output of all splits.
  bool note_split(const NodeDef& node, int of_a, int of_b, int& part_of_a, int& part_of_b) {
    if (node.op() != "Split" || scalar(node.input(0)) != 0.0) return false;
    if (part_of_a < 0) {
      part_of_a = of_a;
      part_of_b = of_b;
    }
    splits_.emplace(node.name(), of_a);
    return of_a == part_of_a && of_b == part_of_b;
  }

  bool replace(const std::string& value, const std::vector<std::string>& of_towers, std::string& by) {
    if (of_towers.size() < 2) return fail("there is one");
    std::set<int> parts;
    for (std::size_t i = 1; i < of_towers.size(); ++i) {
      int part_of_first = -1, part = -1;
      if (!match(of_towers[0], of_towers[i], part_of_first, part)) return false;
      parts.insert({part_of_first, part});
    }
    const auto towers = static_cast<int>(of_towers.size());
    if (static_cast<int>(parts.size()) != towers || (count_ != 0 && count_ != towers))
      return fail("several read the same rows");
    for (const auto& split : splits_)
      if (node_of(split.first).attr().at("num_split").i() != towers)
        return fail("'" + split.first + "' has parts for others");
    count_ = towers;
    replaced_.emplace_back(value, of_towers[0]);
    by = of_towers[0];
    return true;
  }

  GraphDef& graph_;
  const NodeIndex index_;
  int count_ = 0;
  std::string why_not_;
  std::set<std::pair<std::string, int>> splits_;  // and the output that the first tower reads
  std::vector<std::pair<std::string, std::string>> replaced_;
};

}  // namespace

int gpu_of(const NodeDef& node) {
  if (node.device().empty()) return -1;
  const DeviceName name = parse_device_name(node.device());
  return name.kind.value_or("") == "GPU" ? name.index.value_or(0) : -1;
}

JoinedTowers join_towers(GraphDef& graph, std::string& loss, std::string& prediction) {
  Joiner joiner(graph);
  if (!joiner.needs_further_gpus(loss)) return {};
  std::string joined_loss = loss, joined_prediction = prediction;
  if (!joiner.join_loss(joined_loss)) return {0, joiner.why_not()};
  if (!prediction.empty() && !joiner.join_rows(joined_prediction)) return {0, joiner.why_not()};
  joiner.read_whole();
  loss = joined_loss;
  prediction = joined_prediction;
  return {joiner.count(), {}};
}

}  // namespace braid::worker
